"""Real stores for tests, and what is in them."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.traces.ingest import Ingestion, ensure_run, finish_run
from assay.traces.records import RunRecord, SessionRecord
from assay.traces.rows import session_rows
from assay.traces.schema import TABLES, RunStatus
from assay.traces.store import Store

__all__ = ["fill", "ids", "rows_of"]


def fill(
    path: Path, run: RunRecord, sessions: Iterable[SessionRecord], *, finished: bool = True
) -> Store:
    """A store at `path` with a run and its sessions, beside what it holds already."""
    store = Store(path)
    if not path.exists():
        path.write_bytes(_blank())
    rows = [session_rows(session) for session in sessions]
    with store.writing() as connection:
        ensure_run(connection, run)
        if rows:
            Ingestion(connection, rows).store(*rows)
        if finished:
            finish_run(connection, run.id, RunStatus.FINISHED, at=run.created_at + 60)
    return store


@cache
def _blank() -> bytes:
    """A store with nothing in it; to make one anew each time takes most of a test."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "blank.duckdb"
        with Store(path).writing() as connection:
            connection.execute("CHECKPOINT")
        return path.read_bytes()


def rows_of(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, sorted."""
    with store.reading() as connection:
        return {
            table.name: connection.execute(f"FROM {table.name} ORDER BY ALL").fetchall()
            for table in TABLES
        }


def ids(sessions: Iterable[SessionRecord]) -> list[str]:
    return [session.header.session_id for session in sessions]
