"""Async helpers: separate event loops, cancellation, backoff, and limits of the machine."""

import asyncio
import os
import resource
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

_T = TypeVar("_T")


def run_in_own_loop(make_coroutine: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine in a separate event loop, and wait for it.

    If a loop is already running, as in a notebook, the new one gets a thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make_coroutine())
    with ThreadPoolExecutor(1, "assay-loop") as pool:
        return pool.submit(lambda: asyncio.run(make_coroutine())).result()


async def finish_despite_cancellation(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, even if the caller is cancelled."""
    task = asyncio.ensure_future(coroutine)
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


def backoff_seconds(attempt: int, first: float, longest: float) -> float:
    """Return the seconds to wait after an attempt, counted from 0; they double up to `longest`.

    Callers wait a random part of this time, so that clients that failed together do not retry
    together.
    """
    # Far below the attempt at which a power of two would overflow a float.
    return min(longest, first * 2.0 ** min(attempt, 60))


_MAX_CONNECTIONS: Final = 65_536
_MACOS_LIMIT: Final = 10_240
"""The actual maximum on macOS, even if it reports a higher limit."""
_SPARE_FILES: Final = 64
"""Spare descriptors for short-lived files, pipes and other sockets."""


def raise_connection_limit() -> int:
    """Return the number of connections possible, after raising the open-file limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for target in (_MAX_CONNECTIONS, _MACOS_LIMIT):
        new_limit = target if hard == resource.RLIM_INFINITY else min(target, hard)
        if soft != resource.RLIM_INFINITY and new_limit > soft:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
                soft = new_limit
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(1, soft - _count_open_files() - min(_SPARE_FILES, soft // 4))


def _count_open_files() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(os.listdir(folder))
    return _SPARE_FILES


def count_usable_cpus() -> int:
    """Return the number of CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
