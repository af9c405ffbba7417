"""Queries that other packages use."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from assay.errors import UsageError
from assay.store.ingest import ensure_run
from assay.store.names import resolve_experiment, resolve_run, resolve_session
from assay.store.queries import committed_sessions, episodes
from assay.store.store import Store
from assay.types import TrialState
from tests.store.sessions import START, ingest_session, make_run, make_session, make_sessions

OLD = make_run("old-run", ["b", "a"], baselines=["a"])
NEW = make_run("new-run", ["a"], created_at=START + 100)
LOST = make_session(NEW, "a", 2, state=TrialState.INFRASTRUCTURE)


@pytest.fixture(scope="module")
def connection(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[duckdb.DuckDBPyConnection]:
    store = Store(tmp_path_factory.mktemp("queries") / "a.duckdb")
    with store.writing() as connection:
        for run in (NEW, OLD):
            ensure_run(connection, run)
            for session in make_sessions(run, turns=8):
                ingest_session(connection, session)
        ingest_session(connection, LOST)
    with store.reading() as connection:
        yield connection


def test_episodes_are_ordered_by_run_model_and_number(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    rows = episodes(connection)
    found = [(row.run_id, row.model, row.episode) for row in rows]
    old = [("old-run", model, episode) for model in "ba" for episode in (0, 1)]
    assert found == old + [("new-run", "a", episode) for episode in (0, 1, 2)]
    assert [row.baseline for row in rows] == [False, False, True, True, False, False, False]


def test_episode_row_equals_its_session(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    session = make_session(OLD, "b", 1, turns=8)
    (row,) = [
        episode for episode in episodes(connection, run_id="old-run") if episode.episode == 1
    ][:1]
    steps = [step for played in session.played for step in played.steps]
    assert row.session_id == session.header.session_id
    assert row.experiment_name == "b v1.0"
    assert (row.seed, row.difficulty, row.state) == (43, "easy", TrialState.RESULT)
    assert (row.steps, row.turns, row.duration_s) == (len(steps), 8, 1.5)
    assert row.achievements == {name: step.index for step in steps for name in step.unlocked}
    assert list(row.achievements.values()) == sorted(row.achievements.values())
    assert row.achievements
    assert row.cost_usd == pytest.approx(0.008)
    assert row.error_type is None


def test_episodes_can_be_filtered_by_experiment(connection: duckdb.DuckDBPyConnection) -> None:
    wanted = OLD.experiments[1].id
    assert {row.experiment_id for row in episodes(connection, experiment_ids=[wanted])} == {
        wanted
    }
    assert episodes(connection, experiment_ids=[]) == []
    assert episodes(connection, run_id="new-run", experiment_ids=[wanted]) == []


def test_failed_episode_has_its_reason(connection: duckdb.DuckDBPyConnection) -> None:
    row = episodes(connection, run_id="new-run")[2]
    assert row.state is TrialState.INFRASTRUCTURE
    assert (row.error_type, row.error_message) == ("ModelUnavailable", "no answer")
    stored = committed_sessions(connection, "new-run")
    assert stored[LOST.header.session_id] is TrialState.INFRASTRUCTURE
    assert len(stored) == 3


@pytest.mark.parametrize("name", ["new-run", "new", "n", "latest"])
def test_run_is_found_by_id_or_prefix(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    assert resolve_run(connection, name) == "new-run"


def test_an_experiment_is_found_by_name_or_id(connection: duckdb.DuckDBPyConnection) -> None:
    expected = OLD.experiments[0].id
    for name in ("b v1.0", "b", expected, expected[:12]):
        assert resolve_experiment(connection, name) == expected
    assert resolve_experiment(connection, "a v1.0") == NEW.experiments[0].id, "an exact name"


def test_unknown_or_ambiguous_names_are_rejected(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    with pytest.raises(UsageError, match="did you mean 'old-run'"):
        resolve_run(connection, "old-rum")
    with pytest.raises(UsageError, match=r"ambiguous: .*a v1.0 #2.*give a longer part"):
        resolve_experiment(connection, "a ")
    with pytest.raises(UsageError, match="assay traces list"):
        resolve_session(connection, "xyz")
    with pytest.raises(UsageError, match="ambiguous"):
        resolve_session(connection, "")
    with pytest.raises(UsageError, match="unknown run ''"):
        resolve_run(connection, "")


def test_keywords_select_common_sessions(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    results = [row for row in episodes(connection, run_id="new-run") if row.seed != 44]
    ranked = sorted(results, key=lambda row: (len(row.achievements), row.reward))
    assert resolve_session(connection, "best") == ranked[-1].session_id
    assert resolve_session(connection, "worst") == ranked[0].session_id
    latest = resolve_session(connection, "latest")
    assert resolve_session(connection, latest[:10]) == latest


def test_empty_database_error_names_the_command_to_fill_it(tmp_path: Path) -> None:
    with Store(tmp_path / "a.duckdb").writing() as connection:
        for resolve in (resolve_run, resolve_experiment):
            with pytest.raises(UsageError, match="assay run"):
                resolve(connection, "x")
        for word in ("latest", "best"):
            with pytest.raises(UsageError, match="assay run"):
                resolve_session(connection, word)
        assert episodes(connection) == []


def test_views_match_the_sessions(connection: duckdb.DuckDBPyConnection) -> None:
    session = make_session(OLD, "b", 0, turns=8)
    key = session.header.session_id
    turns = connection.execute(
        'SELECT turn, asked, "unknown", malformed, steps, reward, prompt_tokens, reply_text, '
        "reply_arguments, ended FROM turns WHERE session_id = ? ORDER BY turn",
        [key],
    ).fetchall()
    assert len(turns) == 8
    for played, call, row in zip(session.played, session.calls, turns, strict=True):
        assert row[:5] == (
            played.turn,
            list(played.asked),
            list(played.unknown),
            played.malformed,
            len(played.steps),
        )
        assert row[5] == pytest.approx(sum(step.reward for step in played.steps))
        assert row[6] == call.usage.prompt
        reply = session.messages[call.reply].message.value
        assert row[7] == reply["content"]
        if played.malformed is None:
            assert row[8] == reply["tool_calls"][0]["function"]["arguments"]
        assert row[9] is False
    usage = connection.execute(
        "SELECT calls, prompt_tokens, cost_usd, unpriced_calls, latency_ms_p95, retries "
        "FROM model_usage WHERE experiment_name = 'b v1.0'"
    ).fetchall()
    assert usage == [(16, 7200, pytest.approx(0.016), 0, 250.0, 8)]
    reached = connection.execute(
        "SELECT achievement, step FROM achievements WHERE session_id = ? ORDER BY step", [key]
    ).fetchall()
    steps = [step for played in session.played for step in played.steps]
    assert reached == [(name, step.index) for step in steps for name in step.unlocked]
