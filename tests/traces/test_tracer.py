"""A loop of one's own, recorded; and what is left when its process dies."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError
from assay.traces import SessionTracer, Store, ingest_leftovers
from assay.traces.folder import RunFolder, journal_root
from assay.traces.journal import Journal
from assay.traces.queries import committed_sessions, episodes
from assay.types import TrialState, Usage
from tests.traces.sessions import make_run, make_session
from tests.traces.test_journal import write

DIES = """
import os, signal, sys
from assay.traces import SessionTracer
with SessionTracer(sys.argv[1], name="loop", task="maze", seed=1, run_id="r") as tracer:
    tracer.message({"role": "user", "content": "where to?"})
    tracer.call({"role": "assistant", "content": "north"})
    tracer.step("north", reward=1.0)
    tracer.call({"role": "assistant", "content": "east"})
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "a.duckdb"


def test_a_loop_becomes_a_session(database: Path) -> None:
    with SessionTracer(
        database, name="my loop", task="maze", seed=7, subject="walker"
    ) as tracer:
        tracer.message({"role": "user", "content": "where to?"})
        tracer.call(
            {"role": "assistant", "content": "north, then jump"},
            usage=Usage(prompt=10, completion=3),
            cost_usd=0.5,
            asked=["north", "jump"],
        )
        assert tracer.step("north", reward=1.0, unlocked=["door"], digest="ab") == 1
        tracer.hook("opened", code="D", priority=2, which="left")
        tracer.message({"role": "user", "content": "a door"})
        tracer.turn(asked=["jump"], unknown=["jump"])
        tracer.outcome("score", 3)
    with Store(database).reading() as connection:
        (row,) = episodes(connection)
        assert (row.model, row.seed, row.experiment_name) == ("walker", 7, "my loop v1.0")
        assert (row.turns, row.steps, row.reward, row.unknown_actions) == (2, 1, 1.0, 1)
        assert row.achievements == {"door": 1}
        assert (row.cost_usd, row.state) == (0.5, TrialState.RESULT)
        assert connection.execute("SELECT metric, value FROM outcomes").fetchall() == [
            ("score", 3.0)
        ]
        assert connection.execute(
            "SELECT hook_name, step, data->>'which' FROM hook_results"
        ).fetchall() == [("opened", 1, "left")]
        assert connection.execute(
            "SELECT m.text, t.step_index FROM messages m LEFT JOIN session_timesteps t "
            "ON t.id = m.timestep_id ORDER BY position"
        ).fetchall() == [("where to?", None), ("north, then jump", 1), ("a door", 1)]
        assert connection.execute("SELECT status FROM runs").fetchall() == [("finished",)]
    assert not journal_root(database).exists()


def test_steps_without_turns_are_turns_of_their_own(database: Path) -> None:
    with SessionTracer(database, name="loop", task="maze") as tracer:
        for number in range(3):
            tracer.step("go", reward=number)
    with Store(database).reading() as connection:
        (row,) = episodes(connection)
        assert (row.turns, row.steps, row.actions_asked, row.reward) == (3, 3, 3, 3.0)


def test_a_loop_that_raises_is_a_failure_and_the_error_goes_on(database: Path) -> None:
    def play() -> None:
        with SessionTracer(database, name="loop", task="maze") as tracer:
            tracer.step("go")
            tracer.outcome("score", 1.0)
            raise KeyError("no such door")

    with pytest.raises(KeyError, match="no such door"):
        play()
    with Store(database).reading() as connection:
        (row,) = episodes(connection)
        assert (row.state, row.error_type, row.steps) == (TrialState.FAILURE, "KeyError", 1)
        found = connection.execute("SELECT error_traceback FROM session_traces").fetchall()
        assert "in play" in found[0][0]
        assert connection.execute("FROM outcomes").fetchall() == []


def test_sessions_of_one_run_belong_together(database: Path) -> None:
    for seed in (1, 2):
        with SessionTracer(database, name="s", task="maze", seed=seed, run_id="r") as tracer:
            tracer.step("go")
    with Store(database).reading() as connection:
        assert len(committed_sessions(connection, "r")) == 2
        assert len(connection.execute("FROM experiments").fetchall()) == 1


