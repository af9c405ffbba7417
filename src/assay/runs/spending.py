"""Ledger of a run: the cost of each call is reserved before the call, and settled after it.

The ledger is a text file next to the journals. Each line has a checksum: `reserve 7 4350000`,
then `settle 7 910000`, or `lose` if there was no response; `begin` is the amount spent before
the file existed. Amounts are integers in picodollars. A call that was open when the process
was killed has no second line, and counts with its full reservation.

The total cost of a run follows from its ledger, its journals and its database.
"""

import errno
import math
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from assay.core.files import sync_now, sync_soon
from assay.errors import JournalError, UsageError
from assay.models.budget import Budget
from assay.runs.kind import PreparedRun, RunConfiguration
from assay.store.journal import read_journal
from assay.store.queries import stored_cost
from assay.store.run_folder import RunFolder
from assay.store.store import Store

PICO: Final = 10**12
_OPEN_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@dataclass(slots=True)
class Balance:
    """Totals of a ledger, in picodollars."""

    spent: int = 0
    """Spent on calls that have ended, including lost ones."""
    lost: int = 0
    """Spent on calls without a response."""
    open: dict[int, int] = field(default_factory=dict)
    """Reservations of open calls, by call number."""
    calls: int = 0

    @property
    def open_usd(self) -> float:
        """Maximum cost of open calls, in dollars."""
        return sum(self.open.values()) / PICO

    @property
    def most_usd(self) -> float:
        """Maximum total spending, in dollars."""
        return self.spent / PICO + self.open_usd

    @property
    def lost_usd(self) -> float:
        """Maximum cost of calls without a response, in dollars."""
        return self.lost / PICO


