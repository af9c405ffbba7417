"""The script for a scheduler: a dated log, a lock, and the exit code of the run."""

import os
import shutil
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "bench"
SCRIPT = EXAMPLES / "nightly.sh"

STAND_IN = """#!/usr/bin/env bash
echo "$@" >> "$CALLS"
case "$2" in
  run) if [[ -n ${HOLD:-} ]]; then
         touch "$HOLD.begun"
         while [[ ! -e $HOLD ]]; do sleep 0.05; done
       fi
       exit "${RUN_CODE:-0}" ;;
  compare) exit "${COMPARE_CODE:-0}" ;;
  summarize) [[ $3 != reference || -n ${TAGGED:-} ]] || exit 2 ;;
esac
"""


class Night:
    """A folder with a stub of `assay` on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        stand_in = folder / "bin" / "assay"
        stand_in.write_text(STAND_IN, "utf-8")
        stand_in.chmod(0o755)
        (folder / "night.toml").write_text('# first\nname = "my_benchmark"\n', "utf-8")

    def start(self, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [SCRIPT, "night.toml"],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "CALLS": str(self.folder / "calls"),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, **variables: str) -> tuple[int, str]:
        process = self.start(**variables)
        output, _ = process.communicate(timeout=30)
        return process.returncode, output

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text("utf-8").splitlines() if file.exists() else []


@pytest.fixture
def night(tmp_path: Path) -> Night:
    for tool in ("bash", "flock"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    return Night(tmp_path)


@pytest.mark.extras
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.extras
@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing_in_the_workflow() -> None:
    done = subprocess.run(
        ["actionlint", EXAMPLES / "benchmark.yml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_script_runs_summarizes_and_writes_a_dated_log(night: Night) -> None:
    code, output = night.run()
    assert code == 0
    assert night.calls == [
        "bench run night.toml --data-dir data",
        "bench summarize my_benchmark --latest --data-dir data",
        "bench summarize reference --quiet --data-dir data",
    ]
    (log,) = (night.folder / "data" / "nightly").glob("*.log")
    assert log.stem == f"{datetime.now(UTC):%Y%m%d}"
    assert log.read_text("utf-8") == output


def test_script_fails_if_an_arm_is_worse_than_the_reference(night: Night) -> None:
    code, _ = night.run(TAGGED="1", COMPARE_CODE="1")
    assert code == 1
    assert night.calls[-1] == (
        "bench compare reference my_benchmark --fail-if-worse --data-dir data"
    )


@pytest.mark.parametrize(("code", "calls"), [("3", 2), ("1", 1), ("130", 1)])
def test_script_returns_the_exit_code_of_the_run(night: Night, code: str, calls: int) -> None:
    assert night.run(RUN_CODE=code, TAGGED="1")[0] == int(code)
    assert len(night.calls) == calls


def test_second_script_exits_while_the_first_runs(night: Night) -> None:
    hold = night.folder / "hold"
    first = night.start(HOLD=str(hold))
    deadline = time.monotonic() + 30
    while not hold.with_name("hold.begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    code, output = night.run()
    assert code == 75
    assert "another one is running" in output
    assert len(night.calls) == 1
    hold.touch()
    first.communicate(timeout=30)
    assert first.returncode == 0
    assert night.run()[0] == 0


def test_lock_is_released_if_the_script_is_killed(night: Night) -> None:
    hold = night.folder / "hold"
    first = night.start(HOLD=str(hold))
    deadline = time.monotonic() + 30
    while not hold.with_name("hold.begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.kill()
    hold.touch()
    first.communicate(timeout=30)
    assert night.run()[0] == 0


def test_configuration_without_a_name_is_rejected(night: Night) -> None:
    (night.folder / "night.toml").write_text("parallel = 2\n", "utf-8")
    code, output = night.run()
    assert code == 2
    assert "has no line such as name" in output
    assert night.calls == []