def test_a_message_without_a_role_is_refused(database: Path) -> None:
    with (
        pytest.raises(UsageError, match="needs a role"),
        SessionTracer(database, name="s", task="t") as tracer,
    ):
        tracer.message({"content": "hello"})


def test_a_value_of_another_type_is_refused_at_once_and_the_rest_is_kept(
    database: Path,
) -> None:
    with SessionTracer(database, name="a loop", task="maze") as tracer:
        tracer.call({"role": "assistant", "content": "hm"}, finish_reason=None)
        wrong: list[tuple[Any, str]] = [
            (lambda: tracer.step("north", reward="7"), "reward .*'7'"),  # type: ignore[arg-type]
            (lambda: tracer.step("north", reward=float("nan")), "reward .*nan"),
            (lambda: tracer.step(3), "action: must be a text"),  # type: ignore[arg-type]
            (lambda: tracer.hook("h", priority=1.5), "priority"),  # type: ignore[arg-type]
            (lambda: tracer.hook("h", x=float("inf")), "no JSON form"),
            (lambda: tracer.outcome("score", float("inf")), "outcome 'score' .*inf"),
        ]
        for record, said in wrong:
            with pytest.raises(UsageError, match=said):
                record()
        tracer.step("north", reward=1)
    with Store(database).reading() as connection:
        steps = connection.execute("SELECT step_index, turn, action FROM session_timesteps")
        assert steps.fetchall() == [(1, 1, "north")]


def test_a_session_whose_process_died_is_kept_up_to_its_last_turn(database: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DIES, str(database)], check=False)
    assert done.returncode < 0
    assert not database.exists()
    store = Store(database)
    assert ingest_leftovers(store) == 1
    with store.reading() as connection:
        (row,) = episodes(connection)
        assert row.state is TrialState.INFRASTRUCTURE
        assert (row.stop_reason, row.error_type) == ("process died", "ProcessDied")
        assert (row.turns, row.steps) == (2, 1)
        assert connection.execute("SELECT status FROM runs").fetchall() == [("incomplete",)]
    assert not journal_root(database).exists()
    assert ingest_leftovers(store) == 0


def test_a_damaged_journal_of_a_process_that_died_is_set_aside(database: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(database)], check=False)
    (path,) = journal_root(database).glob("*/*.jsonl")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert ingest_leftovers(Store(database)) == 0
    (kept,) = journal_root(database).glob("*.damaged")
    assert kept.read_bytes() == content


def test_the_same_loop_can_be_run_again_after_its_process_died(database: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(database)], check=False)
    with SessionTracer(database, name="loop", task="maze", seed=1, run_id="r") as tracer:
        tracer.step("north")
    with Store(database).reading() as connection:
        (row,) = episodes(connection)
        assert (row.state, row.steps) == (TrialState.RESULT, 1)


def test_a_living_loop_is_no_leftover(database: Path) -> None:
    with SessionTracer(database, name="loop", task="maze") as tracer:
        tracer.step("go")
        assert ingest_leftovers(Store(database)) == 0
        tracer.step("go")
    with Store(database).reading() as connection:
        assert episodes(connection)[0].steps == 2


def test_leftovers_of_a_run_are_stored_and_the_run_stays_unfinished(database: Path) -> None:
    run = make_run(models=["m"])
    folder = RunFolder.create(database, run)
    ended, going = make_session(run), make_session(run, episode=1, state=None)
    for session in (ended, going):
        write(folder.path(session.header.session_id), session)
    store = Store(database)
    assert ingest_leftovers(store) == 1
    with store.reading() as connection:
        assert list(committed_sessions(connection, run.id)) == [ended.header.session_id]
        assert connection.execute("SELECT status FROM runs").fetchall() == [("running",)]
    path = folder.path(going.header.session_id)
    assert folder.journals() == [path]
    assert Journal.reopen(path)[1] == going
