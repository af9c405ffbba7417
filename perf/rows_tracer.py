"""Recording user loops: SessionTracer against a database opened for each session."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from assay.store.ingest import transaction
from assay.store.journal import read_journal
from assay.store.rows import session_rows
from assay.store.run_folder import journal_root
from assay.store.store import Store
from assay.traces import SessionTracer

from .measure import Row, Topic, size
from .rows_store import make_insert

__all__ = ["TOPIC"]

_SESSIONS: Final = 100
"""As many as are stored together, so that storing them is in the time."""
_BY_HAND: Final = size(10, 1)
_TURNS: Final = 10


@contextmanager
def _make_database() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="assay-perf-tracer-") as folder:
        yield Path(folder) / "traces.duckdb"


def _trace_sessions(database: Path, sessions: int) -> None:
    for seed in range(sessions):
        with SessionTracer(database, name="loop", task="maze", seed=seed) as tracer:
            for turn in range(_TURNS):
                tracer.message({"role": "user", "content": f"Turn {turn} of {seed}: where to?"})
                tracer.call({"role": "assistant", "content": "north"})
                tracer.step("north", reward=1.0)
            tracer.outcome("score", 3.0)


def _time_tracer(turn: int) -> float:
    """Seconds for each session."""
    with _make_database() as database:
        started = time.perf_counter()
        _trace_sessions(database, _SESSIONS)
        seconds = time.perf_counter() - started
        if journal_root(database).exists():
            raise AssertionError("sessions are not stored")
    return seconds / _SESSIONS


@cache
def _make_statements() -> list[list[tuple[str, list[Any]]]]:
    """Sessions of the same loop, as statements and their values."""
    with _make_database() as database:
        _trace_sessions(database, _BY_HAND)
        paths = sorted(journal_root(database).glob("*/*.jsonl"))
        sessions = [session_rows(read_journal(path)).tables for path in paths]
        with Store(database).reading():
            pass  # stores them, so that none waits when the folder is gone
    return [
        [
            (make_insert(name, table.column_names), list(row.values()))
            for name, table in tables.items()
            for row in table.to_pylist()
        ]
        for tables in sessions
    ]


def _time_by_hand(turn: int) -> float:
    """Seconds for each session."""
    sessions = _make_statements()
    with _make_database() as database:
        with Store(database).writing():
            pass
        started = time.perf_counter()
        for rows in sessions:
            with Store(database).writing() as connection, transaction(connection):
                for statement, values in rows:
                    connection.execute(statement, values)
        return (time.perf_counter() - started) / len(sessions)


TOPIC: Final = Topic(
    name="tracer",
    unit="session",
    sides={"tracer": _time_tracer, "by hand": _time_by_hand},
    rows=(
        Row(
            name="tracer",
            what="user loop recorded by SessionTracer",
            ours="tracer",
            peer="by hand",
            against="DuckDB opened for each session, INSERT row by row",
            target=4,
        ),
    ),
    notes=(
        f"Wall time for each session of {_TURNS} turns, one after the other. Ours journals "
        f"each line and stores {_SESSIONS} sessions together; the peer gets rows that are made "
        "already, into the same tables, and journals nothing.",
    ),
    rounds_at_most=3,
)
