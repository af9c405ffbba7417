"""Processes of a sandbox as seen in /proc from outside, and bounded command output.

Processes may end while they are inspected; an ended process counts as nothing.
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


def _list_folder(path: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{path}")
    except OSError:
        return []


def _read_stat(pid: int) -> list[str]:
    """Return the fields of `stat` from the third on; the name before may contain anything."""
    return _read(f"{pid}/stat").rpartition(")")[2].split()


def threads(pid: int) -> list[int]:
    """Return the threads of a process."""
    return [int(name) for name in _list_folder(f"{pid}/task")]


def descendants(root: int) -> list[int]:
    """Return all processes below one; orphans are below the init of their namespace."""
    found: list[int] = []
    pending = [root]
    seen = {root}
    while pending:
        pid = pending.pop()
        for thread in threads(pid):
            for child in map(int, _read(f"{pid}/task/{thread}/children").split()):
                if child not in seen:
                    seen.add(child)
                    found.append(child)
                    pending.append(child)
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    return (_read_stat(pid) or ["X"])[0] not in "ZX"


def all_pids(pid: int) -> list[int]:
    """Return the pids of a process: ours, and those in the namespaces below."""
    found = _NUMBERS.search(_read(f"{pid}/status"))
    return [int(number) for number in found[1].split()] if found else []


def command_lines(pids: Iterable[int]) -> str:
    """Return the command lines of processes, for a message."""
    lines = (_read(f"{pid}/cmdline").replace("\0", " ").strip() for pid in pids)
    different = dict.fromkeys(cut(line, 80) for line in lines if line)
    return cut(printable(", ".join(different)), 400)


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of processes, and of the children they have waited for."""
    ticks = 0
    for pid in pids:
        ticks += sum(map(int, _read_stat(pid)[11:15]))
    return ticks / _TICKS


def resident_memory(pid: int) -> int:
    """Return the memory of a process in bytes; shared memory counts fully."""
    pages = _read(f"{pid}/statm").split()[1:2]
    return int(pages[0]) * _PAGE if pages else 0


def proportional_memory(pid: int) -> int:
    """Return the memory of a process in bytes; shared memory is divided among its users."""
    found = _PSS.search(_read(f"{pid}/smaps_rollup"))
    return int(found[1]) * 1024 if found else resident_memory(pid)


def unlinked_bytes(pids: Iterable[int]) -> int:
    """Return the size of open files that are unlinked, and thus in no folder."""
    sizes: dict[tuple[int, int], int] = {}
    for status in _open_files(pids):
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
            sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _open_files(pids: Iterable[int]) -> Iterator[os.stat_result]:
    for pid in pids:
        for name in _list_folder(f"{pid}/fd"):
            try:
                yield os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue


def refused_connections(pid: int) -> int:
    """Return how often a process in its network namespace sent data without a route."""
    lines = [line.split() for line in _read(f"{pid}/net/snmp").splitlines()]
    tables = [line for line in lines if line and line[0] == "Ip:"]
    refused = 0
    if len(tables) == 2 and "OutNoRoutes" in tables[0]:
        refused += int(tables[1][tables[0].index("OutNoRoutes")])
    found = _NO_ROUTE_6.search(_read(f"{pid}/net/snmp6"))
    return refused + (int(found[1]) if found else 0)


OUTPUT_LIMIT: Final = 2**20
"""Maximum number of bytes of output that are kept."""


class BoundedOutput:
    """Accepts any number of bytes, and stores at most twice its limit at any time."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Number of bytes missing from the middle."""
        return self._dropped + max(0, len(self._tail) - self._half)

    def add(self, chunk: bytes) -> None:
        """Append bytes."""
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._half:
            excess = len(self._tail) - self._half
            del self._tail[:excess]
            self._dropped += excess

    def content(self) -> bytes:
        """Return the stored output, with a line for bytes missing from the middle."""
        if not self.dropped:
            return bytes(self._head + self._tail)
        notice = f"\n[... {self.dropped} bytes left out ...]\n".encode()
        return bytes(self._head + notice + self._tail[-self._half :])
