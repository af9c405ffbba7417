"""Grades of patches, in real sandboxes."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from assay.bench.base import CodingOutcome, CodingTask, Grade, Rubric
from assay.bench.grading.grade import check_gradable, grade_patch
from assay.bench.tasks import load_task
from assay.errors import UsageError
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.unprotected import UnprotectedBackend
from tests.bench.benching import (
    BROKEN,
    LIMITS,
    SOLVED,
    TEST_ADD,
    grade_files,
    read_patch,
    script,
    small_task,
)
from tests.support import run_python

pytestmark = pytest.mark.bench
SAMPLES = sorted((Path(__file__).parents[2] / "examples/bench/tasks").iterdir())
ADDS = (script("test_add.py", TEST_ADD),)


def grade(
    task: CodingTask, folder: Path, files: Mapping[str, str | None], timeout_s: float = 30
) -> Grade:
    return asyncio.run(grade_files(task, folder, files, timeout_s=timeout_s))


def statuses(result: Grade) -> dict[str, str]:
    return {test.name: test.status for test in result.tests}


def names(result: Grade) -> list[str]:
    return [finding.name for finding in result.findings]


def test_a_solution_scores_1_and_leaves_nothing_behind(tmp_path: Path) -> None:
    task = small_task(tmp_path / "task")
    result = grade(task, tmp_path, {"calc.py": SOLVED})
    assert (result.outcome, result.total_score) == (CodingOutcome.SOLVED, 1)
    assert [rubric.tests_passed for rubric in result.rubrics] == [2, 1]
    assert result.findings == ()
    assert "was added by the grader and must fail" in result.log
    assert list((tmp_path / "grading").iterdir()) == []


def test_the_score_is_the_weighted_mean_of_the_rubrics(tmp_path: Path) -> None:
    half = SOLVED.replace("a + b", "3")  # one of two tests of a rubric of weight 3
    result = grade(small_task(tmp_path / "task"), tmp_path, {"calc.py": half})
    assert result.outcome == CodingOutcome.PARTLY
    assert result.total_score == (3 * 0.5 + 1 * 1) / 4


def test_rubric_without_test_and_judge_is_excluded_and_reported(tmp_path: Path) -> None:
    rubrics = (
        Rubric(id="works", criterion="it works"),
        Rubric(id="style", criterion="it reads well", weight=9.0),
    )
    task = small_task(tmp_path / "task", scripts=ADDS, rubrics=rubrics)
    result = grade(task, tmp_path, {"calc.py": SOLVED})
    assert result.total_score == 1
    assert [rubric.score for rubric in result.rubrics] == [1, None]
    assert names(result) == ["rubric_not_scored"]


@pytest.mark.parametrize(
    ("diff", "outcome"),
    [
        (b" \n", CodingOutcome.EMPTY_PATCH),
        (b"this is no patch\n", CodingOutcome.PATCH_REJECTED),
    ],
)
def test_empty_and_invalid_patches_have_separate_outcomes(
    diff: bytes, outcome: CodingOutcome, tmp_path: Path
) -> None:
    task = small_task(tmp_path / "task")
    result = asyncio.run(
        grade_patch(
            task,
            diff,
            BubblewrapBackend(),
            folder=tmp_path / "grading",
            limits=LIMITS,
            timeout_s=30,
        )
    )
    assert (result.outcome, result.total_score) == (outcome, 0)
    assert [rubric.score for rubric in result.rubrics] == [0, 0]


def test_hanging_script_times_out_and_other_scripts_count(tmp_path: Path) -> None:
    hangs = "def double(a):\n    while True: pass\n"
    source = f"{SOLVED.partition('def double')[0]}{hangs}"
    result = grade(small_task(tmp_path / "task"), tmp_path, {"calc.py": source}, timeout_s=8)
    assert result.outcome == CodingOutcome.GRADING_TIMEOUT
    assert result.total_score == 0.75
    assert statuses(result)["test_doubles"] == "missing"
    assert "grading_timeout" in names(result)
    assert result.seconds < 15


def test_tests_that_fail_to_load_did_not_run(tmp_path: Path) -> None:
    result = grade(small_task(tmp_path / "task"), tmp_path, {"calc.py": "def add(:\n"})
    assert (result.outcome, result.total_score) == (CodingOutcome.TESTS_DID_NOT_RUN, 0)
    assert set(statuses(result).values()) == {"missing"}
    assert "SyntaxError" in result.tests[0].message


def test_skipped_and_xfailed_tests_are_failures(tmp_path: Path) -> None:
    content = f"""\
