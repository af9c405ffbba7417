"""Sessions as rows: correct numbers, stored once, and replaced as a whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from assay.store.ingest import Ingestion, ensure_run, finish_run
from assay.store.records import RunRecord
from assay.store.rows import Kind, row_id, session_rows
from assay.store.schema import TABLES, RunStatus
from assay.store.store import Store
from assay.types import TrialState
from tests.store.sessions import START, ingest_session, make_run, make_session, make_sessions


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "a.duckdb")


def dump(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, sorted."""
    return {
        table.name: sorted(connection.execute(f"FROM {table.name}").fetchall(), key=repr)
        for table in TABLES
    }


def put(store: Store, run: RunRecord, **options: Any) -> None:
    with store.writing() as connection:
        ensure_run(connection, run)
        for session in make_sessions(run, **options):
            ingest_session(connection, session)


def test_session_totals_are_correct(store: Store) -> None:
    run = make_run(models=["m"])
    session = make_session(run, turns=4, actions=3)
    put(store, run, episodes=1)
    steps = [step for played in session.played for step in played.steps]
    with store.reading() as connection:
        row = connection.execute("FROM session_traces").fetchdf().to_dict("records")[0]
        assert row["num_timesteps"] == len(steps) == 9
        assert row["num_turns"] == 4
        assert row["num_events"] == 4 + 4 + 9
        assert row["num_messages"] == len(session.messages)
        assert row["total_reward"] == pytest.approx(sum(step.reward for step in steps))
        assert row["actions_asked"] == 10
        assert row["unknown_actions"] == 1
        assert row["no_effect_actions"] == 1
        assert row["asleep_actions"] == 1
        assert row["malformed_replies"] == 1
        assert row["prompt_tokens"] == 100 + 200 + 300 + 400
        assert row["cost_usd"] == pytest.approx(0.004)
        assert row["verifiable"]
        assert row["source"] == "assay"
        assert row["created_at"].timestamp() == START
        counts = connection.execute(
            "SELECT sum(num_events), sum(num_messages) FROM session_timesteps"
        ).fetchone()
        # The turn without a step has two events that belong to no step.
        assert counts is not None
        assert counts[0] == 17 - 2
        (linked,) = connection.execute(
            "SELECT count(*) FROM messages WHERE timestep_id IS NOT NULL"
        ).fetchall()[0]
        assert counts[1] == linked


def test_unknown_price_makes_the_total_unknown(store: Store) -> None:
    run = make_run(models=["m"])
    with store.writing() as connection:
        ensure_run(connection, run)
        ingest_session(connection, make_session(run, price=None, digests=False))
        found = connection.execute("SELECT cost_usd, verifiable FROM session_traces")
        assert found.fetchone() == (None, False)


def test_messages_and_events_have_their_step(store: Store) -> None:
    run = make_run(models=["m"])
    put(store, run, episodes=1)
    with store.reading() as connection:
        found = connection.execute(
            "SELECT m.position, m.role, t.step_index FROM messages m "
            "LEFT JOIN session_timesteps t ON t.id = m.timestep_id ORDER BY m.position"
        ).fetchall()
        # system, observation | answer 1 (steps 1-3), seen | answer 2 (4-6), seen |
        # answer 3 (malformed), told | answer 4 (7-9), seen
        steps = [None, None, 1, 3, 4, 6, None, 6, 7, 9]
        assert [step for _, _, step in found] == steps
        events = connection.execute(
            "SELECT v.event_type, v.turn, t.step_index FROM events v "
            "LEFT JOIN session_timesteps t ON t.id = v.timestep_id "
            "WHERE event_type <> 'environment' ORDER BY v.id"
        ).fetchall()
        assert [step for _, _, step in events] == [1, 4, None, 7] * 2


def test_repeated_ingestion_changes_nothing(store: Store) -> None:
    run = make_run()
    put(store, run)
    with store.reading() as connection:
        before = dump(connection)
    put(store, run)
    with store.reading() as connection:
        assert dump(connection) == before


def test_rows_do_not_depend_on_the_order_of_ingestion(tmp_path: Path) -> None:
    run = make_run()
    dumps = []
    for name, order in (("a", 1), ("b", -1)):
        with Store(tmp_path / name).writing() as connection:
            ensure_run(connection, run)
            rows = [session_rows(session) for session in make_sessions(run)][::order]
            Ingestion(connection, rows).store(*rows)
            dumps.append(dump(connection))
    assert dumps[0] == dumps[1]


def test_resumed_session_replaces_the_failed_one(store: Store) -> None:
    run = make_run(models=["m"])
    with store.writing() as connection:
        ensure_run(connection, run)
        broken = make_session(run, turns=2, state=TrialState.INFRASTRUCTURE)
        ingest_session(connection, broken)
        ingest_session(connection, make_session(run, turns=4))
        whole = dump(connection)
    other = Store(store.path.with_name("b.duckdb"))
    put(other, run, episodes=1)
    with other.reading() as connection:
        assert dump(connection) == whole


