"""Storing sessions: the writer against rows inserted one by one, and what a turn takes up."""

import atexit
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.store.ingest import transaction
from assay.store.journal import read_journal
from assay.store.rows import session_rows
from assay.store.store import Store
from assay.store.writer import SessionStored, Writer, WriterEvent

from .measure import Row, Topic, size
from .rows_runs import measure_inspect_log
from .sides.sessions import Journals, make_journals

__all__ = ["SIZE", "TOPIC", "make_insert"]

_SESSIONS: Final = size(64, 2)


class _StoredSizes(NamedTuple):
    seconds: float
    """For each event."""
    disk: float
    """Bytes of the database, for each turn."""
    bodies: float
    """Bytes of the bodies of messages before they are compressed, for each turn."""


@cache
def _make_journals() -> Journals:
    folder = tempfile.mkdtemp(prefix="assay-perf-journals-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_journals(Path(folder), _SESSIONS)


@contextmanager
def _make_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="assay-perf-store-") as name:
        yield Path(name)


@lru_cache(maxsize=64)
def _store_journals(turn: int) -> _StoredSizes:
    """Pass all journals to the writer, and wait until they are stored."""
    run, paths = _make_journals()
    told: list[WriterEvent] = []
    with _make_folder() as folder:
        copies = [Path(shutil.copy(path, folder)) for path in paths]
        store = Store(folder / "traces.duckdb")
        started = time.perf_counter()
        writer = Writer(store, on_event=told.append)
        writer.start()
        for path in copies:
            writer.submit(run, path)
        writer.close()
        seconds = time.perf_counter() - started
        if not all(isinstance(event, SessionStored) for event in told):
            raise AssertionError(f"not stored: {told}")
        with store.reading() as connection:
            events, bodies = _fetch_one(
                connection,
                "SELECT (SELECT count(*) FROM events), "
                "(SELECT sum(strlen(body)) FROM message_bodies)",
            )
        disk = store.path.stat().st_size
    turns = _make_journals().turns
    return _StoredSizes(seconds / events, disk / turns, bodies / turns)


def _fetch_one(connection: Any, query: str) -> tuple[int, ...]:
    (row,) = connection.execute(query).fetchall()
    return tuple(int(value) for value in row)


@cache
def _make_statements() -> list[tuple[str, list[Any]]]:
    """One session, as statements and their values."""
    rows = session_rows(read_journal(_make_journals().paths[0]))
    found = [
        (make_insert(name, table.column_names), list(row.values()))
        for name, table in rows.tables.items()
        for row in table.to_pylist()
    ]
    body = make_insert("message_bodies", ["hash", "body"])
    return found + [(body, [*item]) for item in rows.bodies.items()]


def make_insert(name: str, columns: list[str]) -> str:
    """Return the INSERT statement for one row."""
    names = ", ".join(f'"{column}"' for column in columns)
    return f"INSERT INTO {name} ({names}) VALUES ({', '.join('?' * len(columns))})"


def _time_row_inserts(turn: int, *, together: bool) -> float:
    """Seconds for each event."""
    rows = _make_statements()
    events = sum(statement.startswith("INSERT INTO events ") for statement, _ in rows)
    with _make_folder() as folder, Store(folder / "traces.duckdb").writing() as connection:
        started = time.perf_counter()
        with transaction(connection) if together else nullcontext():
            for statement, values in rows:
                connection.execute(statement, values)
        return (time.perf_counter() - started) / events


@cache
def _measure_full_text() -> float:
    """Return the bytes per turn of all requests and replies, without deduplication."""
    size = 0
    for path in _make_journals().paths:
        session = read_journal(path)
        length = {row.position: len(row.message.encoded) for row in session.messages}
        size += sum(length[place] for call in session.calls for place in call.request)
        size += sum(length[call.reply] for call in session.calls)
    return size / _make_journals().turns


TOPIC: Final = Topic(
    name="store",
    unit="event",
    sides={
        "writer": lambda turn: _store_journals(turn).seconds,
        "transaction": partial(_time_row_inserts, together=True),
        "autocommit": partial(_time_row_inserts, together=False),
    },
    rows=(
        Row(
            name="store",
            what="sessions stored by the writer",
            ours="writer",
            peer="transaction",
            against="INSERT row by row, a transaction per session",
            target=20,
        ),
        Row(
            name="store-autocommit",
            what="sessions stored by the writer",
            ours="writer",
            peer="autocommit",
            against="INSERT row by row, each committed",
            target=20,
        ),
    ),
    notes=(
        f"Wall time for each row of events; ours stores {_SESSIONS} sessions of 100 turns from "
        "their journals: reading and checking those, making rows, opening and closing the "
        "database are in it. The peers get rows of one session that are made already, into the "
        "same tables, by statements with parameters, in a database that is open.",
    ),
)

SIZE: Final = Topic(
    name="store-size",
    unit="turn",
    sides={
        "database": lambda turn: _store_journals(turn).disk,
        "bodies": lambda turn: _store_journals(turn).bodies,
        "in full": lambda _: _measure_full_text(),
        "inspect log": measure_inspect_log,
    },
    rows=(
        Row(
            name="store-bodies",
            what="text of messages, each stored once",
            ours="bodies",
            peer="in full",
            against="every request and reply in full",
        ),
        Row(
            name="store-disk",
            what="the database, compressed, with all its tables",
            ours="database",
            peer="in full",
            against="every request and reply in full",
        ),
        Row(
            name="store-log",
            what="the database, compressed, with all its tables",
            ours="database",
            peer="inspect log",
            against="log of Inspect AI, compressed",
        ),
    ),
    notes=(
        "A ratio of n means that the share 1 - 1/n is saved. Sessions are those of the topics "
        f"turns and store, {_SESSIONS} of 100 turns.",
    ),
    rounds_at_most=1,
    in_bytes=True,
    warmup=False,
)
