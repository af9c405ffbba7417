"""Temporary provider failures change no result; a run can wait for a provider that is down."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.api.servers import serve_models
from assay.models.serving.faults import Faults
from tests.support import free_port

from .programs import Program, run_arguments, until
from .remote import assert_same_run, play, total, with_short_timeouts
from .tables import rows, sessions

pytestmark = pytest.mark.usefixtures("compiled_engine")

FAULTS = Faults(
    error_rate=0.05,
    busy_rate=0.05,
    cut_rate=0.05,
    malformed_rate=0.05,
    late_rate=0.05,
    late_seconds=0.1,
)
FAILED = ("error", "busy", "cut", "malformed")


@contextmanager
def serving(folder: Path, port: int, *more: str) -> Iterator[Program]:
    """Run `assay serve-models` as a process, killed at the end."""
    folder.mkdir(exist_ok=True)
    program = Program(folder, "serve-models", "--port", str(port), *more)
    printed = folder / "stdout"
    until(lambda: printed.exists() and "serving" in program.output, "the server")
    try:
        yield program
    finally:
        program.kill()


def arguments_for(folder: Path, port: int, *more: str, pause: float = 0.01) -> list[str]:
    folder.mkdir(exist_ok=True)
    where = ("--openai-base-url", f"http://127.0.0.1:{port}/v1", "--run-id", "same")
    return run_arguments(folder, "--models", "builtin/random", *where, *more, pause=pause)


def played_in_process(folder: Path) -> None:
    folder.mkdir()
    program = Program(folder, *run_arguments(folder, "--run-id", "same", pause=0))
    assert program.wait() == 0, program.errors


@pytest.mark.extras
def test_faults_change_no_turn_of_any_episode(tmp_path: Path) -> None:
    more = {"episodes": 6, "max_turns": 12}
    play(tmp_path / "plain", None, **more)
    with serve_models(port=0, faults=FAULTS) as server:
        result = play(tmp_path / "faulty", server.base_url, **more)
        stats = server.stats()
    outcomes = stats["outcomes"]
    assert all(outcomes[name] for name in (*FAILED, "late")), outcomes
    (tally,) = result.tallies.values()
    assert (tally.results, tally.retries) == (6, 0)
    assert_same_run(tmp_path / "plain", tmp_path / "faulty")

    database = tmp_path / "faulty" / "traces.duckdb"
    assert total(database, "sum(retries)") == sum(outcomes[name] for name in FAILED)
    calls = Counter(
        (row["session_id"], row["turn"])
        for row in rows(database, "events")
        if row["event_type"] == "cais"
    )
    assert set(calls.values()) == {1}
    assert len(calls) == sum(row.turns for row in result.episodes)
    # Answered calls were not repeated.
    assert stats["answered_again"] == 0


@pytest.mark.extras
@pytest.mark.parametrize("seed", range(3))
def test_many_more_faults_change_nothing_either(tmp_path: Path, seed: int) -> None:
    faults = Faults(
        error_rate=0.15, busy_rate=0.05, cut_rate=0.15, malformed_rate=0.05, seed=seed
    )
    more = {"models": ("builtin/random",), "episodes": 8, "max_turns": 8}
    play(tmp_path / "plain", None, **more)
    with serve_models(port=0, faults=faults) as server:
        result = play(tmp_path / "faulty", server.base_url, **more)
    assert [tally.results for tally in result.tallies.values()] == [8]
    assert_same_run(tmp_path / "plain", tmp_path / "faulty")


@pytest.mark.extras
@pytest.mark.parametrize("seconds", [1, pytest.param(30, marks=pytest.mark.extras)])
def test_run_waits_for_a_server_that_is_down(tmp_path: Path, seconds: int) -> None:
    port = free_port()
    with serving(tmp_path / "server", port):
        program = Program(tmp_path / "served", *arguments_for(tmp_path / "served", port))
        program.until(lambda: program.turns >= 20, "some turns")
    at = program.turns
    time.sleep(seconds)
    assert program.alive
    # Turns in progress end; no other turn can start.
    assert program.turns <= at + 4
    with serving(tmp_path / "server", port):
        assert program.wait() == 0, program.errors
    played_in_process(tmp_path / "plain")
    assert_same_run(tmp_path / "plain", tmp_path / "served")
    assert total(tmp_path / "served" / "traces.duckdb", "sum(retries)") > 0


@pytest.mark.extras
def test_run_exits_with_3_if_the_server_stays_down_and_can_be_resumed(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "served"
    arguments = arguments_for(folder, port)
    with serving(tmp_path / "server", port):
        program = Program(folder, *arguments, main=with_short_timeouts)
        program.until(lambda: program.turns >= 20, "some turns")
    assert program.wait() == 3, program.errors
    assert "assay run --resume same --database traces.duckdb" in program.output
    stored = rows(folder / "traces.duckdb", "session_traces")
    assert {row["state"] for row in stored} == {"infrastructure"}
    assert {row["error_type"] for row in stored} == {"ModelUnavailable"}
    assert all("could not be reached" in row["error_message"] for row in stored)

    resumed = ("run", "--resume", "same", "--database", "traces.duckdb")
    away = Program(folder, *resumed, main=with_short_timeouts)
    assert away.wait() == 2, away.errors
    assert "connection refused" in away.errors
    with serving(tmp_path / "server", port):
        again = Program(folder, *resumed)
        assert again.wait() == 0, again.errors
    assert sessions(folder / "traces.duckdb", "same") == 4
    played_in_process(tmp_path / "plain")
    assert_same_run(tmp_path / "plain", folder)


@pytest.mark.extras
def test_second_interrupt_stops_waiting_for_the_server(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "served"
    with serving(tmp_path / "server", port):
        program = Program(folder, *arguments_for(folder, port))
        program.until(lambda: program.turns >= 20, "some turns")
    program.interrupt()
    program.until(lambda: "again to quit now" in program.errors, "its word")
    program.interrupt()
    assert program.wait() == 130, program.errors
    with serving(tmp_path / "server", port):
        again = Program(folder, *arguments_for(folder, port))
        assert again.wait() == 0, again.errors
    played_in_process(tmp_path / "plain")
    assert_same_run(tmp_path / "plain", folder)
