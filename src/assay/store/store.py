"""The database with its journals: leftover sessions are stored before the file is opened.

Sessions of a SessionTracer wait in journals after they end, or after their process died;
opening the database stores them, so that readers always see them. `ingest_leftovers` also
stores ended sessions of interrupted runs.

An interrupted run of `assay run` stays unfinished, because it can be resumed; a session of a
SessionTracer whose process died cannot, and ends as an infrastructure error. The folder of a
session is locked while it is recorded, so any process may store an unlocked one.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import duckdb

from assay.errors import JournalError, StoreError, UsageError
from assay.store.database import StoreFile
from assay.store.journal import Journal, set_aside_damaged
from assay.store.recorder import Recorder
from assay.store.records import ErrorRecord
from assay.store.run_folder import RunFolder, RunHeld, journal_root, unfinished_runs
from assay.store.writer import (
    EndedJournal,
    JournalDamaged,
    SessionStored,
    StoringFailed,
    WriterEvent,
    store_journals,
)
from assay.types import StopReason, TrialState

TRACER_COMMAND = "SessionTracer"
"""Command in the record of a run that a tracer made."""

_BATCH = 100
"""Folders that are locked and stored together, unless they are large."""
_BATCH_BYTES = 32_000_000

_DIED = ErrorRecord(
    type="ProcessDied",
    message="the process died before the session ended; what it had journaled is kept",
)

_log = logging.getLogger(__name__)
_not_traced: set[Path] = set()
"""Run folders known not to be of a tracer."""


def store_traced_sessions(database: Path, *, patience: float | None = 0.0) -> None:
    """Store the sessions of tracers that are no longer recorded.

    Takes almost no time if there are none.

    Args:
        database: The database file, created if missing.
        patience: Seconds to wait for another process that has the file; None: no limit.

    Raises:
        StoreError: They cannot be stored now; their journals are kept.
    """
    waiting = deque(folder for folder in _find_traced(database) if folder.holder() is None)
    while waiting:
        with ExitStack() as held:
            journals: dict[RunFolder, list[Path]] = {}
            size = 0
            while waiting and len(journals) < _BATCH and size < _BATCH_BYTES:
                folder = waiting.popleft()
                # Skip folders that another process has taken or resumed meanwhile.
                with suppress(JournalError, UsageError):
                    held.enter_context(folder.hold())
                    journals[folder] = folder.journals()
                    size += sum(path.stat().st_size for path in journals[folder])
            _store_and_remove(StoreFile(database, patience=patience), journals, _log_damage)


def _log_damage(event: WriterEvent) -> None:
    if isinstance(event, JournalDamaged):
        _log.warning("%s", event)


def _find_traced(database: Path) -> list[RunFolder]:
    """Return the folders of tracer sessions, ended or not, the oldest first.

    The order matters, because it determines the versions of experiments.
    """
    try:
        names = [Path(entry.path) for entry in os.scandir(journal_root(database))]
    except OSError:
        return []
    found = []
    for path in set(names) - _not_traced:
        with suppress(JournalError, UsageError):
            folder = RunFolder.open(database, path.name)
            if folder.record.command == TRACER_COMMAND:
                found.append(folder)
            else:
                _not_traced.add(path)
    return sorted(found, key=lambda folder: (folder.record.created_at, folder.folder))


def ingest_leftovers(
    store: StoreFile, on_event: Callable[[WriterEvent], None] = lambda event: None
) -> int:
    """Store the ended sessions of all runs that no process has locked; return their number."""
    file = StoreFile(store.path)
    stored = 0

    def count(event: WriterEvent) -> None:
        nonlocal stored
        stored += isinstance(event, SessionStored)
        on_event(event)

    for folder in unfinished_runs(store.path):
        # Skip runs that another process is executing.
        with suppress(RunHeld), folder.hold():
            if folder.record.command == TRACER_COMMAND:
                _store_and_remove(file, {folder: folder.journals()}, count)
            else:
                batch = [EndedJournal(folder.record, path) for path in folder.journals()]
                store_journals(file, batch, count)
    return stored


def _store_and_remove(
    store: StoreFile,
    journals: Mapping[RunFolder, Sequence[Path]],
    on_event: Callable[[WriterEvent], None],
) -> None:
    """Store tracer sessions, then remove their folders.

    Raises:
        StoreError: A session cannot be stored; its journal is kept.
    """
    events: list[WriterEvent] = []
    ids = [folder.record.id for folder in journals]
    batch = [
        EndedJournal(folder.record, path)
        for folder, paths in journals.items()
        for path in paths
    ]

    def set_status(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(_STATUS, [ids])

    store_journals(store, batch, events.append, then=set_status)
    known = {event.session_id for event in events}
    if left := [ended for ended in batch if ended.session_id not in known]:
        for ended in left:
            _end_session(ended.journal)
        store_journals(store, left, events.append, then=set_status)
    failed = [event for event in events if isinstance(event, StoringFailed)]
    for event in events:
        if isinstance(event, JournalDamaged):
            # A tracer session cannot be repeated, so its damaged journal is kept.
            event = replace(event, path=set_aside_damaged(event.path))
        on_event(event)
    kept = {event.session_id for event in failed}
    done = {
        folder: paths
        for folder, paths in journals.items()
        if not any(path.stem in kept for path in paths)
    }
    for folder, paths in done.items():
        for path in paths:
            path.unlink(missing_ok=True)
        folder.remove()
    if failed:
        raise StoreError(str(failed[0]))


_STATUS = """
    UPDATE runs SET finished_at = now() AT TIME ZONE 'UTC', status = CASE
        WHEN EXISTS (FROM trials t WHERE t.run_id = runs.id AND t.state = 'infrastructure')
        THEN 'incomplete' ELSE 'finished' END
    WHERE id IN (SELECT unnest(?::VARCHAR[]))
"""


def _end_session(path: Path) -> None:
    journal, session = Journal.reopen(path)
    recorder = Recorder(journal, session)
    times = [session.header.created_at, *(message.at for message in session.messages)]
    times += [call.at for call in session.calls] + [played.at for played in session.played]
    last = max(times)
    recorder.seconds = last - session.header.created_at
    recorder.end(TrialState.INFRASTRUCTURE, StopReason.PROCESS_DIED, {}, _DIED, at=last)


class Store(StoreFile):
    """One database file, including all tracer sessions that have ended."""

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a read-only connection; the file must exist."""
        self._store_traced()
        with super().reading() as connection:
            yield connection

    def _store_traced(self) -> None:
        # Sessions that cannot be stored now stay in their journals.
        with suppress(StoreError, OSError):
            store_traced_sessions(self.path)

    @contextmanager
    def writing(self, *, beside: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection for writing, and create the file if it is missing."""
        self._store_traced()
        with super().writing(beside=beside) as connection:
            yield connection
