"""A fresh checkout needs only python3 and make, and reports what is missing."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.cli import app

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the files that installing needs into a path with a blank."""
    fresh = tmp_path / "fresh clone"
    fresh.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, fresh)
    shutil.copytree(ROOT / "src", fresh / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return fresh


def outside_make() -> dict[str, str]:
    """Return the environment without the variables of a `make` that runs the tests."""
    own = ("OPTIONS", "PYTHON", "VENV")
    return {
        name: value
        for name, value in os.environ.items()
        if "MAKE" not in name and name not in own
    }


def make(where: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", f"PYTHON={sys.executable}", *arguments],
        cwd=where,
        env={**outside_make(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error line of a failed `make`, without make's own last line."""
    assert done.returncode == 2
    line, last = done.stderr.splitlines()
    assert last.startswith("make: ***")
    return line


def test_make_without_a_target_lists_the_targets(checkout: Path) -> None:
    text = make(checkout).stdout
    assert all(f"make {word} " in text for word in ("demo", "test", "check", "perf"))
    assert not (checkout / ".venv").exists()


def test_a_python_without_ensurepip_is_reported_with_the_fix(checkout: Path) -> None:
    crippled = checkout / "crippled"
    crippled.mkdir()
    (crippled / "ensurepip.py").write_text("raise ImportError('as Debian ships it')\n")
    line = only_line(make(checkout, "install", PYTHONPATH=str(crippled)))
    assert "lacks venv or ensurepip" in line
    assert "install" in line.partition(";")[2]


def test_a_too_old_python_is_reported_with_the_required_version(checkout: Path) -> None:
    old = checkout / "old"
    old.mkdir()
    (old / "sitecustomize.py").write_text("import sys; sys.version_info = (3, 10, 0)\n")
    line = only_line(make(checkout, "install", PYTHONPATH=str(old)))
    assert "needs Python 3.11 or newer" in line


def test_a_missing_python_is_reported_by_name(checkout: Path) -> None:
    line = only_line(make(checkout, "install", "PYTHON=python-of-nowhere"))
    assert "'python-of-nowhere' was not found" in line


def test_the_commands_of_the_demo_parse(checkout: Path) -> None:
    lines = make(checkout, "--dry-run", "demo").stdout.splitlines()
    commands = [line for line in lines if line.startswith(".venv/bin/assay ")]
    assert len(commands) == 2
    for command in commands:
        app.parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


@pytest.mark.extras
def test_a_fresh_checkout_installs_once_and_shows_its_demo_twice(checkout: Path) -> None:
    for turn in ("first", "second"):
        done = make(checkout, "demo", ASSAY_CACHE_DIR=str(checkout / "cache"))
        assert done.returncode == 0, done.stderr
        titles = ("PERFORMANCE SUMMARY", "INVALID ACTION ANALYSIS", "ACHIEVEMENT ANALYSIS")
        assert all(title in done.stdout for title in (*titles, "MODEL RANKINGS"))
        assert ("installing assay" in done.stdout) == (turn == "first")
        assert len(f"{done.stdout}{done.stderr}".splitlines()) <= 60
        assert (checkout / "demo" / "best.gif").exists()


def test_the_output_of_pip_is_shown_if_it_fails(checkout: Path) -> None:
    done = make(checkout, "install", PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert done.returncode == 2
    assert "installing assay" in done.stdout
    assert "ERROR: " in done.stderr
    assert "pip could not install into .venv" in done.stderr
    assert not (checkout / ".venv" / "installed").exists()


PARTS = (
    "check",
    "perf-quick",
    *(f"test-{name}" for name in ["extras", "local", "bench", "docker", "ray", "mettagrid"]),
)
READY = "install programs:\n\t@true\n"


@pytest.fixture
def ci(tmp_path: Path) -> Path:
    """Copy the CI script to a folder where a test writes the Makefile."""
    (tmp_path / ".ci").mkdir()
    return Path(shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci"))


def ci_run(script: Path, makefile: str) -> subprocess.CompletedProcess[str]:
    (script.parents[1] / "Makefile").write_text(READY + makefile)
    return subprocess.run(
        [script], env=outside_make(), capture_output=True, text=True, check=False
    )


def summary(done: subprocess.CompletedProcess[str]) -> list[str]:
    return done.stdout.partition("== summary\n")[2].splitlines()


def test_ci_runs_every_part_and_prints_their_times(ci: Path) -> None:
    done = ci_run(ci, f"test {' '.join(PARTS)}:\n\t@echo all of $@, $(OPTIONS)\n")
    assert done.returncode == 0, done.stderr
    *lines, total, not_run = summary(done)
    words = ("install", "programs", "newcomer", *PARTS)
    assert sorted(line.split(" s  ")[1] for line in lines) == sorted(words)
    assert {line.split()[0] for line in lines} == {"passed"}
    assert total.startswith("total ")
    assert not_run == "not run: make demo, make perf"
    assert all(f"all of {word}, --durations=25\n" in done.stdout for word in ("test", *PARTS))


def test_ci_continues_after_a_failure_and_lists_skipped_parts(ci: Path) -> None:
    passing = f"test {' '.join(PARTS[1:])}:\n\t@echo 'SKIPPED [1] a.py:3: no $@'\n"
    done = ci_run(ci, f"{passing}check:\n\t@false\n")
    assert done.returncode == 1
    lines = summary(done)
    assert [line.split()[-1] for line in lines if line.startswith("FAILED")] == ["check"]
    assert sum(line.startswith("passed") for line in lines) == 10
    assert "  newcomer: SKIPPED [1] a.py:3: no test" in lines
    assert "  test-ray: SKIPPED [1] a.py:3: no test-ray" in lines


def test_parts_run_in_parallel_and_print_their_output_in_one_piece(ci: Path) -> None:
    # Each waits for the other, so they would never end if run in sequence.
    meet = "@touch $@; while [ ! -e {} ]; do sleep 0.1; done; seq 5000 | sed 's/^/$@ /'"
    done = ci_run(
        ci,
        f"check:\n\t{meet.format('test')}\ntest:\n\t{meet.format('check')}\n"
        f"{' '.join(PARTS[1:])}:\n\t@true\n",
    )
    assert done.returncode == 0, done.stderr
    for word in ("check", "test"):
        assert "\n".join(f"{word} {number}" for number in range(1, 5001)) in done.stdout


def test_the_newcomer_part_has_git_and_make_and_no_other_programs(
    ci: Path,
) -> None:
    hidden = "bwrap docker dockerd runc chromium node npm uv ray strace pytest"
    has = "@for name in git make python3 {}; do command -v $$name; done; echo $(PYTHON) $(VENV)"
    done = ci_run(ci, f"test:\n\t{has.format(hidden)}\n{' '.join(PARTS)}:\n\t@true\n")
    lines = done.stdout.partition("== newcomer: passed")[2].partition("\n==")[0].splitlines()
    assert [Path(line).name for line in lines[1:-1]] == ["git", "make", "python3"]
    python, folder = lines[-1].split()
    assert Path(python).is_absolute()
    assert folder == ".venv-newcomer"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_parts_and_shows_their_progress(
    ci: Path, number: signal.Signals
) -> None:
    sleeper = "@echo $@ is busy; echo $$$$ >$@.pid; exec sleep 600"
    (ci.parents[1] / "Makefile").write_text(f"{READY}check test:\n\t{sleeper}\n")
    files = [ci.parents[1] / f"{word}.pid" for word in ("check", "test")]
    with subprocess.Popen(
        [ci], env=outside_make(), stdout=subprocess.PIPE, text=True
    ) as process:
        while not all(file.exists() and file.read_text() for file in files):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        output = process.communicate()[0]
    assert process.returncode == 130
    assert "check is busy" in output
    assert "test is busy" in output
    for file in files:
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)


WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def test_the_workflow_runs_the_contributors_commands_on_every_python() -> None:
    text = WORKFLOW.read_text("utf-8")
    assert re.findall(r"run: (make .*)$", text, re.MULTILINE) == [
        "make check PYTHON=python",
        "make test PYTHON=python",
    ]
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert "Python 3.11.2 (Debian 12), 3.12 and 3.13 must work." in page
    assert 'python: ["3.11", "3.12", "3.13"]' in text


@pytest.mark.extras
@pytest.mark.skipif(shutil.which("actionlint") is None, reason="there is no actionlint here")
def test_actionlint_accepts_the_workflow() -> None:
    done = subprocess.run(["actionlint", WORKFLOW], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
