"""Programs that hidden tests run in isolation, and the isolation itself."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from assay.bench.base import CodingOutcome, CodingTask, Grade, GradingMode
from assay.bench.grading.grade import grade_patch
from assay.bench.grading.programs import ProgramEnd, run_program
from assay.bench.grading.scripts import is_separate
from assay.bench.tasks import load_task
from assay.sandboxes.base import SandboxBackend
from assay.sandboxes.unprotected import UnprotectedBackend
from tests.bench.benching import (
    CALLS_APART,
    CALLS_PROGRAM,
    LIMITS,
    PROGRAM,
    SOLVED,
    attack,
    grade_files,
    read_patch,
    script,
    small_task,
)
from tests.sandboxes.boxes import ANY_WAY, usable
from tests.support import run_python

COUNT_WORDS = Path(__file__).parents[2] / "examples/bench/tasks/count-words"
RIGHT = PROGRAM.replace("else 0", "else sum(map(int, numbers))")
ASKS = """\
import json
import sys
import textwrap
import pytest
from assay_grading import run_program


def python(code, *arguments, **more):
    return run_program([sys.executable, "-c", textwrap.dedent(code), *arguments], **more)


def test_it():
"""


def grade_by_test(test: str, folder: Path, files: Mapping[str, bytes] | None = None) -> Grade:
    """Grade a solution by one test, given by its lines, that runs isolated programs."""
    lines = "".join(f"    {line}\n" for line in test.strip().splitlines())
    task = small_task(folder / "task", scripts=(script("test_it.py", ASKS + lines),))
    task = replace(task, evaluation_files=files or {})
    return asyncio.run(grade_files(task, folder, {"calc.py": SOLVED}))


def check_solved(test: str, folder: Path, files: Mapping[str, bytes] | None = None) -> None:
    result = grade_by_test(test, folder, files)
    assert [report.message for report in result.tests if report.message] == []
    assert (result.outcome, result.mode) == (CodingOutcome.SOLVED, GradingMode.SEPARATE)
    assert result.findings == ()


def calc_task(folder: Path, tests: str) -> CodingTask:
    scripts = (script("test_calc.py", tests),)
    return small_task(folder / "task", files={"calc.py": PROGRAM}, scripts=scripts)


def graded_by(backend: SandboxBackend, task: CodingTask, folder: Path) -> Grade:
    diff = read_patch(task, folder / "agent", {"calc.py": RIGHT}).diff
    grade_files = grade_patch(
        task, diff, backend, folder=folder / "grading", limits=LIMITS, timeout_s=60
    )
    return asyncio.run(grade_files)


# Access of programs


@pytest.mark.bench
def test_program_runs_in_the_repository_and_returns_its_exit_code(tmp_path: Path) -> None:
    check_solved(
        """
end = python("import calc, sys; print(calc.add(1, 2), input()); sys.exit(3)", stdin="é")
assert end[:3] == (3, "3 é\\n", "")
end = python("import os, sys; sys.stderr.write('bad'); print(os.getcwd())", cwd=".git")
assert end[:3] == (0, "/app/repo/.git\\n", "bad")
assert python("import os; os.abort()").exit_code == -6
assert run_program(["no_such_program"]).exit_code == 127
assert 0.3 < python("import time\\nwhile time.process_time() < 0.4: pass").cpu_s < 5
assert python("print('é' * 3_000_000)").stdout == "é" * 2_000_000
with pytest.raises(TimeoutError, match="did not end within 1 s"):
    python("import time; time.sleep(60)", timeout=1)
""",
        tmp_path,
    )


@pytest.mark.bench
def test_child_processes_are_killed_when_a_program_ends(tmp_path: Path) -> None:
    check_solved(
        """
