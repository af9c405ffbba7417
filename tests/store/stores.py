"""Real databases for tests, and their content."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.store.ingest import Ingestion, ensure_run, finish_run
from assay.store.records import RunRecord, SessionRecord
from assay.store.rows import session_rows
from assay.store.schema import TABLES, RunStatus
from assay.store.store import Store

__all__ = ["add_training", "fill", "ids", "rows_of"]


def fill(
    path: Path, run: RunRecord, sessions: Iterable[SessionRecord], *, finished: bool = True
) -> Store:
    """Add a run and its sessions to the database at `path`."""
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


def add_training(store: Store, run: RunRecord, name: str = "t-1") -> None:
    """Add a look at a run, a training run with two points, and a plan."""
    first, *_, last = (experiment.id for experiment in run.experiments)
    with store.writing() as connection:
        for statement, values in (
            (
                "looks VALUES (?, ?, ?, 'reward', 1, 5, 1.0, 0.5, 1.5, 'better', '{}', NULL)",
                [run.id, last, first],
            ),
            (
                "training_runs (id, status, created_at) VALUES (?, 'finished', '2025-01-01')",
                [name],
            ),
            ("metric_points VALUES (?, 0, 'loss', 2.5), (?, 10, 'loss', 1.5)", [name, name]),
            ("analysis_plans VALUES (?, '{}', '2025-01-01', '[]')", [f"plan of {name}"]),
            (
                "provider_limits (run_id, provider, changed_at) VALUES (?, 'x', '2025-01-01')",
                [run.id],
            ),
        ):
            connection.execute(f"INSERT INTO {statement}", values)


@cache
def _blank() -> bytes:
    """An empty database, created once because creation dominates the time of a test."""
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
