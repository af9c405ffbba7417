"""The schema of new, older and newer files."""

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from assay.crafter import NoEffect
from assay.errors import StoreError
from assay.store.ingest import ensure_run
from assay.store.migrations import migrate, stored_version
from assay.store.schema import ASLEEP, TABLES, VERSION, Column, Table, Type, arrow_schema, table
from assay.store.store import Store
from assay.store.views import VIEWS
from tests.store.sessions import ingest_session, make_run, make_session


def columns(connection: duckdb.DuckDBPyConnection, name: str) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? "
        "ORDER BY column_index",
        [name],
    ).fetchall()


def test_new_file_gets_every_table_and_view(tmp_path: Path) -> None:
    with Store(tmp_path / "a.duckdb").writing() as connection:
        assert stored_version(connection) == VERSION
        for entry in TABLES:
            declared = [(column.name, column.type.value) for column in entry.columns]
            assert columns(connection, entry.name) == declared
        for view in VIEWS:
            found = [name for name, _ in columns(connection, view.name)]
            assert found == [name for name, _ in view.columns]


def test_every_column_and_view_has_a_comment() -> None:
    for entry in TABLES:
        assert entry.doc.endswith(".")
        assert all(column.doc for column in entry.columns)
        assert set(entry.key) <= set(entry.names)
    for view in VIEWS:
        assert view.doc.endswith(".")
        assert all(doc for _, doc in view.columns)


def test_arrow_schemas_match_the_columns() -> None:
    for entry in TABLES:
        assert tuple(arrow_schema(entry.name).names) == entry.names


def test_older_file_keeps_its_rows_and_gets_new_columns(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.duckdb"
    run = make_run()
    with Store(path).writing() as connection:
        ensure_run(connection, run)
        ingest_session(connection, make_session(run))
    fresh = Table("moods", "A mood.", (Column("text", Type.TEXT, "what it says"),), since=9)
    runs = table("runs")
    more = replace(runs, columns=(*runs.columns, Column("mood", Type.TEXT, "how", since=9)))
    later = [more if entry is runs else entry for entry in TABLES] + [fresh]
    with duckdb.connect(str(path)) as connection:
        migrate(connection, 8, tables=later, target=9)
        assert columns(connection, "moods") == [("text", "VARCHAR")]
        assert connection.execute("SELECT id, mood FROM runs").fetchall() == [("run-1", None)]
        assert len(connection.execute("FROM episodes").fetchall()) == 1


def test_version_1_file_gets_notes_looks_training_runs_and_plans(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        migrate(connection, 0, target=1)
        assert columns(connection, "looks") == []
        connection.execute(
            "INSERT INTO experiments (id, name, created_at, updated_at) "
            "VALUES ('e', 'a v1.0', '2025-01-01', '2025-01-01')"
        )
    with Store(path).reading() as connection:
        assert stored_version(connection) == VERSION
        assert connection.execute("SELECT id, name, note FROM experiments").fetchall() == [
            ("e", "a v1.0", None)
        ]
        for entry in TABLES:
            assert [name for name, _ in columns(connection, entry.name)] == list(entry.names)


def test_failed_migration_step_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    broken = Table("broken", "Fails.", (Column("x", Type.TEXT, "x"),), key=("y",), checked=True)
    with duckdb.connect(str(path)) as connection:
        with pytest.raises(duckdb.Error):
            migrate(connection, 0, tables=[*TABLES, broken])
        assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)


def test_newer_file_is_rejected_with_a_next_step(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.duckdb")
    with store.writing() as connection:
        connection.execute("INSERT INTO schema_version VALUES (99, now()::TIMESTAMP)")
    with pytest.raises(StoreError, match=r"version 99.*install a newer assay"), store.writing():
        pass
    with pytest.raises(StoreError, match="version 99"), store.reading():
        pass


def test_foreign_tables_are_not_modified(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE events (mine INTEGER)")
    with pytest.raises(StoreError, match="'events' that assay did not make"):
        Store(path).writing().__enter__()
    with duckdb.connect(str(path)) as connection:
        assert columns(connection, "events") == [("mine", "INTEGER")]


def test_sleep_action_name_matches_the_world() -> None:
    assert ASLEEP == NoEffect.ASLEEP