python('''
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "1000"])
    os._exit(0)
os.wait()
''')
seen = python('''
import os
for name in os.listdir("/proc"):
    if name.isdigit():
        print(open(f"/proc/{name}/cmdline").read().replace("\\\\0", " "))
''').stdout
assert "sleep" not in seen
assert "assay_grading" in seen
""",
        tmp_path,
    )


@pytest.mark.bench
def test_only_tests_can_read_hidden_files(tmp_path: Path) -> None:
    check_solved(
        """
from pathlib import Path
beside = Path(__file__).parent / "answers.txt"
assert beside.read_text() == "42"
tried = '''
import os, sys
for path in sys.argv[1:]:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).close()
        print("read", path)
    except PermissionError:
        pass
for path in ("/grading/new", "/orders/orders.json"):
    try:
        open(path, "w").close()
        print("wrote", path)
    except PermissionError:
        pass
os.mkdir("/tmp/folder")
open("/tmp/kept", "w").close()
os.rename("/tmp/kept", "/tmp/folder/kept")
'''
paths = ["/grading", "/orders", str(beside.parent), str(beside), "/proc/self/root/grading"]
end = python(tried, *paths)
assert end[:3] == (0, "", "")
""",
        tmp_path,
        {"answers.txt": b"42"},
    )


@pytest.mark.bench
def test_program_cannot_access_other_processes(tmp_path: Path) -> None:
    check_solved(
        """
seen = json.loads(python('''
import json, os
def can(what, *arguments):
    try:
        what(*arguments)
        return True
    except OSError:
        return False
reached = {}
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        ways = {
            "signal": can(os.kill, int(name), 0),
            "memory": can(open, f"/proc/{name}/mem", "r+b"),
            "files": any(can(open, f"/proc/{name}/fd/{number}") for number in range(20)),
            "variables": can(open, f"/proc/{name}/environ"),
        }
        reached[name] = [way for way, works in ways.items() if works]
handles = sorted(os.listdir("/proc/self/fd"), key=int)[:-1]
print(json.dumps([reached, handles, os.getsid(0) == os.getpid(), dict(os.environ)]))
''').stdout)
reached, handles, has_own_session, variables = seen
others = {name: ways for name, ways in reached.items() if name != "1"}
assert len(others) >= 3  # driver, broker and this process
assert set(map(str, others.values())) == {"[]"}
assert handles == ["0", "1", "2"]
assert has_own_session
assert "ASSAY_RESULT" not in variables
""",
        tmp_path,
    )


# Access of tests


@pytest.mark.bench
def test_tests_of_isolated_programs_cannot_open_the_repository(tmp_path: Path) -> None:
    check_solved(
        """
import os
assert "/app" not in os.getcwd()
for path in ("/app/repo/calc.py", "/app/repo", "/app"):
    with pytest.raises(PermissionError):
        os.listdir(path) if os.path.isdir(path) else open(path)
sys.path.insert(0, "/app/repo")
with pytest.raises(ImportError):
    import calc
import subprocess
assert subprocess.run([sys.executable, "/app/repo/calc.py"], capture_output=True).returncode
""",
        tmp_path,
    )


@pytest.mark.bench
def test_scripts_are_deleted_before_their_tests_run_and_data_files_stay(tmp_path: Path) -> None:
    tests = """\
import os
import subprocess
import sys
from pathlib import Path
from calc import add


def test_place():
    assert add(1, 2) == int((Path(__file__).parent / "three.txt").read_text())
    found = [path.name for path in Path("/grading").rglob("test_*")]
    assert found == []
    here = subprocess.run(
        [sys.executable, "-c", "import os; print(*os.listdir('/proc/self/fd'))"],
        close_fds=False, capture_output=True, text=True,
    )
    pipes = [
        name for name in here.stdout.split()
        if os.path.exists(f"/proc/self/fd/{name}") and int(name) > 2
        and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:")
    ]
    assert pipes == []
