"""Recording user loops, and recovering sessions of killed processes."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.errors import UsageError
from assay.store.journal import Journal
from assay.store.queries import committed_sessions, episodes
from assay.store.run_folder import RunFolder, journal_root
from assay.traces import SessionTracer, Store, ingest_leftovers
from assay.types import TrialState, Usage
from tests.store.sessions import make_run, make_session
from tests.store.test_journal import write
from tests.support import run_python

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


def test_traced_loop_is_stored_as_a_session(database: Path) -> None:
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


def test_steps_without_turns_become_separate_turns(database: Path) -> None:
    with SessionTracer(database, name="loop", task="maze") as tracer:
        for number in range(3):
            tracer.step("go", reward=number)
    with Store(database).reading() as connection:
        (row,) = episodes(connection)
        assert (row.turns, row.steps, row.actions_asked, row.reward) == (3, 3, 3, 3.0)


def test_loop_that_raises_is_a_failure_and_the_error_propagates(database: Path) -> None:
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


def test_sessions_of_one_run_share_its_experiment(database: Path) -> None:
    for seed in (1, 2):
        with SessionTracer(database, name="s", task="maze", seed=seed, run_id="r") as tracer:
            tracer.step("go")
    with Store(database).reading() as connection:
        assert len(committed_sessions(connection, "r")) == 2
        assert len(connection.execute("FROM experiments").fetchall()) == 1


def test_message_without_a_role_is_rejected(database: Path) -> None:
    with (
        pytest.raises(UsageError, match="needs a role"),
        SessionTracer(database, name="s", task="t") as tracer,
    ):
        tracer.message({"content": "hello"})


def test_value_of_wrong_type_is_rejected_and_the_rest_is_kept(
    database: Path,
) -> None:
    with SessionTracer(database, name="a loop", task="maze") as tracer:
        tracer.call({"role": "assistant", "content": "hm"}, finish_reason=None)
        wrong: list[tuple[Any, str]] = [
            (lambda: tracer.step("north", reward="7"), "reward .*'7'"),  # type: ignore[arg-type]
            (lambda: tracer.step("north", reward=float("nan")), "reward .*nan"),
            (lambda: tracer.step(3), "action: must be text"),  # type: ignore[arg-type]
            (lambda: tracer.hook("h", priority=1.5), "priority"),  # type: ignore[arg-type]
            (lambda: tracer.hook("h", x=float("inf")), "cannot be serialised to JSON"),
            (lambda: tracer.outcome("score", float("inf")), "outcome 'score' .*inf"),
            (lambda: tracer.call({"role": "assistant"}, latency_s=-1.0), "latency_s: must be"),
            (
                lambda: tracer.call({"role": "assistant"}, usage=Usage(prompt=2**63)),
                "usage.prompt: must be below 2147483648, got 9223372036854775808",
            ),
        ]
        for record, said in wrong:
            with pytest.raises(UsageError, match=said):
                record()
        tracer.step("north", reward=1)
    with Store(database).reading() as connection:
        steps = connection.execute("SELECT step_index, turn, action FROM session_timesteps")
        assert steps.fetchall() == [(1, 1, "north")]


def test_session_of_a_killed_process_is_kept_up_to_its_last_turn(database: Path) -> None:
    done = run_python("-c", DIES, str(database), expected=None)
    assert done.code < 0
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


def test_damaged_journal_of_a_killed_process_is_set_aside(database: Path) -> None:
    run_python("-c", DIES, str(database), expected=None)
    (path,) = journal_root(database).glob("*/*.jsonl")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert ingest_leftovers(Store(database)) == 0
    (kept,) = journal_root(database).glob("*.damaged")
    assert kept.read_bytes() == content


def test_loop_can_be_repeated_after_its_process_was_killed(database: Path) -> None:
    run_python("-c", DIES, str(database), expected=None)
    with SessionTracer(database, name="loop", task="maze", seed=1, run_id="r") as tracer:
        tracer.step("north")
    with Store(database).reading() as connection:
        (row,) = episodes(connection)
        assert (row.state, row.steps) == (TrialState.RESULT, 1)


def test_running_loop_is_not_a_leftover(database: Path) -> None:
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


ENDS = """
import sys
from assay.traces import SessionTracer
for seed in range(3):
    with SessionTracer(sys.argv[1], name="loop", task="maze", seed=seed) as tracer:
        tracer.step("north")
