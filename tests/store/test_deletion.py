"""Deleted sessions leave no rows, and other sessions are unaffected."""

from dataclasses import replace
from pathlib import Path

import pytest

import assay
from assay.errors import UsageError
from assay.store.run_folder import RunFolder
from assay.store.store import Store
from assay.store.trace_folder import publish_traces, write_trace_folder
from tests.store.sessions import make_run, make_session, make_sessions
from tests.store.stores import add_training, fill, ids, rows_of

FIRST = make_run("run-1")


def second(folder: Path) -> tuple[Store, dict[str, list[tuple[object, ...]]]]:
    """A database with two runs and the files of the second, with its rows before the second."""
    store = fill(folder / "t.duckdb", FIRST, make_sessions(FIRST))
    before = rows_of(store)
    run = make_run("run-2", created_at=FIRST.created_at + 100)
    run = replace(run, configuration={**run.configuration, "traces_dir": "traces"})
    fill(store.path, run, make_sessions(run))
    write_trace_folder(folder / "traces", store, run.id)
    publish_traces(folder / "traces", run.id)
    return store, before


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_deleted_run_leaves_no_rows(tmp_path: Path) -> None:
    store, before = second(tmp_path)
    run = make_run("run-2")
    with store.writing() as connection:
        connection.execute(
            "INSERT INTO outcomes (trial_id, experiment_id, metric, value)"
            " VALUES ($id, $id, 'whole', 1.0)",
            {"id": run.experiments[0].id},
        )
    held, everything = files(tmp_path), rows_of(store)
    planned = assay.delete_experiments("run-2", dry_run=True, database=store)
    assert (files(tmp_path), rows_of(store)) == (held, everything)
    done = assay.delete_experiments("run-2", database=store)
    assert done == planned
    assert (len(done.sessions), len(done.experiments), done.runs) == (4, 2, ("run-2",))
    assert len(done.files) == 4
    assert rows_of(store) == before
    assert files(tmp_path) == {"t.duckdb"}


def test_messages_shared_with_another_session_are_kept(tmp_path: Path) -> None:
    store, before = second(tmp_path)
    bodies = len(before["message_bodies"])
    gone = assay.delete_experiments("run-1", database=store)
    assert gone.messages == bodies - len(rows_of(store)["message_bodies"])
    assert [row[0] for row in rows_of(store)["runs"]] == ["run-2"]
    assert not assay.import_traces(tmp_path / "traces", database=store).damaged


@pytest.mark.extras
def test_deleted_session_removes_its_file_and_index_entry(tmp_path: Path) -> None:
    store, _ = second(tmp_path)
    run = make_run("run-2")
    session = make_session(run, episode=1)
    [name] = ids([session])
    done = assay.delete_sessions(name, database=store)
    assert (done.sessions, done.experiments, done.runs) == ((name,), (), ())
    assert [Path(file).name for file in done.files] == ["trace_episode_1.json"]
    assert "traces/trace_episode_1.json" not in files(tmp_path)
    assert "traces/trace_episode_0.json" in files(tmp_path)
    assert assay.import_traces(tmp_path / "traces", database=tmp_path / "o.duckdb").added == 3


@pytest.mark.extras
def test_active_run_cannot_be_deleted_and_a_dead_one_is_deleted_with_journals(
    tmp_path: Path,
) -> None:
    store, before = second(tmp_path)
    run = make_run("run-2", created_at=FIRST.created_at + 100)
    folder = RunFolder.create(store.path, run)
    with folder.hold(), pytest.raises(UsageError, match=r"run-2.*in progress in process \d+"):
        assay.delete_experiments("run-2", database=store)
    with pytest.raises(UsageError, match="--resume run-2"):
        assay.delete_sessions(ids([make_session(run)])[0], database=store)
    folder.path("s-1").write_text("x\n")
    assay.delete_experiments("run-2", database=store)
    assert rows_of(store) == before
    assert files(tmp_path) == {"t.duckdb"}


def test_training_runs_are_deleted_with_their_experiment(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", FIRST, make_sessions(FIRST))
    before = rows_of(store)
    add_training(store, FIRST, "t-1")
    with store.writing() as connection:
        connection.execute("UPDATE training_runs SET series = 'vit', subject = 'vit'")
        connection.execute("INSERT INTO trials (id, kind) VALUES ('t-1', 'training')")
    assay.delete_experiments("vit", database=store)
    left = rows_of(store)
    for name in ("training_runs", "metric_points", "trials", "experiments"):
        assert left[name] == before[name]
