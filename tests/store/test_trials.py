"""Every trial has a row in `trials`, in any state."""

from dataclasses import replace
from pathlib import Path

from assay.store.export import ExportFormat, export_sessions
from assay.store.imports import import_traces, trace_files
from assay.store.journal import Journal, read_journal
from assay.store.load import load_session
from assay.store.merge import merge_stores
from assay.store.store import Store
from assay.types import TrialState
from tests.golden.files import unpack
from tests.support import query

from .sessions import ingest_session, make_run, make_session, make_sessions
from .stores import add_training, fill, ids, rows_of

RUN = make_run()
FAILED = make_session(RUN, episode=3, state=TrialState.FAILURE)
LOST = make_session(RUN, episode=4, state=TrialState.INFRASTRUCTURE)
FORKED = replace(
    make_session(RUN, episode=5),
    header=replace(
        make_session(RUN, episode=5).header,
        trial_kind="bandit",
        parent=FAILED.header.session_id,
        forked_at=7,
    ),
)


def test_session_and_trial_rows_agree(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, [*make_sessions(RUN), FAILED, LOST, FORKED])
    assert query(
        store,
        "SELECT id, run_id, experiment_id, subject, task, seed, replicate, state, reason,"
        " started_at, ended_at FROM trials ORDER BY id",
    ) == query(
        store,
        "SELECT session_id, run_id, experiment_id, subject, task, seed, replicate, state,"
        " stop_reason, created_at, ended_at FROM session_traces ORDER BY session_id",
    )
    assert query(
        store,
        "SELECT kind, state, error, parent, forked_at, count(*) FROM trials"
        " GROUP BY ALL ORDER BY ALL",
    ) == [
        ("bandit", "result", None, FAILED.header.session_id, 7, 1),
        ("episode", "failure", "ModelUnavailable: no answer", None, None, 1),
        ("episode", "infrastructure", "ModelUnavailable: no answer", None, None, 1),
        ("episode", "result", None, None, None, 4),
    ]


def test_resumed_session_has_one_trial(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, [LOST])
    with store.writing() as connection:
        ingest_session(connection, make_session(RUN, episode=4))
    assert query(store, "SELECT id, state, error FROM trials") == [
        (LOST.header.session_id, "result", None)
    ]


def test_kind_and_parent_survive_journal_database_and_export(tmp_path: Path) -> None:
    Journal.create(tmp_path / "s.jsonl", FORKED.header)
    assert read_journal(tmp_path / "s.jsonl").header == FORKED.header
    store = fill(tmp_path / "t.duckdb", RUN, [FORKED])
    export_sessions(store, ids([FORKED]), ExportFormat.JSONL, tmp_path / "out")
    other = Store(tmp_path / "other.duckdb")
    import_traces(other, trace_files([tmp_path / "out"]))
    for source in (store, other):
        with source.reading() as connection:
            assert load_session(connection, ids([FORKED])[0]) == FORKED


def test_added_field_with_its_default_is_not_written(
    tmp_path: Path,
) -> None:
    for session, written in ((FAILED, False), (FORKED, True)):
        path = tmp_path / f"{session.header.session_id}.jsonl"
        Journal.create(path, session.header)
        assert (b"parent" in path.read_bytes()) is written
        assert (b"trial_kind" in path.read_bytes()) is written


def test_merge_copies_every_trial_once(tmp_path: Path) -> None:
    one = fill(tmp_path / "one.duckdb", RUN, [FAILED, LOST])
    two = fill(tmp_path / "two.duckdb", RUN, [LOST, FORKED])
    add_training(two, RUN)
    with two.writing() as connection:
        connection.execute("INSERT INTO trials (id, kind) VALUES ('t-1', 'training')")
    for _ in range(2):
        merge_stores(one, [two])
        found = [row[0] for row in query(one, "SELECT id FROM trials")]
        assert sorted(found) == sorted([*ids([FAILED, LOST, FORKED]), "t-1"])


def test_migrated_database_has_the_trials_of_new_sessions(tmp_path: Path) -> None:
    folder = unpack("store", tmp_path)
    old, new = Store(folder / "golden.duckdb"), Store(folder / "new.duckdb")
    before = query(old, "SELECT count(*) FROM session_traces")
    assert (folder / "golden.duckdb.v2").exists()
    import_traces(new, trace_files([folder / "outputs" / "all.jsonl"]))
    sessions = [row for row in rows_of(old)["trials"] if row[3] != "training"]
    assert [(len(sessions),)] == before
    assert sessions == rows_of(new)["trials"]
    assert {row[3] for row in sessions} == {"episode", "imported"}
    assert query(
        old, "SELECT id, state FROM trials WHERE kind = 'training' ORDER BY id"
    ) == query(old, "SELECT id, 'result' FROM training_runs ORDER BY id")
