"""A store: its file, and what was journaled for it and is not in it yet.

Before the file is opened, the sessions that tracers have ended, or left when their process
died, are moved into it. So nobody who asks a store has to know that they were waiting.

Sessions that had ended are stored. A run of `assay run` stays unfinished, for it can be
resumed; a session of a SessionTracer whose process died cannot, and ends as an infrastructure
error. The folder of a session is locked while it is recorded, so that whoever finds it free
may take it, in any process.
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
from assay.store.journal import Journal, set_aside
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
"""What stands as the command of a run that a tracer made."""

_BATCH = 100
"""Folders that are locked and stored at once, unless they are large."""
_BATCH_BYTES = 32_000_000

_DIED = ErrorRecord(
    type="ProcessDied",
    message="the process died before the session ended; what it had journaled is kept",
)

_log = logging.getLogger(__name__)
_others: set[Path] = set()
"""Folders of runs that are known not to be a tracer's."""


def take_in(database: Path, *, patience: float | None = 0.0) -> None:
    """Store the sessions of tracers that nobody records any more.

    Costs next to nothing where there are none.

    Args:
        database: The file they belong into, made if it is missing.
        patience: Seconds to wait for another process that has the file; None for ever.

    Raises:
        StoreError: They cannot be stored now; their journals stay.
    """
    waiting = deque(folder for folder in _traced(database) if folder.holder() is None)
    while waiting:
        with ExitStack() as held:
            journals: dict[RunFolder, list[Path]] = {}
            size = 0
            while waiting and len(journals) < _BATCH and size < _BATCH_BYTES:
                folder = waiting.popleft()
                # What somebody else took or resumed meanwhile is in good hands.
                with suppress(JournalError, UsageError):
                    held.enter_context(folder.hold())
                    journals[folder] = folder.journals()
                    size += sum(path.stat().st_size for path in journals[folder])
            _finish(StoreFile(database, patience=patience), journals, _tell)


def _tell(event: WriterEvent) -> None:
    if isinstance(event, JournalDamaged):
        _log.warning("%s", event)


def _traced(database: Path) -> list[RunFolder]:
    """The folders of sessions that tracers made, the oldest first, whether they go on or not.

    Versions of experiments follow each other, so that their order counts.
    """
    try:
        names = [Path(entry.path) for entry in os.scandir(journal_root(database))]
    except OSError:
        return []
    found = []
    for path in set(names) - _others:
        with suppress(JournalError, UsageError):
            folder = RunFolder.open(database, path.name)
            if folder.record.command == TRACER_COMMAND:
                found.append(folder)
            else:
                _others.add(path)
    return sorted(found, key=lambda folder: (folder.record.created_at, folder.folder))


def ingest_leftovers(
    store: StoreFile, on_event: Callable[[WriterEvent], None] = lambda event: None
) -> int:
    """Store the ended sessions of all runs that no living process holds; return how many."""
    file = StoreFile(store.path)
    stored = 0

    def count(event: WriterEvent) -> None:
        nonlocal stored
        stored += isinstance(event, SessionStored)
        on_event(event)

    for folder in unfinished_runs(store.path):
        # A run that is held, or was finished meanwhile, is in good hands.
        with suppress(RunHeld), folder.hold():
            if folder.record.command == TRACER_COMMAND:
                _finish(file, {folder: folder.journals()}, count)
            else:
                batch = [EndedJournal(folder.record, path) for path in folder.journals()]
                store_journals(file, batch, count)
    return stored


def _finish(
    store: StoreFile,
    journals: Mapping[RunFolder, Sequence[Path]],
    on_event: Callable[[WriterEvent], None],
) -> None:
    """Store the sessions of tracers, by their folders, and remove those.

    Raises:
        StoreError: One cannot be stored; its journal stays.
    """
    events: list[WriterEvent] = []
    ids = [folder.record.id for folder in journals]
    batch = [
        EndedJournal(folder.record, path)
        for folder, paths in journals.items()
        for path in paths
    ]

    def settle(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(_STATUS, [ids])

    store_journals(store, batch, events.append, then=settle)
    known = {event.session_id for event in events}
    if left := [ended for ended in batch if ended.session_id not in known]:
        for ended in left:
            _bury(ended.journal)
        store_journals(store, left, events.append, then=settle)
    failed = [event for event in events if isinstance(event, StoringFailed)]
    for event in events:
        if isinstance(event, JournalDamaged):
            # Nobody can play such a session again.
            event = replace(event, path=set_aside(event.path))
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


def _bury(path: Path) -> None:
    """Give an end to a session whose process died."""
    journal, session = Journal.reopen(path)
    recorder = Recorder(journal, session)
    times = [session.header.created_at, *(each.at for each in session.messages)]
    times += [each.at for each in session.calls] + [each.at for each in session.played]
    last = max(times)
    recorder.seconds = last - session.header.created_at
    recorder.end(TrialState.INFRASTRUCTURE, StopReason.PROCESS_DIED, {}, _DIED, at=last)


class Store(StoreFile):
    """One database file, with all sessions that have ended."""

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that cannot change anything; the file must be there."""
        self._take_in()
        with super().reading() as connection:
            yield connection

    def _take_in(self) -> None:
        # What cannot be stored now stays in its journal, and keeps nobody from the rest.
        with suppress(StoreError, OSError):
            take_in(self.path)

    @contextmanager
    def writing(self, *, beside: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that may write; the file is made if it is missing."""
        self._take_in()
        with super().writing(beside=beside) as connection:
            yield connection