"""
    scripts = (script("test_place.py", tests), script("test_other.py", "def test_x(): pass\n"))
    task = small_task(tmp_path / "task", scripts=scripts)
    task = replace(task, evaluation_files={"three.txt": b"3"})
    result = asyncio.run(grade_files(task, tmp_path, {"calc.py": SOLVED}))
    assert (result.outcome, result.mode) == (CodingOutcome.SOLVED, GradingMode.IN_PROCESS)


@pytest.mark.bench
def test_program_cannot_open_memory_or_pipes_of_the_test_that_started_it(
    tmp_path: Path,
) -> None:
    tests = """\
import subprocess
import sys

PROGRAM = '''
import os
parent = os.getppid()
for name in ("mem", "environ", *(f"fd/{number}" for number in range(20))):
    try:
        open(f"/proc/{parent}/{name}", "rb").close()
        print(name)
    except OSError:
        pass
'''


def test_it():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
"""
    task = small_task(tmp_path / "task", scripts=(script("test_it.py", tests),))
    result = asyncio.run(grade_files(task, tmp_path, {"calc.py": SOLVED}))
    assert result.outcome == CodingOutcome.SOLVED


@pytest.mark.bench
def test_files_left_by_one_script_are_removed_before_the_next(tmp_path: Path) -> None:
    source = f"""
import os
from pathlib import Path
for number in range(2):
    tests = Path(f"/grading/{{number}}/tests")
    tests.mkdir(parents=True, exist_ok=True)
    (tests / "three.txt").write_text("4")
{SOLVED}
"""
    tests = """\
from pathlib import Path
from calc import add


def test_three():
    assert add(1, 3) == int((Path(__file__).parent / "three.txt").read_text())
"""
    loads = "import calc\ndef test_x(): pass\n"
    scripts = (script("test_a.py", loads), script("test_b.py", tests))
    task = small_task(tmp_path / "task", scripts=scripts)
    task = replace(task, evaluation_files={"three.txt": b"3"})
    result = asyncio.run(grade_files(task, tmp_path, {"calc.py": source}))
    assert (result.outcome, result.total_score) == (CodingOutcome.TAMPERED, 0)


def test_import_of_run_program_is_detected_in_the_source() -> None:
    files = {
        "test_a.py": b"from program import words\n",
        "program.py": b"import maps\nfrom assay_grading import run_program\n",
        "maps.py": b"import program\n",
        "deep/test_b.py": b"import helper\n",
        "deep/helper.py": b"def f():\n    import assay_grading\n",
        "test_c.py": b"import maps_too\nfrom . import x\n",
        "test_d.py": b"import (\n",
    }
    found = {path for path in files if "test_" in path and is_separate(path, files)}
    assert found == {"test_a.py", "deep/test_b.py"}


# The mode of a grade


@pytest.mark.parametrize("way", ANY_WAY)
@pytest.mark.parametrize(
    ("tests", "mode"),
    [(CALLS_APART, GradingMode.SEPARATE), (CALLS_PROGRAM, GradingMode.IN_PROCESS)],
    ids=["apart", "by themselves"],
)
def test_a_sandbox_grades_tests_that_start_programs(
    way: str | None, tests: str, mode: GradingMode, tmp_path: Path
) -> None:
    result = graded_by(usable(way), calc_task(tmp_path, tests), tmp_path)
    assert (result.outcome, result.mode, result.findings) == (CodingOutcome.SOLVED, mode, ())


@pytest.mark.bench
def test_programs_are_isolated_without_a_sandbox(tmp_path: Path) -> None:
    result = graded_by(UnprotectedBackend(), calc_task(tmp_path, CALLS_APART), tmp_path)
    assert (result.outcome, result.mode) == (CodingOutcome.SOLVED, GradingMode.SEPARATE)


@pytest.mark.bench
def test_grading_mode_is_in_process_if_parent_folders_cannot_be_listed(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root lists every folder")
    task = calc_task(tmp_path, CALLS_APART)
    tmp_path.chmod(0o311)
    try:
        result = graded_by(UnprotectedBackend(), task, tmp_path)
    finally:
        tmp_path.chmod(0o700)
    assert (result.outcome, result.mode) == (CodingOutcome.SOLVED, GradingMode.IN_PROCESS)


@pytest.mark.bench
def test_one_script_that_loads_the_code_makes_the_whole_grade_in_process(
    tmp_path: Path,
) -> None:
    task = calc_task(tmp_path, CALLS_APART)
    shell = script("run.sh", "python calc.py double 4\n")
    task = replace(task, test_scripts=(*task.test_scripts, shell))
    result = asyncio.run(grade_files(task, tmp_path, {"calc.py": RIGHT}))
    assert (result.outcome, result.mode) == (CodingOutcome.SOLVED, GradingMode.IN_PROCESS)


@pytest.mark.bench
def test_grade_without_test_runs_has_no_mode(tmp_path: Path) -> None:
    result = asyncio.run(grade_files(calc_task(tmp_path, CALLS_APART), tmp_path, {}))
    assert (result.outcome, result.mode) == (CodingOutcome.EMPTY_PATCH, None)


# Attacks in addition to `test_cheats`


@pytest.mark.bench
@pytest.mark.parametrize("name", ["forge-reports", "patch-parent"])
def test_program_that_forges_reports_scores_zero_in_a_sample_task(
    name: str, tmp_path: Path
) -> None:
    seen = asyncio.run(attack(name, load_task(COUNT_WORDS), tmp_path))
    assert (seen.grade.outcome, seen.grade.total_score) == (CodingOutcome.UNSOLVED, 0)
    assert seen.grade.mode == GradingMode.SEPARATE
    assert seen.findings.keys() == {"attack"}


WITHOUT_LANDLOCK = """
import asyncio, ctypes, json, struct, sys
from pathlib import Path
from tests.bench.benching import CALLS_APART, CALLS_PROGRAM, attack
from tests.bench.test_grading_programs import RIGHT, calc_task, graded_by
from tests.sandboxes.boxes import usable

