"""Async helpers: separate event loops, cancellation, backoff, and limits of the machine."""

import asyncio
import os
import resource
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

_T = TypeVar("_T")


def run_apart(make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine in a separate event loop, and wait for it.

    If a loop is already running, as in a notebook, the new one gets a thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    with ThreadPoolExecutor(1, "assay-loop") as pool:
        return pool.submit(lambda: asyncio.run(make())).result()


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, even if the caller is cancelled."""
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
    """Return the seconds to wait after an attempt, counted from 0; they double up to `longest`.

    Callers wait a random part of this time, so that clients that failed together do not retry
    together.
    """
    # Far below the attempt at which a power of two would overflow a float.
    return min(longest, first * 2.0 ** min(attempt, 60))


_ENOUGH: Final = 65_536
_OFTEN_ALLOWED: Final = 10_240
"""The actual maximum on macOS, even if it reports a higher limit."""
_SPARE: Final = 64
"""Spare descriptors for short-lived files, pipes and other sockets."""


def connections_allowed() -> int:
    """Return the number of connections possible, after raising the open-file limit."""
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
    """Return the number of CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
