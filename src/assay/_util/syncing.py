"""Files that are brought to disk soon, many at once, by one thread of this process.

What was written is safe from the death of a process at once, but a machine that loses power
keeps only what was synced. To wait for that after every line would slow every trial down, so
lines of all trials that were written within a moment are synced together.
"""

import atexit
import errno
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["sync_now", "sync_soon"]

_PAUSE_S = 0.1
"""How long lines are gathered; a sync costs about the same for one as for a thousand."""
_FEW = 4
"""Up to so many files are synced one by one, more by a sync of their whole file system."""


class _Syncing:
    """What waits to be synced, and the thread that does it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work = threading.Lock()
        self._wake = threading.Event()
        self._waiting: set[Path] = set()
        self._failed: dict[Path, OSError] = {}
        self._thread: threading.Thread | None = None

    def soon(self, *paths: Path) -> None:
        with self._lock:
            is_first = not self._waiting
            self._waiting.update(paths)
            failed = self._failed.pop(paths[0], None)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="assay-sync", daemon=True
                )
                self._thread.start()
        if is_first:
            self._wake.set()
        if failed:
            raise failed

    def _work(self) -> None:
        while self._wake.wait():
            self._wake.clear()
            time.sleep(_PAUSE_S)
            self.now()

    def now(self) -> None:
        with self._at_work:
            with self._lock:
                waiting, self._waiting = self._waiting, set()
            for device in _by_device(waiting):
                try:
                    _sync(device)
                except OSError as error:
                    with self._lock:
                        self._failed |= dict.fromkeys(device, error)


def _by_device(paths: Iterable[Path]) -> Iterable[list[Path]]:
    devices: dict[int, list[Path]] = {}
    for path in paths:
        # What is gone meanwhile was stored, or nobody wants it.
        with suppress(OSError):
            devices.setdefault(path.stat().st_dev, []).append(path)
    return devices.values()


def _sync(paths: list[Path]) -> None:
    if len(paths) <= _FEW or (syncfs := _syncfs()) is None:
        for path in paths:
            with suppress(FileNotFoundError):
                _opened(path, os.fsync)
        return
    for path in paths:
        with suppress(FileNotFoundError):
            _opened(path, syncfs)
            return


def _opened(path: Path, do: Any) -> None:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        do(descriptor)
    except OSError as error:
        # Some file systems sync their folders by themselves, and say so.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@cache
def _syncfs() -> Any:
    """The call that syncs a whole file system, where there is one."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None

    def syncfs(descriptor: int) -> None:
        if call(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return syncfs


_syncing = _Syncing()


def _start_anew() -> None:
    # A process that was forked has no thread, and locks in whatever state.
    global _syncing
    _syncing = _Syncing()


os.register_at_fork(after_in_child=_start_anew)


@atexit.register
def _at_exit() -> None:
    _syncing.now()


def sync_soon(*paths: Path) -> None:
    """Have files and folders synced within a moment, by a thread.

    Raises:
        OSError: An earlier sync of the first of them failed: what it holds may be lost.
    """
    _syncing.soon(*paths)


def sync_now(*paths: Path) -> None:
    """Sync files and folders one by one, in this order, and return once they are on disk.

    Raises:
        OSError: One cannot be opened or synced.
    """
    for path in paths:
        _opened(path, os.fsync)