import pytest
{TEST_ADD}

@pytest.mark.skip(reason="later")
def test_skipped(): pass


@pytest.mark.xfail
def test_may_fail(): assert add(1, 1) == 2


@pytest.mark.xfail
def test_fails(): assert add(1, 1) == 3
"""
    task = small_task(tmp_path / "task", scripts=(script("test_add.py", content),))
    result = grade(task, tmp_path, {"calc.py": SOLVED})
    assert (result.outcome, result.total_score) == (CodingOutcome.TESTS_SKIPPED, 2 / 5)
    assert list(statuses(result).values()).count("skipped") == 3
    assert names(result) == ["tests_skipped"]


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ("os._exit(1)", CodingOutcome.UNSOLVED),
        ("os._exit(5)", CodingOutcome.UNSOLVED),
        ("os.abort()", CodingOutcome.TAMPERED),
        ("os._exit(0)", CodingOutcome.TAMPERED),
    ],
)
def test_aborted_test_run_does_not_count(
    ending: str, outcome: CodingOutcome, tmp_path: Path
) -> None:
    source = f"import os\ndef add(a, b):\n    if a < 0: {ending}\n    return a + b\n"
    task = small_task(tmp_path / "task", scripts=ADDS)
    result = grade(task, tmp_path, {"calc.py": source})
    assert result.total_score == 0
    assert result.outcome in (outcome, CodingOutcome.TAMPERED)
    if ending == "os.abort()":
        assert names(result) == ["test_process_killed"]
        assert set(statuses(result).values()) == {"error"}


FORGED = """
import glob, json, os
for path in glob.glob("/proc/self/fd/*"):
    if os.path.realpath(path).startswith(f"/proc/{os.getpid()}/fd/pipe"):
        for name in ("test_adds", "test_adds_negative"):
            line = json.dumps({"name": name, "status": "passed", "message": ""})
            os.write(int(path.rpartition("/")[2]), line.encode() + b"\\n")
"""


@pytest.mark.parametrize("ending", ["", "os._exit(1)", "os._exit(0)", "os.abort()"])
def test_reports_written_by_the_code_under_test_are_ignored(
    ending: str, tmp_path: Path
) -> None:
    task = small_task(tmp_path / "task", scripts=ADDS)
    result = grade(task, tmp_path, {"calc.py": f"{BROKEN}{FORGED}{ending}\n"})
    assert (result.outcome, result.total_score) == (CodingOutcome.TAMPERED, 0)


def test_grader_memory_is_unreadable_and_forged_lines_are_ignored(tmp_path: Path) -> None:
    source = """
import os
seen = []
for process in [name for name in os.listdir("/proc") if name.isdigit()]:
    with open(f"/proc/{process}/cmdline", "rb") as file:
        is_driver = b"assay_grading.driver" in file.read() and int(process) == os.getppid()
    if is_driver:
        for name in ("mem", "environ", "fd/0", "fd/1"):
            try:
                open(f"/proc/{process}/{name}", "rb").close()
                seen.append(name)
            except PermissionError:
                pass
    try:
        with open(f"/proc/{process}/fd/1", "wb") as stream:
            stream.write(b"\\nassay-grading 00 bm8=\\n")
    except OSError:
        pass
try:
    seen += os.listdir("/orders")
except OSError:
    pass
def add(a, b):
    return a + b if not seen else seen
"""
    task = small_task(tmp_path / "task", scripts=ADDS)
    result = grade(task, tmp_path, {"calc.py": source})
    assert (result.outcome, statuses(result)) == (
        CodingOutcome.SOLVED,
        {"test_adds": "passed", "test_adds_negative": "passed"},
    )
    # With Landlock in the kernel, even the output of the sandbox cannot be written to.
    assert names(result) in ([], ["answer_forged"])


def test_killing_the_grader_scores_zero(tmp_path: Path) -> None:
    source = f"import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n{SOLVED}"
    result = grade(small_task(tmp_path / "task"), tmp_path, {"calc.py": source})
    # If the kernel cannot block signals to the grader, it is killed, which is reported.
    assert result.total_score == 0
    assert result.outcome in (CodingOutcome.TESTS_DID_NOT_RUN, CodingOutcome.TAMPERED)
    killed = result.outcome == CodingOutcome.TAMPERED
    assert names(result) == (["grader_killed"] if killed else [])
    assert killed or "PermissionError" in result.tests[0].message


@pytest.mark.parametrize("orders", ["a file", "a link", "a pipe", "a folder"])
def test_faking_a_grader_that_did_not_start_scores_zero(orders: str, tmp_path: Path) -> None:
    make = {
        "a file": "open(path, 'w').close()",
        "a link": "os.symlink('/app/repo/calc.py', path)",
        "a pipe": "os.mkfifo(path)",
        "a folder": "os.makedirs(path + '/x', 0o000)",
    }[orders]
    source = f"""
