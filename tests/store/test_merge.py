"""Merging databases neither loses nor duplicates anything."""

from pathlib import Path

import pytest

from assay.errors import StoreError, UsageError
from assay.store.merge import merge_stores
from assay.store.store import Store
from assay.store.versions import tag_experiment
from tests.store.sessions import START, make_run, make_sessions
from tests.store.stores import add_training, fill, rows_of

FIRST = make_run("first")
SECOND = make_run("second", created_at=START + 100)


@pytest.mark.extras
def test_merged_database_equals_one_common_database(tmp_path: Path) -> None:
    parts = [
        fill(tmp_path / f"{run.id}.duckdb", run, make_sessions(run)) for run in (FIRST, SECOND)
    ]
    both = fill(tmp_path / "both.duckdb", FIRST, make_sessions(FIRST))
    fill(both.path, SECOND, make_sessions(SECOND))
    merged = Store(tmp_path / "merged.duckdb")
    done = merge_stores(merged, parts)
    assert (done.added, done.present) == (8, 0)
    assert done.renamed == {
        "builtin/forager v1.0": "builtin/forager v1.0 #2",
        "builtin/expert v1.0": "builtin/expert v1.0 #2",
    }
    assert rows_of(merged) == rows_of(both)


@pytest.mark.extras
def test_merging_again_adds_nothing(tmp_path: Path) -> None:
    parts = [
        fill(tmp_path / f"{run.id}.duckdb", run, make_sessions(run)) for run in (FIRST, SECOND)
    ]
    merged = Store(tmp_path / "merged.duckdb")
    merge_stores(merged, parts)
    before = rows_of(merged)
    done = merge_stores(merged, parts)
    assert (done.added, done.present) == (0, 8)
    assert rows_of(merged) == before


@pytest.mark.extras
def test_looks_training_runs_and_plans_are_copied_once(tmp_path: Path) -> None:
    parts = [
        fill(tmp_path / f"{run.id}.duckdb", run, make_sessions(run)) for run in (FIRST, SECOND)
    ]
    both = fill(tmp_path / "both.duckdb", FIRST, make_sessions(FIRST))
    fill(both.path, SECOND, make_sessions(SECOND))
    for part, run in zip(parts, (FIRST, SECOND), strict=True):
        add_training(part, run, f"training of {run.id}")
        add_training(both, run, f"training of {run.id}")
    merged = Store(tmp_path / "merged.duckdb")
    merge_stores(merged, [*parts, *parts])
    assert rows_of(merged) == rows_of(both)
    assert len(rows_of(merged)["metric_points"]) == 4


def test_manually_tagged_version_is_merged_with_its_note(tmp_path: Path) -> None:
    part = fill(tmp_path / "part.duckdb", FIRST, [])
    with part.writing() as connection:
        tag_experiment(connection, FIRST.experiments[0].id, version="v2.0", note="faster")
    merged = Store(tmp_path / "merged.duckdb")
    merge_stores(merged, [part])
    assert rows_of(merged)["experiments"] == rows_of(part)["experiments"]


def test_run_split_over_databases_is_joined(tmp_path: Path) -> None:
    sessions = make_sessions(FIRST)
    whole = fill(tmp_path / "whole.duckdb", FIRST, sessions)
    into = fill(tmp_path / "a 'quoted' name.duckdb", FIRST, sessions[:3])
    other = fill(tmp_path / "b 'quoted' name.duckdb", FIRST, sessions[2:])
    done = merge_stores(into, [other])
    assert (done.added, done.present, done.renamed) == (1, 1, {})
    assert rows_of(into) == rows_of(whole)


def test_database_cannot_be_merged_with_itself_or_without_sources(tmp_path: Path) -> None:
    store = fill(tmp_path / "a.duckdb", FIRST, [])
    with pytest.raises(UsageError, match="into itself"):
        merge_stores(store, [Store(tmp_path / "." / "a.duckdb")])
    with pytest.raises(UsageError, match=r"nowhere\.duckdb"):
        merge_stores(store, [Store(tmp_path / "nowhere.duckdb")])
    (tmp_path / "text.duckdb").write_text("not a database" * 1000)
    with pytest.raises(StoreError, match=r"text\.duckdb"):
        merge_stores(store, [Store(tmp_path / "text.duckdb")])
