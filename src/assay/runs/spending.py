"""What a run has cost so far, from its journals and its database."""

from contextlib import suppress
from typing import NamedTuple

from assay.errors import JournalError, UsageError
from assay.traces.folder import RunFolder
from assay.traces.journal import read_journal
from assay.traces.queries import stored_cost
from assay.traces.store import Store

from .kind import PreparedRun, RunChoices

__all__ = ["OpenSpending", "open_spending", "spent_so_far"]


class OpenSpending(NamedTuple):
    """What the trials of an arm have cost that are begun and have no end."""

    trials: int
    tokens: int
    dollars: float | None
    """None if the price of a call is not known."""


def open_spending(folder: RunFolder) -> dict[str, OpenSpending]:
    """What open trials have cost, by arm; one that cannot be read says nothing."""
    spent: dict[str, OpenSpending] = {}
    for path in folder.journals():
        with suppress(JournalError):
            session = read_journal(path)
            before = spent.get(session.header.subject, OpenSpending(0, 0, 0.0))
            costs = [before.dollars, *(call.cost_usd for call in session.calls)]
            known = [cost for cost in costs if cost is not None]
            spent[session.header.subject] = OpenSpending(
                before.trials + 1,
                before.tokens + sum(call.usage.total for call in session.calls),
                sum(known) if len(known) == len(costs) else None,
            )
    return spent


def spent_so_far(run: PreparedRun[RunChoices], *, patience: float | None = None) -> float:
    """Dollars of all calls of an unfinished run; 0 for a new one.

    Raises:
        StoreBusy: Another process held the database for longer than `patience`, in seconds.
    """
    folder = run.resumed
    if folder is None:
        return 0.0
    dollars = folder.losses()
    journaled = []
    for path in (*folder.journals(), *folder.aside()):
        with suppress(JournalError):
            session = read_journal(path)
            if path.suffix == ".jsonl":
                journaled.append(session.header.session_id)
            dollars += sum(call.cost_usd or 0.0 for call in session.calls)
    # Without a database nothing was stored yet.
    store = Store(run.config.database, patience=patience)
    with suppress(UsageError), store.reading() as connection:
        dollars += stored_cost(connection, run.record.id, without=journaled)
    return dollars
