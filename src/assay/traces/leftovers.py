"""What processes that died left in their journals, brought into the store.

Sessions that had ended are stored. A run of `assay run` stays unfinished, for it can be
resumed; a session of a SessionTracer cannot, and ends as an infrastructure error.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from assay.errors import JournalError, StoreError
from assay.types import StopReason, TrialState

from .folder import RunFolder, RunHeld, unfinished_runs
from .ingest import finish_run
from .intake import (
    EndedJournal,
    JournalDamaged,
    SessionStored,
    StoringFailed,
    WriterEvent,
    store_journals,
)
from .journal import Journal, set_aside
from .records import EndRecord, ErrorRecord
from .schema import RunStatus
from .store import Store

__all__ = ["TRACER_COMMAND", "finish_traced", "ingest_leftovers"]

TRACER_COMMAND = "SessionTracer"
"""What stands as the command of a run that a tracer made."""

_DIED = ErrorRecord(
    type="ProcessDied",
    message="the process died before the session ended; what it had journaled is kept",
)


def ingest_leftovers(
    store: Store, on_event: Callable[[WriterEvent], None] = lambda event: None
) -> int:
    """Store the ended sessions of all runs that no living process holds; return how many."""
    stored = 0

    def count(event: WriterEvent) -> None:
        nonlocal stored
        stored += isinstance(event, SessionStored)
        on_event(event)

    for folder in unfinished_runs(store.path):
        # A run that is held, or was finished meanwhile, is in good hands.
        with suppress(RunHeld), folder.hold():
            if folder.record.command == TRACER_COMMAND:
                _bury(folder)
                finish_traced(store, folder, count)
            else:
                batch = [EndedJournal(folder.record, path) for path in folder.journals()]
                store_journals(store, batch, count)
    return stored


def _bury(folder: RunFolder) -> None:
    """Give an end to the sessions of a process that died."""
    for path in folder.journals():
        try:
            journal, session = Journal.reopen(path)
        except JournalError:
            # Whoever stores it says so.
            continue
        if session.end is not None:
            continue
        times = [session.header.created_at, *(each.at for each in session.messages)]
        times += [each.at for each in session.calls] + [each.at for each in session.played]
        last = max(times)
        end = EndRecord(
            at=last,
            state=TrialState.INFRASTRUCTURE,
            stop_reason=StopReason.PROCESS_DIED,
            duration_s=last - session.header.created_at,
            error=_DIED,
        )
        journal.append_end(end)


def finish_traced(
    store: Store,
    folder: RunFolder,
    on_event: Callable[[WriterEvent], None] = lambda event: None,
) -> None:
    """Store the session of a tracer that has ended, and remove its folder.

    Raises:
        StoreError: it cannot be stored; the journal stays.
    """
    events: list[WriterEvent] = []
    store_journals(
        store, [EndedJournal(folder.record, path) for path in folder.journals()], events.append
    )
    for event in events:
        if isinstance(event, JournalDamaged):
            # Nobody can play such a session again, and its folder is about to go.
            event = replace(event, path=set_aside(event.path))
        on_event(event)
        if isinstance(event, StoringFailed):
            raise StoreError(str(event))
    whole = all(
        isinstance(event, SessionStored) and event.state is not TrialState.INFRASTRUCTURE
        for event in events
    )
    if not all(isinstance(event, JournalDamaged) for event in events):
        with store.writing() as connection:
            status = RunStatus.FINISHED if whole else RunStatus.INCOMPLETE
            finish_run(connection, folder.record.id, status, at=time.time())
    for path in folder.journals():
        path.unlink()
    folder.remove()
