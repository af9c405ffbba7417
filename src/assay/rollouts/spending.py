"""What a run has cost so far, from its journals and its database."""

from contextlib import suppress

from assay.errors import JournalError, UsageError
from assay.traces.journal import read_journal
from assay.traces.queries import stored_cost
from assay.traces.store import Store

from .prepare import PreparedRun

__all__ = ["spent_so_far"]


def spent_so_far(prepared: PreparedRun, *, patience: float | None = None) -> float:
    """Dollars of all calls of an unfinished run; 0 for a new one.

    Raises:
        StoreBusy: Another process held the database for longer than `patience`, in seconds.
    """
    folder = prepared.resumed
    if folder is None:
        return 0.0
    dollars = folder.losses()
    journaled = []
    for path in folder.journals():
        with suppress(JournalError):
            session = read_journal(path)
            journaled.append(session.header.session_id)
            dollars += sum(call.cost_usd or 0.0 for call in session.calls)
    # Without a database nothing was stored yet.
    store = Store(prepared.config.database, patience=patience)
    with suppress(UsageError), store.reading() as connection:
        dollars += stored_cost(connection, prepared.record.id, without=journaled)
    return dollars
