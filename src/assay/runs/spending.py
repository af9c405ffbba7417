"""What a run may have spent: written down before each call goes out, and settled after it.

A file of lines beside the journals, each with its checksum: `reserve 7 4350000`, then
`settle 7 910000`, or `lose` where there is no answer to show for it; `begin` is what was spent
before the file was there. Amounts are whole picodollars. A call that was open when the process
was killed has no second line, and counts with all that was set aside for it.

What a run has cost so far, from its ledger, its journals and its database.
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
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@dataclass(slots=True)
class Balance:
    """What a ledger comes to, in picodollars."""

    spent: int = 0
    """By calls that have an end, the lost ones among them."""
    lost: int = 0
    """By calls that have no answer to show for it."""
    open: dict[int, int] = field(default_factory=dict)
    """What is set aside for calls without an end, by their numbers."""
    calls: int = 0

    @property
    def open_usd(self) -> float:
        """The most that calls without an end can have cost."""
        return sum(self.open.values()) / PICO

    @property
    def most_usd(self) -> float:
        """The most that can have been spent."""
        return self.spent / PICO + self.open_usd

    @property
    def lost_usd(self) -> float:
        """What calls without an answer may have cost."""
        return self.lost / PICO


class Ledger:
    """The ledger of one run; only the process that holds the run writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._calls = 0

    def begin(self, spent: int) -> None:
        """Start a ledger with what was spent before; an older one is replaced."""
        draft = self.path.with_name(f"{self.path.name}.part")
        draft.unlink(missing_ok=True)
        self._write(_line("begin", 0, spent), draft)
        sync_now(draft)
        draft.rename(self.path)
        sync_now(self.path.parent)

    def reserve(self, amount: int) -> int:
        """Write down what a call may cost; the number of the call."""
        self._calls += 1
        self._write(_line("reserve", self._calls, amount))
        return self._calls

    def settle(self, call: int, amount: int, *, lost: bool) -> None:
        """Write down what a call cost, or may have cost without an answer."""
        self._write(_line("lose" if lost else "settle", call, amount))

    def resume(self) -> Balance:
        """What earlier processes left; calls that they left open count as lost from now on."""
        balance = self.read()
        self._calls = balance.calls
        content = self.path.read_bytes()
        if not content.endswith(b"\n"):
            # Torn by a lost machine; what it was to say counts as never said.
            os.truncate(self.path, content.rfind(b"\n") + 1)
        for call, amount in balance.open.items():
            self.settle(call, amount, lost=True)
        return balance

    def read(self) -> Balance:
        """What it comes to.

        Raises:
            FileNotFoundError: It is not there.
            UsageError: It is damaged.
        """
        balance = Balance()
        for word, call, amount in self._lines():
            match word:
                case "begin":
                    balance.spent += amount
                case "reserve":
                    balance.open[call] = amount
                    balance.calls = max(balance.calls, call)
                case _:
                    # A line that could not be written whole is written again by nobody.
                    balance.open.pop(call, None)
                    balance.spent += amount
                    balance.lost += amount if word == "lose" else 0
        return balance

    def _lines(self) -> Iterator[tuple[str, int, int]]:
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
        # Opened for each line, so that code of a user that closes descriptors does no harm.
        try:
            descriptor = os.open(path or self.path, _FLAGS, 0o666)
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


def _line(word: str, call: int, amount: int) -> bytes:
    body = b"%b %d %d" % (word.encode("ascii"), call, amount)
    return b"%08x %b\n" % (crc32(body), body)


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
    run: PreparedRun[RunConfiguration],
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
    run: PreparedRun[RunConfiguration],
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
    on_message: Callable[[str], None],
    folder: RunFolder,
) -> None:
    """Keep who answers from now on, and count what earlier attempts have spent."""
    if folder.record != prepared.record:
        folder.rewrite(prepared.record, has_ledger=folder.has_ledger)
    if budget is None:
        return
    balance = resume_budget(prepared, folder, budget, prepared.allow_different)
    if balance.open:
        on_message(
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


def _recorded(
    run: PreparedRun[RunConfiguration], folder: RunFolder, patience: float | None
) -> float:
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
    store = Store(run.settings.database, patience=patience)
    with suppress(UsageError), store.reading() as connection:
        dollars += stored_cost(connection, run.record.id, without=journaled)
    return dollars