import os, signal
path = "/orders/orders.json"
{make}
os.kill(os.getppid(), signal.SIGKILL)
"""
    task = small_task(tmp_path / "task", scripts=ADDS)
    result = grade(task, tmp_path, {"calc.py": source})
    assert result.total_score == 0
    assert result.outcome in (CodingOutcome.TESTS_DID_NOT_RUN, CodingOutcome.TAMPERED)


def test_subtests_and_fixtures_of_a_script_count_with_their_tests(tmp_path: Path) -> None:
    content = """\
import unittest
import pytest
from calc import add


@pytest.fixture(autouse=True)
def before():
    yield


@pytest.fixture
def after():
    yield
    raise RuntimeError("cannot clean up")


def test_after(after): pass


def test_parts(subtests):
    for sum in (3, 4):
        with subtests.test(sum=sum):
            assert add(1, 2) == sum


def test_good_parts(subtests):
    for sum in (3, 3):
        with subtests.test(sum=sum):
            assert add(1, 2) == sum


class Parts(unittest.TestCase):
    def test_parts(self):
        for sum in (3, 4):
            with self.subTest(sum=sum):
                self.assertEqual(add(1, 2), sum)
"""
    task = small_task(tmp_path / "task", scripts=(script("test_parts.py", content),))
    result = grade(task, tmp_path, {"calc.py": SOLVED})
    assert statuses(result) == {
        "test_after": "error",
        "test_parts": "failed",
        "test_good_parts": "passed",
        "Parts::test_parts": "failed",
    }
    assert (result.outcome, result.findings) == (CodingOutcome.PARTLY, ())


def test_processes_that_outlive_a_test_are_dead_before_the_next_one(tmp_path: Path) -> None:
    source = f"""
import subprocess
subprocess.Popen(["sleep", "1000"], start_new_session=True)
{SOLVED}
"""
    lonely = """\
import os


def test_alone():
    lines = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with open(f"/proc/{name}/cmdline", "rb") as file:
                lines.append(file.read())
    assert not any(line.startswith(b"sleep") for line in lines)
"""
    scripts = (*ADDS, script("test_lonely.py", lonely))
    result = grade(
        small_task(tmp_path / "task", scripts=scripts), tmp_path, {"calc.py": source}
    )
    assert result.outcome == CodingOutcome.SOLVED
    assert names(result) == ["left_processes"]


def test_hidden_tests_are_not_in_the_repository(tmp_path: Path) -> None:
    content = f"""\
import os
{TEST_ADD}

def test_place():
    assert sorted(os.listdir()) == [".git", "calc.py"]
"""
    task = small_task(tmp_path / "task", scripts=(script("deep/er/test_add.py", content),))
    assert grade(task, tmp_path, {"calc.py": SOLVED}).outcome == CodingOutcome.SOLVED


def test_new_files_do_not_shadow_modules_and_original_files_may(tmp_path: Path) -> None:
    # Both names are installed here; one is in the standard library.
    content = """\
import json
import certifi
import idna


def test_own():
    assert idna.WHO == "the repository"


def test_others():
    assert not hasattr(certifi, "WHO") and not hasattr(json, "WHO")
"""
    who = "WHO = 'the repository'\n"
    task = small_task(
        tmp_path / "task",
        files={"idna.py": "", "src/inner.py": who},
        scripts=(script("test_names.py", content),),
    )
    files = {"idna.py": who, "certifi.py": who, "json.py": who}
    assert grade(task, tmp_path, files).outcome == CodingOutcome.SOLVED


def test_shell_scripts_fixtures_and_task_files_work(tmp_path: Path) -> None:
    fixture = "import pytest\n\n\n@pytest.fixture\ndef three():\n    return 3\n"
    uses = """\
import os
from pathlib import Path
from calc import add


def test_adds(three):
    assert add(1, 2) == three == int((Path(__file__).parent / "three.txt").read_text())
    assert os.environ["FLAVOUR"] == "sweet"
