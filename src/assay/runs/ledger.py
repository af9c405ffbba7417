"""What a run may have spent: written down before each call goes out, and settled after it.

A file of lines beside the journals, each with its checksum: `reserve 7 4350000`, then
`settle 7 910000`, or `lose` where there is no answer to show for it; `begin` is what was spent
before the file was there. Amounts are whole picodollars. A call that was open when the process
was killed has no second line, and counts with all that was set aside for it.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

from assay._util.syncing import sync_now, sync_soon
from assay.errors import JournalError, UsageError

__all__ = ["Balance", "Ledger"]

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