def test_equal_message_bodies_are_stored_once(store: Store) -> None:
    run = make_run()
    put(store, run, episodes=3)
    put(store, make_run("run-2"), episodes=3)
    with store.reading() as connection:
        counts = connection.execute("SELECT count(*), count(DISTINCT hash) FROM message_bodies")
        bodies, distinct = counts.fetchall()[0]
        assert bodies == distinct
        used = connection.execute(
            "SELECT count(DISTINCT hash) FROM (SELECT hash FROM message_rows "
            "UNION ALL SELECT tools_hash FROM session_traces)"
        ).fetchall()[0][0]
        assert used == bodies
        rows = connection.execute("SELECT count(*) FROM messages WHERE content IS NOT NULL")
        assert rows.fetchall()[0][0] == 2 * bodies_in(3, run)


def bodies_in(episodes: int, run: RunRecord) -> int:
    return sum(len(session.messages) for session in make_sessions(run, episodes))


def test_session_that_cannot_be_stored_leaves_no_rows(store: Store) -> None:
    run = make_run(models=["m"])
    good, bad = (session_rows(session) for session in make_sessions(run, 2))
    # A state is required.
    place = bad.tables["session_traces"].schema.get_field_index("state")
    broken = bad.tables["session_traces"]
    broken = broken.set_column(place, "state", pa.nulls(1, pa.string()))
    bad = replace(bad, tables={**bad.tables, "session_traces": broken})
    with store.writing() as connection:
        ensure_run(connection, run)
        ingestion = Ingestion(connection, [good, bad])
        with pytest.raises(duckdb.Error):
            ingestion.store(bad)
        empty = dump(connection)
        assert not empty["session_traces"]
        assert not empty["events"]
        assert not empty["message_bodies"]
        ingestion.store(good)
        assert len(dump(connection)["session_traces"]) == 1


def test_row_ids_follow_the_position_and_increase() -> None:
    assert row_id("abc", Kind.EVENT, 7) == row_id("abc", Kind.EVENT) + 7
    assert row_id("abc", Kind.EVENT) != row_id("abc", Kind.STEP)
    assert row_id("abc", Kind.EVENT) == 999792923339501966
    assert 0 <= row_id("abc", Kind.HOOK) < 2**62


def names(store: Store) -> list[str]:
    with store.reading() as connection:
        return [
            row[0]
            for row in connection.execute(
                "SELECT name FROM experiments ORDER BY created_at, position"
            ).fetchall()
        ]


def test_versions_follow_the_fingerprint_and_names_are_unique(store: Store) -> None:
    with store.writing() as connection:
        for number, fingerprint in enumerate(["f1", "f1", "f2", "f2", "f1"]):
            at = START + 10 * number
            run = make_run(f"r{number}", ["m"], fingerprint=fingerprint, created_at=at)
            ensure_run(connection, run)
            ensure_run(connection, run)
    assert names(store) == ["m v1.0", "m v1.0 #2", "m v1.1", "m v1.1 #2", "m v1.2"]


def test_versions_are_counted_per_model_in_a_series(store: Store) -> None:
    with store.writing() as connection:
        for number in range(2):
            run = make_run(f"r{number}", ["a", "b"], series="s", created_at=START + number)
            ensure_run(connection, run)
    assert names(store) == ["s v1.0", "s v1.1", "s v1.0 #2", "s v1.1 #2"]


def test_the_status_of_a_run_changes_once_it_is_finished(store: Store) -> None:
    with store.writing() as connection:
        ensure_run(connection, make_run())
        sql = "SELECT status, epoch(finished_at) FROM runs"
        assert connection.execute(sql).fetchone() == ("running", None)
        finish_run(connection, "run-1", RunStatus.FINISHED, at=START + 5)
        assert connection.execute(sql).fetchone() == ("finished", START + 5)


def test_examples_in_the_first_format_give_correct_numbers(tmp_path: Path) -> None:
    path = tmp_path / "crafter_multi_model_traces.duckdb"
    put(Store(path), make_run(models=["a", "b"]), episodes=3)
    later = make_run("run-2", ["a"], created_at=START + 100)
    put(Store(path), later, episodes=2, turns=6)
    conn = duckdb.connect(str(path))
    experiments = conn.execute("""
    SELECT e.name, e.id, e.created_at, 
           COUNT(st.session_id) as session_count
    FROM experiments e
    LEFT JOIN session_traces st ON e.id = st.experiment_id
    GROUP BY e.id, e.name, e.created_at
    ORDER BY e.created_at DESC
""").df()
    assert experiments["name"][0] == "a v1.0 #2"
    counts = dict(zip(experiments["name"], experiments["session_count"], strict=True))
    assert counts == {"a v1.0 #2": 2, "a v1.0": 3, "b v1.0": 3}
    model_performance = conn.execute("""
    SELECT 
        e.name as experiment_name,
        AVG(st.num_timesteps) as avg_steps,
        COUNT(st.session_id) as total_sessions
    FROM experiments e
    JOIN session_traces st ON e.id = st.experiment_id
    GROUP BY e.name
    ORDER BY avg_steps DESC
""").df()
    conn.close()
    assert list(model_performance["avg_steps"]) == [15.0, 9.0, 9.0]
    assert model_performance["experiment_name"][0] == "a v1.0 #2"
    assert list(model_performance["total_sessions"]) == [2, 3, 3]
