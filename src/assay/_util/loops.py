"""Coroutines for callers that are not."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["run_apart"]

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
