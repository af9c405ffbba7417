"""What a run has cost so far, from its ledger, its journals and its database."""

import math
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple

from assay.errors import JournalError, UsageError
from assay.models import Budget
from assay.traces.folder import RunFolder
from assay.traces.journal import read_journal
from assay.traces.queries import stored_cost
from assay.traces.store import Store

from .kind import PreparedRun, RunChoices
from .ledger import PICO, Balance, Ledger

__all__ = [
    "OpenSpending",
    "begin_run",
    "lost_so_far",
    "open_spending",
    "resume_budget",
    "spent_so_far",
]


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


def spent_so_far(
    run: PreparedRun[RunChoices],
    *,
    patience: float | None = None,
    allow_different: Collection[str] = (),
) -> float:
    """Dollars that an unfinished run has spent, at most; 0 for a new one.

    Args:
        run: The run.
        patience: Seconds to wait for the database.
        allow_different: With `ledger` in it, a ledger that is gone is done without.

    Raises:
        StoreBusy: Another process held the database for longer than that.
        UsageError: The ledger is gone or damaged.
    """
    folder = run.resumed
    if folder is None:
        return 0.0
    balance = _balance(folder, allow_different)
    return max(_recorded(run, folder, patience), balance.most_usd if balance else 0.0)


def resume_budget(
    run: PreparedRun[RunChoices],
    folder: RunFolder,
    budget: Budget,
    allow_different: Collection[str] = (),
) -> Balance:
    """Have a budget count what was spent before, and write down what comes; for the holder.

    Returns:
        What the ledger came to; its open calls were in flight when the run was left.
    """
    spent = spent_so_far(run, allow_different=allow_different)
    ledger, balance = Ledger(folder.ledger), _balance(folder, allow_different)
    if balance is None:
        balance = Balance()
        ledger.begin(math.ceil(spent * PICO))
        folder.rewrite(folder.record, has_ledger=True)
    else:
        balance = ledger.resume()
    budget.resume(spent, ledger)
    return balance


def begin_run(
    prepared: PreparedRun[Any],
    budget: Budget | None,
    notice: Callable[[str], None],
    folder: RunFolder,
) -> None:
    """Keep who answers from now on, and count what earlier attempts have spent."""
    if folder.record != prepared.record:
        folder.rewrite(prepared.record, has_ledger=folder.has_ledger)
    if budget is None:
        return
    balance = resume_budget(prepared, folder, budget, prepared.allow_different)
    if balance.open:
        notice(
            f"{len(balance.open)} calls were under way when the run was last left and may be "
            f"billed: they count with ${balance.open_usd:.4f}, the most they can have cost"
        )


def lost_so_far(folder: RunFolder) -> float:
    """Dollars of calls that have no answer to show for it, at most."""
    lost = folder.losses()
    with suppress(OSError, UsageError):
        lost += Ledger(folder.ledger).read().lost_usd
    return lost


def _balance(folder: RunFolder, allow_different: Collection[str]) -> Balance | None:
    """What the ledger comes to; None without one."""
    if not folder.has_ledger:
        return None  # the run is older than ledgers, or had no budget
    try:
        return Ledger(folder.ledger).read()
    except FileNotFoundError:
        problem = f"{folder.ledger} is gone"
    except UsageError as error:
        problem = str(error)
    if "ledger" in allow_different:
        return None
    raise UsageError(
        f"{problem}: what run {folder.record.id!r} has spent of its budget is not known; put "
        "the file back, or add --allow-different ledger to count what its journals and the "
        "database say, without calls whose answers were lost"
    )


def _recorded(run: PreparedRun[RunChoices], folder: RunFolder, patience: float | None) -> float:
    """What journals and the database say."""
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
