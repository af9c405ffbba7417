"""The single writer: a thread that moves ended sessions from their journals into the store.

Whoever plays sessions is never held up by it. Sessions that end within a moment of each
other share one opening of the database.

Journals are read and made into rows before the database is opened, so that it is held only
while rows go in. A journal is deleted once its session is committed, unless the session
ended as an infrastructure error and may be resumed. Whatever goes wrong is reported, and the
journal stays where it is, so that no session is played anew unasked.
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
"""Sessions that share a transaction: to commit takes longer than to insert one of them."""


@dataclass(frozen=True, slots=True)
class SessionStored:
    """A session is in the store."""

    run_id: str
    session_id: str
    state: TrialState

    def __str__(self) -> str:
        return f"episode {self.session_id} is stored ({self.state})"


@dataclass(frozen=True, slots=True)
class JournalDamaged:
    """A journal could not be understood."""

    run_id: str
    session_id: str
    path: Path
    """Where it is."""
    reason: str

    def __str__(self) -> str:
        return f"episode {self.session_id} is not stored, {self.path} is kept: {self.reason}"


@dataclass(frozen=True, slots=True)
class StoringFailed:
    """A session could not be stored; its journal is kept and tried again on resume."""

    run_id: str
    session_id: str
    reason: str

    def __str__(self) -> str:
        return f"episode {self.session_id} is not stored, its journal is kept: {self.reason}"


WriterEvent: TypeAlias = SessionStored | JournalDamaged | StoringFailed
"""What became of a journal."""

_Tell: TypeAlias = Callable[[WriterEvent], None]


@dataclass(frozen=True, slots=True)
class EndedJournal:
    """The journal of a session that has ended, and the run it belongs to."""

    run: RunRecord
    journal: Path

    @property
    def session_id(self) -> str:
        """The session, by the name of its file."""
        return self.journal.name.removesuffix(".jsonl")


@dataclass(frozen=True, slots=True)
class _Ready:
    ended: EndedJournal
    rows: SessionRows
    state: TrialState


def store_journals(
    store: StoreFile,
    batch: Sequence[EndedJournal],
    on_event: _Tell,
    *,
    then: Callable[[duckdb.DuckDBPyConnection], object] = lambda connection: None,
    given_up: Callable[[], bool] = lambda: False,
) -> None:
    """Move sessions into a store, here and now.

    Journals whose sessions go on are left alone: whoever resumed them hands them over again.
    `then` is called while the store is open, if anything could be stored. What is not stored
    when `given_up` says so stays in its journals.
    """
    once = {ended.journal: ended for ended in batch}
    ready = [found for ended in once.values() if (found := _read(ended, on_event))]
    waiting = {each.ended.journal: each for each in ready}
    if not ready:
        return
    try:
        with store.writing() as connection:
            # These are many small statements: more threads would wait for each other.
            connection.execute("SET threads = 1")
            ensure_run(connection, *_runs(ready))
            ingestion = Ingestion(connection, [each.rows for each in ready])
            for start in range(0, len(ready), _AT_ONCE):
                if given_up():
                    return
                _store(ingestion, ready[start : start + _AT_ONCE], waiting, on_event)
            then(connection)
    except StoreError as error:
        for each in waiting.values():
            on_event(StoringFailed(each.ended.run.id, each.ended.session_id, str(error)))


def _runs(ready: Sequence[_Ready]) -> Iterable[RunRecord]:
    """The runs of sessions, each once, with the experiments that any of its sessions names."""
    runs: dict[str, RunRecord] = {}
    for each in ready:
        run = each.ended.run
        known = runs.setdefault(run.id, run)
        if known.experiments != run.experiments:
            experiments = {one.id: one for one in (*known.experiments, *run.experiments)}
            runs[run.id] = replace(known, experiments=tuple(experiments.values()))
    return runs.values()


def _read(ended: EndedJournal, on_event: _Tell) -> _Ready | None:
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
    ingestion: Ingestion, group: Sequence[_Ready], waiting: dict[Path, _Ready], on_event: _Tell
) -> None:
    try:
        ingestion.store(*(each.rows for each in group))
    except duckdb.Error as error:
        # One session that cannot be stored must not keep the others out.
        if len(group) > 1:
            for each in group:
                _store(ingestion, [each], waiting, on_event)
            return
        failed = waiting.pop(group[0].ended.journal).ended
        on_event(StoringFailed(failed.run.id, failed.session_id, printable(str(error))))
        return
    for each in group:
        ended = waiting.pop(each.ended.journal).ended
        if each.state is not TrialState.INFRASTRUCTURE:
            with suppress(OSError):
                ended.journal.unlink()
        on_event(SessionStored(ended.run.id, ended.session_id, each.state))


_LINGER_S = 0.5
_LOOK_S = 0.1
_FIRST_WORD_S, _WORD_EVERY_S = 2.0, 5.0
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
        """Make a writer that waits to be started.

        Args:
            store: where sessions go.
            on_event: told what became of each session, in the thread of the writer.
            then: called while the store is open, after sessions were stored.
            linger: seconds that a session may wait for others to be stored with.
            given_up: whether nobody waits any longer; what is left stays in its journals.
        """
        self._given_up = given_up
        self._store = store
        self._on_event = on_event
        self._linger, self._then = linger, then
        self._queue: queue.SimpleQueue[EndedJournal | None] = queue.SimpleQueue()
        """None means: go on with what there is."""
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
        """Hand over the journal of a session that has ended."""
        with self._changed:
            self._pending += 1
        self._queue.put(EndedJournal(run, journal))

    def drain(self, tell: Callable[[int], None] = lambda left: None) -> bool:
        """Wait until all that was submitted is stored or reported; False if it was given up.

        `tell` hears now and then how many sessions are left.
        """
        self._queue.put(None)
        due = time.monotonic() + _FIRST_WORD_S
        with self._changed:
            while self._pending and self._crash is None and not self._given_up():
                self._changed.wait(_LOOK_S)
                if time.monotonic() >= due and self._pending:
                    due = time.monotonic() + _WORD_EVERY_S
                    tell(self._pending)
        if self._crash is not None:
            raise self._crash
        return not self._pending

    def close(self) -> None:
        """Store what is left, unless that is given up, then end the thread."""
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
            # A fault of the program, not of a session: whoever waits raises it.
            with self._changed:
                self._crash = error
                self._changed.notify_all()

    def _collect(self) -> list[EndedJournal]:
        """Wait for a journal, then take those that come soon after it."""
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
            size += _size(ended.journal)
        return batch


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
