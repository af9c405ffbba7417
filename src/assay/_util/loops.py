"""Coroutines for callers that are not, or that may be cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["run_apart", "to_the_end"]

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
