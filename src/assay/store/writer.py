"""The single writer: a thread that moves ended sessions from their journals to the database.

Sessions in progress never wait for it. Sessions that end at about the same time are stored
while the database is open once.

Journals are read and converted to rows before the database is opened, so that it is locked
only during inserts. A journal is deleted once its session is committed, unless the session
ended with an infrastructure error and may be resumed. If anything fails, an event reports it
and the journal is kept, so that no session is repeated.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import duckdb

from assay.core.text import printable
from assay.errors import JournalError, StoreError
from assay.store.database import StoreFile
from assay.store.ingest import Ingestion, ensure_run
from assay.store.journal import is_blank, read_session
from assay.store.records import RunRecord
from assay.store.rows import SessionRows, session_rows
from assay.types import TrialState

_AT_ONCE = 16
"""Sessions per transaction, because a commit takes longer than inserting one session."""


@dataclass(frozen=True, slots=True)
class SessionStored:
    """A session was stored."""

    run_id: str
    session_id: str
    state: TrialState

    def __str__(self) -> str:
        return f"episode {self.session_id} is stored ({self.state})"


@dataclass(frozen=True, slots=True)
class JournalDamaged:
    """A journal could not be read."""

    run_id: str
    session_id: str
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"episode {self.session_id} is not stored, {self.path} is kept: {self.reason}"


@dataclass(frozen=True, slots=True)
class StoringFailed:
    """A session could not be stored; its journal is kept and stored on resume."""

    run_id: str
    session_id: str
    reason: str

    def __str__(self) -> str:
        return f"episode {self.session_id} is not stored, its journal is kept: {self.reason}"


WriterEvent: TypeAlias = SessionStored | JournalDamaged | StoringFailed
"""Result of storing a journal."""

_OnEvent: TypeAlias = Callable[[WriterEvent], None]


@dataclass(frozen=True, slots=True)
class EndedJournal:
    """The journal of a session that has ended, and the run it belongs to."""

    run: RunRecord
    journal: Path

    @property
    def session_id(self) -> str:
        """Id of the session, from the name of its file."""
        return self.journal.name.removesuffix(".jsonl")


@dataclass(frozen=True, slots=True)
class _Ready:
    ended: EndedJournal
    rows: SessionRows
    state: TrialState


def store_journals(
    store: StoreFile,
    batch: Sequence[EndedJournal],
    on_event: _OnEvent,
    *,
    then: Callable[[duckdb.DuckDBPyConnection], object] = lambda connection: None,
    given_up: Callable[[], bool] = lambda: False,
) -> None:
    """Move ended sessions to the database, synchronously.

    Sessions that were resumed meanwhile are skipped; they are submitted again when they end.
    `then` is called while the database is open, if there was anything to store. When `given_up`
    returns True, the remaining sessions stay in their journals.
    """
    once = {ended.journal: ended for ended in batch}
    ready = [rows for ended in once.values() if (rows := _read_rows(ended, on_event))]
    waiting = {session.ended.journal: session for session in ready}
    if not ready:
        return
    try:
        with store.writing() as connection:
            # With many small statements, several threads would only wait for each other.
            connection.execute("SET threads = 1")
            ensure_run(connection, *_merge_runs(ready))
            ingestion = Ingestion(connection, [session.rows for session in ready])
            for start in range(0, len(ready), _AT_ONCE):
                if given_up():
                    return
                _store(ingestion, ready[start : start + _AT_ONCE], waiting, on_event)
            then(connection)
    except StoreError as error:
        for session in waiting.values():
            on_event(StoringFailed(session.ended.run.id, session.ended.session_id, str(error)))


def _merge_runs(ready: Sequence[_Ready]) -> Iterable[RunRecord]:
    """Return the runs of sessions without duplicates, each with all its experiments."""
    runs: dict[str, RunRecord] = {}
    for session in ready:
        run = session.ended.run
        known = runs.setdefault(run.id, run)
        if known.experiments != run.experiments:
            experiments = {e.id: e for e in (*known.experiments, *run.experiments)}
            runs[run.id] = replace(known, experiments=tuple(experiments.values()))
    return runs.values()


def _read_rows(ended: EndedJournal, on_event: _OnEvent) -> _Ready | None:
    try:
        if is_blank(ended.journal):
            return None  # the disk was full before its first line
        session = read_session(ended.journal, ended.run.id)
        if session.end is None:
            return None
        return _Ready(ended, session_rows(session), session.end.state)
    except (JournalError, ValueError, TypeError, OverflowError) as error:
        reason = str(error)
        if isinstance(error.__cause__, OSError):
            on_event(StoringFailed(ended.run.id, ended.session_id, reason))
        else:
            on_event(JournalDamaged(ended.run.id, ended.session_id, ended.journal, reason))
        return None


def _store(
    ingestion: Ingestion,
    group: Sequence[_Ready],
    waiting: dict[Path, _Ready],
    on_event: _OnEvent,
) -> None:
    try:
        ingestion.store(*(session.rows for session in group))
    except duckdb.Error as error:
        # Store them one by one, so that only the faulty session fails.
        if len(group) > 1:
            for session in group:
                _store(ingestion, [session], waiting, on_event)
            return
        failed = waiting.pop(group[0].ended.journal).ended
        on_event(StoringFailed(failed.run.id, failed.session_id, printable(str(error))))
        return
    for session in group:
        ended = waiting.pop(session.ended.journal).ended
        if session.state is not TrialState.INFRASTRUCTURE:
            with suppress(OSError):
                ended.journal.unlink()
        on_event(SessionStored(ended.run.id, ended.session_id, session.state))


_LINGER_S = 0.5
_POLL_S = 0.1
_FIRST_REPORT_S, _REPORT_EVERY_S = 2.0, 5.0
_BATCH = 64
_BATCH_BYTES = 32_000_000


class Writer:
    """Stores sessions in the background, from `start` until `close`."""

    def __init__(
        self,
        store: StoreFile,
        *,
        on_event: Callable[[WriterEvent], None],
        then: Callable[[duckdb.DuckDBPyConnection], object] = lambda connection: None,
        linger: float = _LINGER_S,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create a writer; call `start` to start it.

        Args:
            store: The database.
            on_event: Called in the writer's thread with the result of each session.
            then: Called while the database is open, after sessions were stored.
            linger: Seconds that a session may wait for others to be stored with.
            given_up: Whether to stop storing; the remaining sessions stay in their journals.
        """
        self._given_up = given_up
        self._store = store
        self._on_event = on_event
        self._linger, self._then = linger, then
        self._queue: queue.SimpleQueue[EndedJournal | None] = queue.SimpleQueue()
        """None: store the collected journals without waiting for more."""
        self._changed = threading.Condition()
        self._pending = 0
        self._crash: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._work, name="assay-writer", daemon=True)
        self._thread.start()

    def submit(self, run: RunRecord, journal: Path) -> None:
        """Add the journal of a session that has ended to the queue."""
        with self._changed:
            self._pending += 1
        self._queue.put(EndedJournal(run, journal))

    def drain(self, tell: Callable[[int], None] = lambda left: None) -> bool:
        """Wait until all submitted sessions are stored or reported; return False if given up.

        `tell` is called from time to time with the number of sessions left.
        """
        self._queue.put(None)
        due = time.monotonic() + _FIRST_REPORT_S
        with self._changed:
            while self._pending and self._crash is None and not self._given_up():
                self._changed.wait(_POLL_S)
                if time.monotonic() >= due and self._pending:
                    due = time.monotonic() + _REPORT_EVERY_S
                    tell(self._pending)
        if self._crash is not None:
            raise self._crash
        return not self._pending

    def close(self) -> None:
        """Store the remaining sessions, unless given up, and end the thread."""
        if self._thread is None:
            return
        try:
            self.drain()
        finally:
            self._closing = True
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        try:
            while not self._closing:
                batch = self._collect()
                store_journals(
                    self._store,
                    batch,
                    self._on_event,
                    then=self._then,
                    given_up=self._given_up,
                )
                with self._changed:
                    self._pending -= len(batch)
                    self._changed.notify_all()
        except BaseException as error:
            # A bug, not a problem with a session; `drain` raises it.
            with self._changed:
                self._crash = error
                self._changed.notify_all()

    def _collect(self) -> list[EndedJournal]:
        """Wait for a journal, then collect those that follow soon."""
        batch: list[EndedJournal] = []
        size = 0
        until = 0.0
        while len(batch) < _BATCH and size < _BATCH_BYTES:
            left = max(0.0, until - time.monotonic()) if batch else None
            try:
                ended = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if ended is None:
                break
            if not batch:
                until = time.monotonic() + self._linger
            batch.append(ended)
            size += _get_size(ended.journal)
        return batch


def _get_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
