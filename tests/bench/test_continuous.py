"""The script for a scheduler: dated, locked against itself, with the exit code of its work."""

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
    """A folder with a stand-in for the program on its path."""

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
            pytest.skip(f"there is no {tool} here")
    return Night(tmp_path)


@pytest.mark.extras
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="there is no shellcheck here")
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.extras
@pytest.mark.skipif(shutil.which("actionlint") is None, reason="there is no actionlint here")
def test_actionlint_finds_nothing_in_the_workflow() -> None:
    done = subprocess.run(
        ["actionlint", EXAMPLES / "benchmark.yml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_it_runs_and_sums_up_and_its_log_has_the_date(night: Night) -> None:
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


def test_with_a_reference_it_fails_if_an_arm_became_worse(night: Night) -> None:
    code, _ = night.run(TAGGED="1", COMPARE_CODE="1")
    assert code == 1
    assert night.calls[-1] == (
        "bench compare reference my_benchmark --fail-if-worse --data-dir data"
    )


@pytest.mark.parametrize(("code", "calls"), [("3", 2), ("1", 1), ("130", 1)])
def test_its_exit_code_is_that_of_the_run(night: Night, code: str, calls: int) -> None:
    assert night.run(RUN_CODE=code, TAGGED="1")[0] == int(code)
    assert len(night.calls) == calls


def test_two_at_once_are_one(night: Night) -> None:
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


def test_a_lock_ends_with_a_script_that_was_killed(night: Night) -> None:
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


def test_a_configuration_without_a_name_is_refused(night: Night) -> None:
    (night.folder / "night.toml").write_text("parallel = 2\n", "utf-8")
    code, output = night.run()
    assert code == 2
    assert "has no line such as name" in output
    assert night.calls == []
