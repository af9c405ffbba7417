"""A fresh checkout needs nothing but python3 and make, and says so where that is missing."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.cli import app

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a fresh clone has, as far as installing needs it, in a path with a blank."""
    fresh = tmp_path / "fresh clone"
    fresh.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, fresh)
    shutil.copytree(ROOT / "src", fresh / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return fresh


def make(where: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # A `make` that runs the tests hands its own level and flags on.
    clean = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    return subprocess.run(
        ["make", f"PYTHON={sys.executable}", *arguments],
        cwd=where,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a failed `make` said, without its own last word."""
    assert done.returncode == 2
    line, last = done.stderr.splitlines()
    assert last.startswith("make: ***")
    return line


def test_make_alone_tells_what_there_is(checkout: Path) -> None:
    text = make(checkout).stdout
    assert all(f"make {word} " in text for word in ("demo", "test", "check", "perf"))
    assert not (checkout / ".venv").exists()


def test_a_python_without_ensurepip_is_told_how_to_get_it(checkout: Path) -> None:
    crippled = checkout / "crippled"
    crippled.mkdir()
    (crippled / "ensurepip.py").write_text("raise ImportError('as Debian ships it')\n")
    line = only_line(make(checkout, "install", PYTHONPATH=str(crippled)))
    assert "lacks venv or ensurepip" in line
    assert "install" in line.partition(";")[2]


def test_a_python_that_is_too_old_is_told_which_is_needed(checkout: Path) -> None:
    old = checkout / "old"
    old.mkdir()
    (old / "sitecustomize.py").write_text("import sys; sys.version_info = (3, 10, 0)\n")
    line = only_line(make(checkout, "install", PYTHONPATH=str(old)))
    assert "needs Python 3.11 or newer" in line


def test_a_python_that_is_missing_is_told_by_name(checkout: Path) -> None:
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
    first = make(checkout, "install")
    assert first.returncode == 0, first.stderr
    started = time.monotonic()
    assert make(checkout, "install").returncode == 0
    assert time.monotonic() - started < 2
    for _ in range(2):
        done = make(checkout, "demo")
        assert done.returncode == 0, done.stderr
        assert "By average reward" in done.stdout
        assert (checkout / "demo" / "best.gif").exists()


def ci_run(where: Path, makefile: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script where `make` does what the given file says."""
    (where / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", where / ".ci")
    (where / "Makefile").write_text(makefile)
    script = str(where / ".ci" / "run")
    return subprocess.run([script], capture_output=True, text=True, check=False)


def test_ci_runs_every_part_and_tells_their_times(tmp_path: Path) -> None:
    parts = ["", "-extras", "-local", "-bench", "-docker", "-ray", "-mettagrid"]
    words = ["check", *(f"test{part}" for part in parts)]
    done = ci_run(tmp_path, f"{' '.join(words)}:\n\t@echo all of $@\n")
    assert done.returncode == 0
    summary = done.stdout.partition("== summary\n")[2].splitlines()
    assert [line.split()[0] for line in summary] == [*["passed"] * 8, "total", "not"]
    assert [line.split(" s  ")[1] for line in summary[:8]] == [f"make {word}" for word in words]


def test_ci_goes_on_after_a_failure_fails_and_lists_what_was_skipped(tmp_path: Path) -> None:
    makefile = "check test-extras:\n\t@echo 'SKIPPED [1] a.py:3: no $@'\ntest:\n\t@false\n"
    done = ci_run(tmp_path, makefile)
    assert done.returncode == 1
    summary = done.stdout.partition("== summary\n")[2].splitlines()
    assert [line.split()[0] for line in summary[:3]] == ["passed", "FAILED", "passed"]
    assert summary[-2:] == [
        "  SKIPPED [1] a.py:3: no check",
        "  SKIPPED [1] a.py:3: no test-extras",
    ]
