"""Simulated providers with rate limits: they accept or reject each call."""

import asyncio
import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from assay.models.throttle import CallSlot, Pace


class Limiter(Protocol):
    def reject(self, now: float, open_calls: int) -> float | None:
        """Return the seconds until the next call is accepted; None if this one is accepted."""
        ...


@dataclass
class Bucket:
    """A token bucket with a steady refill rate and a burst size."""

    per_second: float
    size: float
    tokens: float = field(init=False)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = self.size

    def reject(self, now: float, open_calls: int) -> float | None:
        self.tokens = min(self.size, self.tokens + (now - self.at) * self.per_second)
        self.at = now
        if self.tokens >= 1:
            self.tokens -= 1
            return None
        return (1 - self.tokens) / self.per_second


@dataclass
class SlidingWindow:
    calls: int
    seconds: float = 60.0
    taken: deque[float] = field(default_factory=deque)

    def reject(self, now: float, open_calls: int) -> float | None:
        while self.taken and self.taken[0] <= now - self.seconds:
            self.taken.popleft()
        if len(self.taken) < self.calls:
            self.taken.append(now)
            return None
        return self.taken[0] + self.seconds - now


@dataclass
class FixedWindow:
    calls: int
    seconds: float = 60.0
    window: int = -1
    taken: int = 0

    def reject(self, now: float, open_calls: int) -> float | None:
        window = int(now // self.seconds)
        if window != self.window:
            self.window, self.taken = window, 0
        if self.taken < self.calls:
            self.taken += 1
            return None
        return (window + 1) * self.seconds - now


@dataclass
class Rooms:
    """A limit on concurrent calls."""

    most: int

    def reject(self, now: float, open_calls: int) -> float | None:
        return None if open_calls < self.most else 0.5


@dataclass
class Moody:
    """Rejects calls at random, independent of their rate."""

    share: float
    dice: random.Random = field(default_factory=lambda: random.Random(3))

    def reject(self, now: float, open_calls: int) -> float | None:
        return 0.0 if self.dice.random() < self.share else None


@dataclass
class Load:
    """A load on a provider through a throttle, with counts per second."""

    limiter: Limiter
    pace: Pace
    latency: float = 1.0
    jitter: float = 0.2
    says: str = "seconds"
    """How it says when to come back: exact, seconds (whole ones) or nothing."""
    open: int = 0
    most_open: int = 0
    accepted: list[float] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)

    async def run(self, seconds: float, callers: int = 80) -> None:
        tasks = [asyncio.create_task(self._caller(random.Random(n))) for n in range(callers)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def busy(self, after: float, until: float, per_second: float) -> float:
        """The fraction of the allowed calls that was used."""
        return sum(after <= at < until for at in self.accepted) / (until - after) / per_second

    def wasted(self, after: float) -> float:
        """The share of calls that were rejected."""
        bad = sum(at >= after for at in self.rejected)
        return bad / (bad + sum(at >= after for at in self.accepted))

    async def _caller(self, rng: random.Random) -> None:
        again = False
        while True:
            async with self.pace.turn(again=again) as turn:
                again = not await self._call(turn, rng)

    async def _call(self, turn: CallSlot, rng: random.Random) -> bool:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.02)
        wait = self.limiter.reject(loop.time(), self.open)
        if wait is not None:
            self.rejected.append(loop.time())
            turn.throttled(self._said(wait))
            return False
        self.accepted.append(loop.time())
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(self.latency * (1 + rng.uniform(-self.jitter, self.jitter)))
        finally:
            self.open -= 1
        turn.done()
        return True

    def _said(self, wait: float) -> float | None:
        return {"exact": wait, "seconds": float(math.ceil(wait)), "nothing": None}[self.says]
