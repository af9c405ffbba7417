"""Coroutines that may be cancelled, waits between attempts, limits of the machine."""

import asyncio
import os
import resource
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

_T = TypeVar("_T")


def run_apart(make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine in an event loop of its own, and wait for it.

    Where one runs already, as in a notebook, the new one gets a thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    with ThreadPoolExecutor(1, "assay-loop") as pool:
        return pool.submit(lambda: asyncio.run(make())).result()


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do it to its end, even if whoever waits for it is cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


def backoff(attempt: int, first: float, longest: float) -> float:
    """Seconds after an attempt, counted from 0: they double up to the longest wait.

    Callers wait a random part of it, so that those that failed together do not come back
    together.
    """
    # Far below the attempt where a power of two would no longer fit into a float.
    return min(longest, first * 2.0 ** min(attempt, 60))


_ENOUGH: Final = 65_536
_OFTEN_ALLOWED: Final = 10_240
"""What macOS allows at most, whatever it says the limit is."""
_SPARE: Final = 64
"""For files that are opened for a moment, pipes and sockets of other things."""


def connections_allowed() -> int:
    """Connections that there is room for, with the limit raised as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_ENOUGH, _OFTEN_ALLOWED):
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and most > soft:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                soft = most
    if soft == resource.RLIM_INFINITY:
        return _ENOUGH
    return max(1, soft - _open_now() - min(_SPARE, soft // 4))


def _open_now() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(os.listdir(folder))
    return _SPARE


def usable_cpus() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
