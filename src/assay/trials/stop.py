"""The wish of a user to stop: once to leave in good order, twice to leave at once.

Who asked once and has waited long enough says so: what is open is then cancelled, and all
else still goes in good order.

May be asked from a signal handler and from any thread. Starts and ends nothing itself.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["Stop"]


class Stop:
    """A flag with two levels, which is never taken back."""

    def __init__(self) -> None:
        # Grown by one atomic call, which neither threads nor handlers can tear apart.
        self._asks: list[None] = []
        self._hurried = False
        self._watchers: tuple[tuple[asyncio.AbstractEventLoop, Callable[[], None]], ...] = ()

    def ask(self) -> None:
        """Ask once more. From the second time on, open trials are cancelled."""
        self._asks.append(None)
        self._wake()

    def hurry(self) -> None:
        """Have open trials cancelled, and nothing else cut short."""
        self._hurried = True
        self._wake()

    def _wake(self) -> None:
        for loop, wake in self._watchers:
            # A loop that has closed has nothing left to stop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(wake)

    @property
    def asked(self) -> bool:
        """Whether nothing new is to start, and what is open is to leave."""
        return len(self._asks) > 0

    @property
    def hurried(self) -> bool:
        """Whether what is open is to be cancelled."""
        return self.asked and (self._hurried or self.forced)

    @property
    def forced(self) -> bool:
        """Whether nothing is worth waiting for any longer."""
        return len(self._asks) > 1

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """While inside, call `wake` in the running loop each time somebody asks."""
        watcher = (asyncio.get_running_loop(), wake)
        # Replaced as a whole, so that a handler never sees it half changed.
        self._watchers = (*self._watchers, watcher)
        try:
            yield
        finally:
            self._watchers = tuple(one for one in self._watchers if one is not watcher)
