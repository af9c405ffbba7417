"""User code that exits, hangs, floods the output or changes the folder is always reported."""

import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from assay.api.run_preparation import prepare
from assay.api.runs import run
from assay.errors import UsageError
from assay.runs.run import RunResult
from assay.store.load import load_session
from assay.store.store import Store

from .programs import Program

pytestmark = pytest.mark.usefixtures("compiled_engine")

HOOK = """
import asyncio, os, sys, threading, time
from assay.metrics import BaseHook, hook

@hook
class Mine(BaseHook):
    def on_turn(self, played):
        {body}
        return ()
"""
METRIC = """
import os, sys, time
import assay

@assay.metric
def mine(episode):
    {body}
    return 1.0
"""
RUN = ("--models", "builtin/noop", "--no-baselines", "--episodes", "1", "--max-turns", "3")


@pytest.fixture
def in_folder(tmp_path: Path) -> Iterator[None]:
    with chdir(tmp_path):
        yield


def play(body: str, notices: list[str], **more: Any) -> RunResult:
    """Run with relative paths and a hook with this body."""
    Path("mine.py").write_text(HOOK.format(body=body), "utf-8")
    return run(
        **{
            "models": ["builtin/noop"],
            "baselines": False,
            "episodes": 1,
            "max_turns": 3,
            "hooks": ["mine.py"],
            "database": "traces.duckdb",
            "traces_dir": "files",
            "notice": notices.append,
            **more,
        }
    )


@pytest.mark.extras
@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param("sys.exit(0)", "mine.py:8: SystemExit: 0", id="sys.exit"),
        pytest.param("raise GeneratorExit", "mine.py:8: GeneratorExit", id="GeneratorExit"),
        pytest.param("raise asyncio.CancelledError", "CancelledError", id="CancelledError"),
        pytest.param("raise KeyboardInterrupt", "KeyboardInterrupt", id="KeyboardInterrupt"),
        pytest.param("time.sleep(1000)", "longer than 1 s, at mine.py:8", id="sleep"),
        pytest.param("while True: pass", "longer than 1 s, at mine.py:8", id="loop"),
    ],
)
def test_hook_that_exits_or_hangs_fails_its_episode_by_name(body: str, reason: str) -> None:
    result = play(body, [], decision_limit=1.0)
    assert result.status == "finished"
    (row,) = result.episodes
    assert row.state == "failure"
    with Store(Path("traces.duckdb")).reading() as connection:
        end = load_session(connection, row.session_id).end
    assert end is not None
    assert end.error is not None
    assert reason in end.error.message


@pytest.mark.extras
@pytest.mark.usefixtures("in_folder")
def test_hook_that_changes_the_folder_or_floods_the_output_changes_nothing(
    tmp_path: Path,
) -> None:
    notices: list[str] = []
    result = play("os.chdir('/'); print('x' * 10_000_000)", notices)
    assert [row.state for row in result.episodes] == ["result"]
    assert (tmp_path / "traces.duckdb").exists()
    assert list((tmp_path / "files").glob("*/*.json"))
    assert sum(map(len, notices)) < 10_000
    assert "a hook printed more, which is not shown" in notices


@pytest.mark.extras
@pytest.mark.usefixtures("in_folder")
def test_a_metric_that_hangs_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.py").write_text(METRIC.format(body="time.sleep(1000)"), "utf-8")
    notices: list[str] = []
    result = play("pass", notices, metrics_from="metrics.py", decision_limit=1.0)
    assert result.status == "finished"
    assert any(
        "'mine' took longer than 1 s" in line and "metrics.py:7" in line for line in notices
    )


@pytest.mark.usefixtures("in_folder")
def test_user_files_cannot_exit_the_program_while_loading() -> None:
    for code in ("import os; os._exit(0)", "raise GeneratorExit", "import sys; sys.exit(0)"):
        Path("loaded.py").write_text(code, "utf-8")
        with pytest.raises(UsageError, match=r"loaded.py:1: (SystemExit|GeneratorExit) while"):
            prepare({"hooks": ["loaded.py"]})
    Path("loaded.py").write_text(HOOK.format(body="pass") + "os.chdir('/')\n", "utf-8")
    before = os.getcwd()
    prepare({"hooks": ["loaded.py"]})
    assert os.getcwd() == before


@pytest.mark.extras
def test_os_exit_in_a_hook_or_metric_is_never_a_success(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HOOK.format(body="os._exit(0)"), "utf-8")
    (tmp_path / "metrics.py").write_text(METRIC.format(body="os._exit(0)"), "utf-8")
    program = Program(tmp_path, "run", *RUN, "--hooks", "mine.py")
    assert program.wait() == 1
    assert "mine.py:8: SystemExit: 0" in program.errors
    program = Program(tmp_path, "run", *RUN, "--metrics-from", "metrics.py")
    assert program.wait() == 0
    assert "metrics.py:7: metric 'mine'" in program.errors
    assert "Unfinished" not in program.output


@pytest.mark.extras
def test_two_ctrl_c_stop_any_user_code(tmp_path: Path) -> None:
    body = "open('begun', 'w'); time.sleep(10**6)"
    (tmp_path / "metrics.py").write_text(METRIC.format(body=body), "utf-8")
    arguments = ("run", *RUN, "--metrics-from", "metrics.py", "--decision-limit", "1000")
    program = Program(tmp_path, *arguments)
    program.until((tmp_path / "begun").exists, "the metric")
    program.interrupt()
    program.until(lambda: "again to quit now" in program.errors, "its word")
    program.interrupt()
    assert program.wait() == 130
    notices = program.errors + program.output
    assert "assay run --resume" in notices
    run_id = notices.partition("--resume ")[2].split()[0]
    again = Program(tmp_path, *arguments, "--dry-run")
    assert again.wait() == 0
    assert run_id in again.output, "nothing was lost"