# Load the number of the call; 444 fails with ENOSYS (38), all others are allowed.
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
program = struct.pack("@HP", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
folder = Path(sys.argv[1])
seen = {}
for way, tests in (("apart", CALLS_APART), ("by themselves", CALLS_PROGRAM)):
    solved = graded_by(usable(None), calc_task(folder / way, tests), folder / way)
    seen[way] = {"solution": (solved.total_score, solved.mode)}
    for name in ("forge-reports", "patch-parent", "steal-tests", "kill-grader"):
        place = folder / way / name
        end = asyncio.run(attack(name, calc_task(place, tests), place))
        seen[way][name] = end.grade.total_score
print(json.dumps(seen))
"""


@pytest.mark.bench
def test_mode_without_landlock_still_deletes_scripts_and_closes_pipes(tmp_path: Path) -> None:
    done = run_python(
        "-c",
        WITHOUT_LANDLOCK,
        str(tmp_path),
        folder=Path(__file__).parents[2],
        variables={"PYTHONPATH": "."},
    )
    earned = {"forge-reports": 0.5, "patch-parent": 0.5, "steal-tests": 0.5, "kill-grader": 0}
    expected = {"solution": [1, "in-process"], **earned}
    assert json.loads(done.output) == {"apart": expected, "by themselves": expected}


# Tests without a grader


def test_program_runs_unisolated_outside_of_grading(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys; print(sys.stdin.read() + '!')", "utf-8")
    end = run_program([sys.executable, "app.py"], stdin="é", cwd=tmp_path)
    assert end == ProgramEnd(0, "é!\n", "", end.cpu_s)
    assert end.cpu_s > 0
    assert run_program(["no_such_program"]).exit_code == 127
    with pytest.raises(TimeoutError, match=r"sleep did not end within 0\.2 s"):
        run_program(["sleep", "60"], timeout=0.2)
