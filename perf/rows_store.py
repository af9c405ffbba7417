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
from .rows_runs import inspect_log
from .sides.sessions import Journals, make_journals

__all__ = ["SIZE", "TOPIC", "insert"]

_SESSIONS: Final = size(64, 2)


class _Stored(NamedTuple):
    seconds: float
    """For each event."""
    disk: float
    """Bytes of the database, for each turn."""
    bodies: float
    """Bytes of the bodies of messages before they are compressed, for each turn."""


@cache
def _journals() -> Journals:
    folder = tempfile.mkdtemp(prefix="assay-perf-journals-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_journals(Path(folder), _SESSIONS)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="assay-perf-store-") as name:
        yield Path(name)


@lru_cache(maxsize=64)
def _store(turn: int) -> _Stored:
    """Hand all journals to the writer, and wait until it has stored them."""
    run, paths = _journals()
    told: list[WriterEvent] = []
    with _folder() as folder:
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
            events, bodies = _one(
                connection,
                "SELECT (SELECT count(*) FROM events), "
                "(SELECT sum(strlen(body)) FROM message_bodies)",
            )
        disk = store.path.stat().st_size
    turns = _journals().turns
    return _Stored(seconds / events, disk / turns, bodies / turns)


def _one(connection: Any, query: str) -> tuple[int, ...]:
    (row,) = connection.execute(query).fetchall()
    return tuple(int(value) for value in row)


@cache
def _rows() -> list[tuple[str, list[Any]]]:
    """One session, as statements and their values."""
    rows = session_rows(read_journal(_journals().paths[0]))
    found = [
        (insert(name, table.column_names), list(row.values()))
        for name, table in rows.tables.items()
        for row in table.to_pylist()
    ]
    body = insert("message_bodies", ["hash", "body"])
    return found + [(body, [*item]) for item in rows.bodies.items()]


def insert(name: str, columns: list[str]) -> str:
    """A statement that takes one row."""
    names = ", ".join(f'"{column}"' for column in columns)
    return f"INSERT INTO {name} ({names}) VALUES ({', '.join('?' * len(columns))})"


def _row_by_row(turn: int, *, together: bool) -> float:
    """Seconds for each event."""
    rows = _rows()
    events = sum(statement.startswith("INSERT INTO events ") for statement, _ in rows)
    with _folder() as folder, Store(folder / "traces.duckdb").writing() as connection:
        started = time.perf_counter()
        with transaction(connection) if together else nullcontext():
            for statement, values in rows:
                connection.execute(statement, values)
        return (time.perf_counter() - started) / events


@cache
def _in_full() -> float:
    """Bytes of all requests and answers for each turn, had each been written out."""
    size = 0
    for path in _journals().paths:
        session = read_journal(path)
        length = {each.position: len(each.message.encoded) for each in session.messages}
        size += sum(length[place] for call in session.calls for place in call.request)
        size += sum(length[call.reply] for call in session.calls)
    return size / _journals().turns


TOPIC: Final = Topic(
    name="store",
    unit="event",
    sides={
        "writer": lambda turn: _store(turn).seconds,
        "transaction": partial(_row_by_row, together=True),
        "autocommit": partial(_row_by_row, together=False),
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
        "database": lambda turn: _store(turn).disk,
        "bodies": lambda turn: _store(turn).bodies,
        "in full": lambda _: _in_full(),
        "inspect log": inspect_log,
    },
    rows=(
        Row(
            name="store-bodies",
            what="text of messages, each stored once",
            ours="bodies",
            peer="in full",
            against="every request and answer in full",
        ),
        Row(
            name="store-disk",
            what="the database, compressed, with all its tables",
            ours="database",
            peer="in full",
            against="every request and answer in full",
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