class Ledger:
    """Ledger of one run; only the process that holds the run writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._calls = 0

    def begin(self, spent: int) -> None:
        """Start a ledger with the amount spent before, replacing an older ledger."""
        draft = self.path.with_name(f"{self.path.name}.part")
        draft.unlink(missing_ok=True)
        self._write(_format_line("begin", 0, spent), draft)
        sync_now(draft)
        draft.rename(self.path)
        sync_now(self.path.parent)

    def reserve(self, amount: int) -> int:
        """Record the maximum cost of a call, and return the number of the call."""
        self._calls += 1
        self._write(_format_line("reserve", self._calls, amount))
        return self._calls

    def settle(self, call: int, amount: int, *, lost: bool) -> None:
        """Record the cost of a call; if it is lost, the maximum cost without a response."""
        self._write(_format_line("lose" if lost else "settle", call, amount))

    def resume(self) -> Balance:
        """Return the totals of earlier processes; record the calls they left open as lost."""
        balance = self.read()
        self._calls = balance.calls
        content = self.path.read_bytes()
        if not content.endswith(b"\n"):
            # Torn by a machine crash; an incomplete line is discarded.
            os.truncate(self.path, content.rfind(b"\n") + 1)
        for call, amount in balance.open.items():
            self.settle(call, amount, lost=True)
        return balance

    def read(self) -> Balance:
        """Return the totals.

        Raises:
            FileNotFoundError: The ledger does not exist.
            UsageError: It is damaged.
        """
        balance = Balance()
        for word, call, amount in self._read_lines():
            match word:
                case "begin":
                    balance.spent += amount
                case "reserve":
                    balance.open[call] = amount
                    balance.calls = max(balance.calls, call)
                case _:
                    # An incompletely written line is never written again.
                    balance.open.pop(call, None)
                    balance.spent += amount
                    balance.lost += amount if word == "lose" else 0
        return balance

    def _read_lines(self) -> Iterator[tuple[str, int, int]]:
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):
            check, _, body = line.partition(b" ")
            try:
                if int(check, 16) != crc32(body):
                    raise ValueError
                word, call, amount = body.decode("ascii").split(" ")
                yield word, int(call), int(amount)
            except ValueError:
                raise UsageError(f"{self.path} is damaged in line {number}") from None

    def _write(self, line: bytes, path: Path | None = None) -> None:
        # Opened for each line, in case user code closes file descriptors.
        try:
            descriptor = os.open(path or self.path, _OPEN_FLAGS, 0o666)
            try:
                written = os.write(descriptor, line)
                if written < len(line):
                    os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
            sync_soon(path or self.path)
        except OSError as error:
            raise JournalError(
                f"cannot write to {self.path}: {error.strerror}; free space or make the folder "
                "writable, then resume the run"
            ) from error


def _format_line(word: str, call: int, amount: int) -> bytes:
    body = b"%b %d %d" % (word.encode("ascii"), call, amount)
    return b"%08x %b\n" % (crc32(body), body)


class OpenSpending(NamedTuple):
    """Spending of the open trials of an arm."""

    trials: int
    tokens: int
    dollars: float | None
    """None if the price of a call is unknown."""


def open_spending(folder: RunFolder) -> dict[str, OpenSpending]:
    """Return the spending of open trials by arm; unreadable journals are skipped."""
    spent: dict[str, OpenSpending] = {}
    for path in folder.journals():
        with suppress(JournalError):
            session = read_journal(path)
            earlier = spent.get(session.header.subject, OpenSpending(0, 0, 0.0))
            costs = [earlier.dollars, *(call.cost_usd for call in session.calls)]
            known_costs = [cost for cost in costs if cost is not None]
            spent[session.header.subject] = OpenSpending(
                earlier.trials + 1,
                earlier.tokens + sum(call.usage.total for call in session.calls),
                sum(known_costs) if len(known_costs) == len(costs) else None,
            )
    return spent


def compute_spending(
    run: PreparedRun[RunConfiguration],
    *,
    patience: float | None = None,
    allow_different: Collection[str] = (),
) -> float:
    """Return the maximum spending of an unfinished run in dollars; 0 for a new run.

    Args:
        run: The run.
        patience: Seconds to wait for the database.
        allow_different: If it contains `ledger`, a missing or damaged ledger is ignored.

    Raises:
        StoreBusy: Another process held the database longer than `patience`.
        UsageError: The ledger is missing or damaged.
    """
    folder = run.resumed
    if folder is None:
        return 0.0
    balance = _read_balance(folder, allow_different)
    return max(_sum_recorded_cost(run, folder, patience), balance.most_usd if balance else 0.0)


def resume_budget(
    run: PreparedRun[RunConfiguration],
    folder: RunFolder,
    budget: Budget,
    allow_different: Collection[str] = (),
) -> Balance:
    """Charge earlier spending to a budget, and record later spending in the ledger.

    Called by the process that holds the run.

    Returns:
        The totals of the ledger. Its open calls were in flight when the run stopped.
    """
    spent = compute_spending(run, allow_different=allow_different)
    ledger, balance = Ledger(folder.ledger), _read_balance(folder, allow_different)
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
    on_message: Callable[[str], None],
    folder: RunFolder,
) -> None:
    """Save the current record of the run, and charge the spending of earlier attempts."""
    if folder.record != prepared.record:
        folder.rewrite(prepared.record, has_ledger=folder.has_ledger)
    if budget is None:
        return
    balance = resume_budget(prepared, folder, budget, prepared.allow_different)
    if balance.open:
        on_message(
            f"{len(balance.open)} calls were in flight when the run stopped and may be billed; "
            f"their maximum cost, ${balance.open_usd:.4f}, counts as spent"
        )


def compute_lost_cost(folder: RunFolder) -> float:
    """Return the maximum cost of calls without a response, in dollars."""
    lost = folder.losses()
    with suppress(OSError, UsageError):
        lost += Ledger(folder.ledger).read().lost_usd
    return lost


def _read_balance(folder: RunFolder, allow_different: Collection[str]) -> Balance | None:
    """Return the totals of the ledger; None if there is none or a lost one is allowed."""
    if not folder.has_ledger:
        return None  # the run predates ledgers, or had no budget
    try:
        return Ledger(folder.ledger).read()
    except FileNotFoundError:
        problem = f"{folder.ledger} is missing"
    except UsageError as error:
        problem = str(error)
    if "ledger" in allow_different:
        return None
    raise UsageError(
        f"{problem}, so the spending of run {folder.record.id!r} is unknown; restore the file, "
        "or add --allow-different ledger to count only the cost in its journals and the "
        "database, without calls whose responses were lost"
    )


def _sum_recorded_cost(
    run: PreparedRun[RunConfiguration], folder: RunFolder, patience: float | None
) -> float:
    """Return the cost recorded in journals and the database."""
    dollars = folder.losses()
    journal_ids = []
    for path in (*folder.journals(), *folder.aside()):
        with suppress(JournalError):
            session = read_journal(path)
            if path.suffix == ".jsonl":
                journal_ids.append(session.header.session_id)
            dollars += sum(call.cost_usd or 0.0 for call in session.calls)
    # A missing database raises UsageError; then nothing was stored yet.
    store = Store(run.settings.database, patience=patience)
    with suppress(UsageError), store.reading() as connection:
        dollars += stored_cost(connection, run.record.id, without=journal_ids)
    return dollars