print("ended", flush=True)
if "wait" in sys.argv:
    input()
"""


def one_session(database: Path, **about: Any) -> str:
    with SessionTracer(database, **{"name": "loop", "task": "maze", **about}) as tracer:
        tracer.step("go")
    return tracer.session_id


def test_sessions_are_stored_in_batches(database: Path) -> None:
    for seed in range(99):
        one_session(database, seed=seed, run_id="r")
    assert not database.exists()
    one_session(database, seed=99, run_id="r")
    assert database.exists()
    assert not journal_root(database).exists()
    with Store(database).reading() as connection:
        assert len(committed_sessions(connection, "r")) == 100
        assert len(connection.execute("FROM trials WHERE kind = 'traced'").fetchall()) == 100


@pytest.mark.extras
def test_pending_sessions_are_stored_at_process_exit(database: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(database)], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert database.exists()
    assert not journal_root(database).exists()


@pytest.mark.parametrize("script", [DIES, ENDS], ids=["died", "goes on"])
def test_any_command_ingests_sessions_of_other_processes(
    script: str, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [sys.executable, "-c", script, str(database), "wait"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        assert not database.exists()
        assert main(["traces", "list", "--quiet", "--database", str(database)]) == 0
        process.stdin.close()
    assert len(capsys.readouterr().out.split()) == (1 if script is DIES else 3)


def test_readers_do_not_block_each_other(database: Path) -> None:
    one_session(database)
    holds = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True);"
        " print('held', flush=True); input()"
    )
    store = Store(database)
    with store.reading():
        pass
    with subprocess.Popen(
        [sys.executable, "-c", holds, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        one_session(database)
        with store.reading() as connection:
            assert len(episodes(connection)) == 1
        process.stdin.close()
    with store.reading() as connection:
        assert len(episodes(connection)) == 2


def test_sessions_of_several_subjects_in_one_run_all_have_experiments(database: Path) -> None:
    for subject in ("a", "b"):
        for seed in (1, 2):
            one_session(database, subject=subject, seed=seed, run_id="r")
    with Store(database).reading() as connection:
        rows = connection.execute("SELECT model, name FROM experiments ORDER BY model")
        assert rows.fetchall() == [("a", "loop v1.0"), ("b", "loop v1.1")]


def test_repeated_session_replaces_the_first_and_a_replicate_does_not(
    database: Path,
) -> None:
    first = one_session(database, seed=1, run_id="r")
    assert one_session(database, seed=1, run_id="r") == first
    again = one_session(database, seed=1, run_id="r", replicate=1)
    with Store(database).reading() as connection:
        rows = connection.execute("SELECT id, replicate FROM trials ORDER BY replicate")
        assert rows.fetchall() == [(first, 0), (again, 1)]


def test_tracer_can_be_shared_by_threads(database: Path) -> None:
    with SessionTracer(database, name="loop", task="maze") as tracer:
        with ThreadPoolExecutor(8) as threads:
            indexes = sorted(threads.map(lambda _: tracer.step("go", reward=1.0), range(400)))
        assert indexes == list(range(1, 401))
    with Store(database).reading() as connection:
        (row,) = episodes(connection)
        assert (row.steps, row.reward) == (400, 400.0)


def test_a_tracer_is_an_asynchronous_context_manager(database: Path) -> None:
    async def play(seed: int) -> None:
        async with SessionTracer(database, name="loop", task="maze", seed=seed) as tracer:
            tracer.step("go")
            await asyncio.sleep(0)
            if seed == 3:
                raise KeyError("lost")

    async def play_all() -> list[Any]:
        return await asyncio.gather(*map(play, range(5)), return_exceptions=True)

    assert [type(result) for result in asyncio.run(play_all())].count(KeyError) == 1
    with Store(database).reading() as connection:
        states = [(row.seed, row.state.value) for row in episodes(connection)]
    assert sorted(states) == [(s, "failure" if s == 3 else "result") for s in range(5)]


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"seed": 2**63}, "seed: must be below 9223372036854775808, got 9223372036854775808"),
        ({"seed": -(2**63) - 1}, "seed: must be -9223372036854775808 or more"),
        ({"episode": 2**63}, "episode: must be below 2147483648"),
        ({"replicate": -1}, "replicate: must be 0 or more"),
    ],
    ids=str,
)
def test_number_beyond_column_bounds_is_rejected_at_the_call(
    about: dict[str, int], said: str, database: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        one_session(database, **about)
