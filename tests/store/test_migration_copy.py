"""A database of an older version is copied once before its migration, with a notice."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from assay.errors import StoreError
from assay.store import migrations
from assay.store.migrations import migrate
from assay.store.schema import VERSION
from assay.store.store import Store
from tests.support import run_python

SMALL_DISK = """
import resource, sys
from assay.cli import main
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of version 1 with an experiment."""
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as connection:
        migrate(connection, 0, target=1)
        connection.execute(
            "INSERT INTO experiments (id, name, created_at, updated_at) "
            "VALUES ('e', 'a v1.0', '2025-01-01', '2025-01-01')"
        )
    return path


def asked(path: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(query).fetchall()


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def test_migration_keeps_a_copy_and_reports_it_once(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = old.read_bytes()
    for _ in range(2):
        with Store(old).reading() as connection:
            assert connection.execute("SELECT id, note FROM experiments").fetchall() == [
                ("e", None)
            ]
        with Store(old).writing():
            pass
    assert names(old) == ["old.duckdb", "old.duckdb.v1"]
    copy = old.with_name("old.duckdb.v1")
    assert copy.read_bytes() == before
    assert asked(copy, "SELECT max(version) FROM schema_version") == [(1,)]
    assert asked(old, "SELECT max(version) FROM schema_version") == [(VERSION,)]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"{old} was migrated from schema version 1 to {VERSION}; "
        f"{copy} is a copy of the old file"
    )


@pytest.mark.extras
def test_migration_notice_is_printed_to_stderr(old: Path) -> None:
    command = ("experiments", "list", "--json", "--database", old.name)
    done = run_python("-m", "assay", *command, folder=old.parent)
    assert done.errors.splitlines() == [
        f"old.duckdb was migrated from schema version 1 to {VERSION}; "
        "old.duckdb.v1 is a copy of the old file"
    ]
    assert done.output.startswith("{")


def test_new_database_has_no_migration_copy(tmp_path: Path) -> None:
    with Store(tmp_path / "new.duckdb").writing():
        pass
    assert names(tmp_path / "new.duckdb") == ["new.duckdb"]


def test_existing_copy_is_not_replaced(old: Path) -> None:
    kept = old.with_name("old.duckdb.v1")
    kept.write_text("from another day")
    with Store(old).reading():
        pass
    assert kept.read_text() == "from another day"
    assert names(old) == ["old.duckdb", "old.duckdb.v1", "old.duckdb.v1.2"]


def test_copy_includes_commits_of_a_killed_process(old: Path) -> None:
    script = (
        "import duckdb, os, signal, sys\n"
        "connection = duckdb.connect(sys.argv[1])\n"
        "connection.execute(\"UPDATE experiments SET name = 'last'\")\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run_python("-c", script, str(old), expected=None)
    assert old.with_name("old.duckdb.wal").exists()
    with Store(old).reading():
        pass
    copy = old.with_name("old.duckdb.v1")
    assert asked(copy, "SELECT name FROM experiments") == [("last",)]


def test_migration_blocks_other_writers(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def intrude(connection: duckdb.DuckDBPyConnection) -> None:
        script = f"import duckdb; duckdb.connect({str(old)!r})"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
        tries.append(b"Could not set lock" in done.stderr)

    monkeypatch.setattr(migrations, "_CHANGES", {VERSION: intrude})
    with Store(old).writing():
        intrude(duckdb.connect())
    assert tries == [True, True]


def test_failed_migration_changes_nothing_and_leaves_no_copy(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("SELECT no_such_column FROM runs")

    monkeypatch.setattr(migrations, "_CHANGES", {VERSION: fail})
    with pytest.raises(StoreError), Store(old).writing():
        pass
    assert names(old) == ["old.duckdb"]
    assert asked(old, "SELECT max(version) FROM schema_version") == [(1,)]


def test_migration_without_space_for_the_copy_changes_nothing(old: Path) -> None:
    before = old.read_bytes()
    limit = str(os.path.getsize(old) // 2)
    command = ("experiments", "list", "--database", old.name)
    done = run_python("-c", SMALL_DISK, limit, *command, folder=old.parent, expected=1)
    assert "must be copied before it is migrated to" in done.errors
    assert "nothing was changed; free" in done.errors
    assert old.read_bytes() == before
    assert names(old) == ["old.duckdb"]
