"""What /proc tells about the processes of a sandbox, seen from outside of it.

Processes end while they are looked at; one that is gone counts nothing.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from assay.core.text import cut, printable

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_NO_ROUTE_6: Final = re.compile(r"^Ip6OutNoRoutes\s+(\d+)", re.MULTILINE)
_NUMBERS: Final = re.compile(r"^NSpid:(.*)$", re.MULTILINE)
_PSS: Final = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


def _read(path: str) -> str:
    try:
        with open(f"/proc/{path}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _names(path: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{path}")
    except OSError:
        return []


def _fields(pid: int) -> list[str]:
    """The fields of `stat` from the third on: a name may hold anything, even brackets."""
    return _read(f"{pid}/stat").rpartition(")")[2].split()


def threads(pid: int) -> list[int]:
    """The threads of a process."""
    return [int(name) for name in _names(f"{pid}/task")]


def descendants(root: int) -> list[int]:
    """All processes below one; those that lost their parent hang below the init of theirs."""
    found: list[int] = []
    waiting = [root]
    seen = {root}
    while waiting:
        pid = waiting.pop()
        for thread in threads(pid):
            for child in map(int, _read(f"{pid}/task/{thread}/children").split()):
                if child not in seen:
                    seen.add(child)
                    found.append(child)
                    waiting.append(child)
    return found


def is_alive(pid: int) -> bool:
    """Whether it still runs: a zombie does not."""
    return (_fields(pid) or ["X"])[0] not in "ZX"


def numbers(pid: int) -> list[int]:
    """Its numbers: ours, and the one it has in a namespace below ours."""
    found = _NUMBERS.search(_read(f"{pid}/status"))
    return [int(number) for number in found[1].split()] if found else []


def names_of(pids: Iterable[int]) -> str:
    """Their command lines, for a person."""
    lines = (_read(f"{pid}/cmdline").replace("\0", " ").strip() for pid in pids)
    different = dict.fromkeys(cut(line, 80) for line in lines if line)
    return cut(printable(", ".join(different)), 400)


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of these, and of the children that they have waited for."""
    ticks = 0
    for pid in pids:
        ticks += sum(map(int, _fields(pid)[11:15]))
    return ticks / _TICKS


def resident_memory(pid: int) -> int:
    """Bytes that it has in memory; what it shares with others counts for each of them."""
    pages = _read(f"{pid}/statm").split()[1:2]
    return int(pages[0]) * _PAGE if pages else 0


def proportional_memory(pid: int) -> int:
    """Return resident memory, with what is shared divided among those who share it."""
    found = _PSS.search(_read(f"{pid}/smaps_rollup"))
    return int(found[1]) * 1024 if found else resident_memory(pid)


def unlinked_bytes(pids: Iterable[int]) -> int:
    """The size of open files that have no name any more, and so stand in no folder."""
    sizes: dict[tuple[int, int], int] = {}
    for status in _open_files(pids):
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
            sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _open_files(pids: Iterable[int]) -> Iterator[os.stat_result]:
    for pid in pids:
        for name in _names(f"{pid}/fd"):
            try:
                yield os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue


def refused_connections(pid: int) -> int:
    """How often somebody in its network namespace sent something that had no way out."""
    lines = [line.split() for line in _read(f"{pid}/net/snmp").splitlines()]
    tables = [line for line in lines if line and line[0] == "Ip:"]
    refused = 0
    if len(tables) == 2 and "OutNoRoutes" in tables[0]:
        refused += int(tables[1][tables[0].index("OutNoRoutes")])
    found = _NO_ROUTE_6.search(_read(f"{pid}/net/snmp6"))
    return refused + (int(found[1]) if found else 0)


OUTPUT_LIMIT: Final = 2**20
"""Bytes of output that are kept."""


class BoundedOutput:
    """Takes any number of bytes, and holds at most twice its limit at any time."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many bytes of the middle are gone."""
        return self._dropped + max(0, len(self._tail) - self._half)

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._half:
            excess = len(self._tail) - self._half
            del self._tail[:excess]
            self._dropped += excess

    def kept(self) -> bytes:
        """What there is; where the middle is gone, a line says how much of it."""
        if not self.dropped:
            return bytes(self._head + self._tail)
        notice = f"\n[... {self.dropped} bytes left out ...]\n".encode()
        return bytes(self._head + notice + self._tail[-self._half :])
