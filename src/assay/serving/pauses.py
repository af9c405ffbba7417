"""Pauses that all end at once when the server does."""

import asyncio
import time

__all__ = ["Pauses"]


class Pauses:
    """Waits for many; belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[bool]] = set()
        self._closed = False

    async def until(self, due: float) -> bool:
        """Wait until a time of the monotonic clock; False if there was no time for it."""
        seconds = due - time.monotonic()
        if seconds <= 0:
            return True
        if self._closed:
            return False
        loop = asyncio.get_running_loop()
        over: asyncio.Future[bool] = loop.create_future()
        self._waiting.add(over)
        timer = loop.call_later(seconds, _finish, over, True)
        try:
            return await over
        finally:
            timer.cancel()
            self._waiting.discard(over)

    def close(self) -> None:
        """End every pause, and let none begin."""
        self._closed = True
        for over in self._waiting:
            _finish(over, False)


def _finish(over: asyncio.Future[bool], value: bool) -> None:
    if not over.done():
        over.set_result(value)