"""
    shell = "[ \"$(python -c 'import calc; print(calc.double(4))')\" = 8 ]\n"
    task = small_task(
        tmp_path / "task",
        scripts=(
            script("conftest.py", fixture),
            script("test_add.py", uses),
            script("run.sh", shell),
            script("fails.sh", "echo it is wrong; exit 3\n", "fails"),
        ),
        environment={"FLAVOUR": "sweet"},
    )
    task = replace(task, evaluation_files={"three.txt": b"3"})
    result = grade(task, tmp_path, {"calc.py": SOLVED})
    assert statuses(result) == {"test_adds": "passed", "run.sh": "passed", "fails.sh": "failed"}
    assert result.tests[-1].message == "exit code 3: it is wrong"
    assert result.total_score == 0.5


METRICS = """\
import json
import os
from calc import add

with open(os.environ["ASSAY_RESULT"], "w") as file:
    file.write(json.dumps({"standard_metrics": {"total_score": add(1, 2) / 4},
                           "custom_metrics": {"lines": 6, "odd": float("nan"), "name": "x"}}))
"""


def test_metrics_are_kept_and_score_a_task_without_tests(tmp_path: Path) -> None:
    task = small_task(tmp_path / "task", scripts=(), metrics=METRICS)
    result = grade(task, tmp_path, {"calc.py": SOLVED})
    assert (result.outcome, result.total_score) == (CodingOutcome.PARTLY, 0.75)
    assert result.standard_metrics == {"total_score": 0.75}
    assert result.custom_metrics == {"lines": 6.0}
    assert [finding for finding in result.findings if finding.name == "metric_refused"] == [
        ("metric_refused", "metrics.py: custom_metrics: 'odd' is not a finite number: nan"),
        ("metric_refused", "metrics.py: custom_metrics: 'name' is not a finite number: 'x'"),
    ]


def test_metrics_do_not_score_a_task_with_tests(tmp_path: Path) -> None:
    task = small_task(
        tmp_path / "task", scripts=ADDS, metrics="raise SystemExit('no numbers')\n"
    )
    result = grade(task, tmp_path, {"calc.py": SOLVED})
    assert (result.outcome, result.total_score) == (CodingOutcome.SOLVED, 1)
    assert result.findings == (
        ("metrics_failed", "metrics.py: it ended with exit code 1: no numbers"),
    )


def test_patch_is_graded_without_a_sandbox(tmp_path: Path) -> None:
    task = small_task(tmp_path / "task")
    patch = read_patch(task, tmp_path / "agent", {"calc.py": SOLVED})
    result = asyncio.run(
        grade_patch(
            task,
            patch.diff,
            UnprotectedBackend(),
            folder=tmp_path / "grading",
            limits=LIMITS,
            timeout_s=30,
        )
    )
    assert (result.outcome, result.total_score) == (CodingOutcome.SOLVED, 1)


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda folder: folder.name)
def test_reference_patch_of_each_sample_scores_1(folder: Path, tmp_path: Path) -> None:
    task = load_task(folder)
    assert task.reference_patch is not None
    result = asyncio.run(
        grade_patch(
            task,
            task.reference_patch,
            BubblewrapBackend(),
            folder=tmp_path / "grading",
            limits=LIMITS,
            timeout_s=60,
        )
    )
    assert (result.outcome, result.total_score) == (CodingOutcome.SOLVED, 1)
    assert result.findings == ()
    # Its tests patch parts of the program, which needs the same process.
    loads_it = folder.name == "refactor-report"
    assert result.mode == ("in-process" if loads_it else "separate")


# Before the tests run


def test_missing_pytest_is_reported_with_the_install_command(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from assay.bench.grading.grade import check_gradable
from assay.bench.tasks import load_task
from assay.errors import UsageError
from tests.bench.benching import small_task
sys.path[:] = [path for path in sys.path if "site-packages" not in path]
try:
    check_gradable(small_task(Path({str(tmp_path)!r})))
except UsageError as error:
    print(error)
"""
    end = run_python("-c", program, folder=Path(__file__).parents[2])
    assert "the tests of task 'calc' need pytest" in end.output
    assert "pip install '.[bench]'" in end.output


def test_task_without_any_scoring_is_rejected(tmp_path: Path) -> None:
    rubrics = (Rubric(id="style", criterion="it reads well"),)
    task = small_task(tmp_path / "task", scripts=(), rubrics=rubrics)
    with pytest.raises(UsageError, match="task 'calc' cannot be scored"):
        check_gradable(task)


def test_script_with_invalid_python_is_rejected(tmp_path: Path) -> None:
    task = small_task(tmp_path / "task", scripts=(script("test_x.py", "def test_x(:\n"),))
    with pytest.raises(UsageError, match=r"'test_x\.py' is not Python: .* correct the task"):
        check_gradable(task)
