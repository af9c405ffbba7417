"""How many calls to one provider are open, and how fast they follow each other.

One pace for each provider and key. Calls start in the order they came; those that are tried
again go before the others. The number of open calls grows while calls succeed and others
wait, and shrinks when the provider rejects one; a `Rate` spaces them, once rejections have
shown that there is a limit; and while the provider asks for a pause, nothing starts.

Knows nothing of HTTP. Uses the clock of the running event loop.

What a provider says about its limits in the headers of a reply.

OpenAI, Groq and others send `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`; Anthropic
sends `anthropic-ratelimit-requests-{limit,remaining,reset}`, with a date. What cannot be read
is as good as not said.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple

from assay.errors import ModelUnavailable, UsageError
from assay.models.rate import Rate, RejectionFilter

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NAMES = ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}", "x-ratelimit-{}")


class Allowance(NamedTuple):
    """How many more calls a provider takes."""

    remaining: int
    """Calls that may follow at once."""
    refill: float | None
    """Calls a second that come back; None if that cannot be told."""


def read_allowance(headers: Mapping[str, str], now: float | None = None) -> Allowance | None:
    """Return the allowance in headers with names in lower case; None if they have none."""
    for name in _NAMES:
        remaining = _whole(headers.get(name.format("remaining")))
        if remaining is None:
            continue
        limit = _whole(headers.get(name.format("limit")))
        reset = _seconds(headers.get(name.format("reset")), now)
        refill = None
        # The reset is when everything is back, so the missing calls come back until then.
        if limit is not None and reset and limit > remaining:
            refill = (limit - remaining) / reset
        return Allowance(remaining, refill)
    return None


def _whole(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 12:
        return None
    return int(text)


def _seconds(text: str | None, now: float | None) -> float | None:
    if not text or len(text) > 40:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        number = float(text)
        # Some write the time of day instead, since 1970.
        return number if number < 1e8 else None
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        return datetime.fromisoformat(text).timestamp() - (time.time() if now is None else now)
    except (ValueError, OverflowError, OSError):
        return None


_START = 64
_LARGEST = 10_000
_HISTORY = 1000
_FIRST_PAUSE = 1.0
"""Seconds nothing starts after a rejection that does not say how long; it doubles."""
_LONGEST_PAUSE = 60.0
_ROOM = 1.5
"""Open calls for each that the rate needs on average."""
_SMALLEST_STEP = 1.25
"""Growth below this factor is not worth a line in the history."""


class PaceChange(NamedTuple):
    """A line of the history of a pace."""

    at: float
    """Seconds since 1970."""
    limit: int
    """Calls that may be open."""
    rate: float | None
    """Calls that may start in a second; None for no limit."""
    reason: str
    """start, growth, rate_limit, overload, headers or unrelated."""
    pause_s: float = 0.0
    """How long nothing starts, from `at` on."""


class PaceTurn:
    """One open call. Whoever holds it says how it went, once; silence changes nothing."""

    def __init__(self, pace: "Pace", started: float) -> None:
        self._pace, self.started = pace, started

    def done(self, allowance: Allowance | None = None) -> None:
        """The provider took the call; `allowance` is what it says about further ones."""
        self._pace._accepted(self.started, allowance)

    def throttled(self, retry_after: float | None = None) -> None:
        """The provider rejected the call as one too many."""
        self._pace._rejected(self.started, retry_after, "rate_limit")

    def overloaded(self, retry_after: float | None = None) -> None:
        """The provider has too much to do, for whatever reason."""
        self._pace._rejected(self.started, retry_after, "overload")

    def failed(self) -> None:
        """The call failed in a way that says nothing about limits."""


def _left() -> ModelUnavailable:
    return ModelUnavailable("the run was stopped before its turn came", kind="left")


class Pace:
    """The turns of one provider.

    Args:
        max_connections: The most calls that may ever be open.
        per_minute: Calls a minute that the provider is known to take.
        clock: Seconds since 1970, for the history.
    """

    def __init__(
        self,
        max_connections: int | None = None,
        *,
        per_minute: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if max_connections is not None and max_connections < 1:
            raise UsageError(f"max_connections is {max_connections}; it must be at least 1")
        self._most = max_connections or _LARGEST
        self._per_minute = per_minute
        self._limit = float(min(_START, self._most))
        self._threshold = float(self._most)
        self._proven = 1
        self._open = 0
        self._again: deque[asyncio.Future[PaceTurn]] = deque()
        self._waiting: deque[asyncio.Future[PaceTurn]] = deque()
        self._rate: Rate | None = None
        self._paused_until = self._reacted = float("-inf")
        self._in_a_row = self._overloads = self._fine = 0
        self._latency = 0.0
        self._rejections = RejectionFilter()
        self._resting: set[asyncio.Future[None]] = set()
        self._left = False
        self._alarm: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clock = clock
        self.history: deque[PaceChange] = deque(maxlen=_HISTORY)
        """What changed and why, the latest last."""
        self._record("start")

    @property
    def limit(self) -> int:
        """How many calls may be open."""
        return int(self._limit)

    @property
    def rate(self) -> float | None:
        """How many calls may start in a second; None for no limit."""
        return self._rate.current if self._rate else None

    @property
    def open(self) -> int:
        """How many calls are open."""
        return self._open

    @property
    def waiting(self) -> int:
        """How many calls wait for a turn."""
        return len(self._again) + len(self._waiting)

    @asynccontextmanager
    async def turn(self, *, again: bool = False) -> AsyncIterator[PaceTurn]:
        """Wait for a turn and hold it; `again` for a call that had one and failed."""
        turn = await self._wait(again)
        try:
            yield turn
        finally:
            self._open -= 1
            self._serve()

    async def rest(self, seconds: float) -> bool:
        """Wait before a call is tried again; False if the run is left meanwhile."""
        loop = asyncio.get_running_loop()
        resting: asyncio.Future[None] = loop.create_future()
        self._resting.add(resting)
        try:
            if not self._left:
                await asyncio.wait({resting}, timeout=seconds)
            return not self._left
        finally:
            self._resting.discard(resting)

    def leave(self) -> None:
        """Let nobody wait any longer; calls that are open go on to their ends."""
        self._left = True
        waiting: list[asyncio.Future[Any]] = [*self._resting, *self._again, *self._waiting]
        self._again.clear()
        self._waiting.clear()
        for place in waiting:
            if not place.done():
                place.cancel()

    async def _wait(self, again: bool) -> PaceTurn:
        if self._left:
            raise _left()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Who waited in another loop waits no longer, and its alarm will never ring.
            self._loop, self._alarm, self._open = loop, None, 0
            self._again.clear()
            self._waiting.clear()
        if self._rate is None:
            per_second = None if self._per_minute is None else self._per_minute / 60
            self._rate = Rate(loop.time(), per_second)
        place: asyncio.Future[PaceTurn] = loop.create_future()
        queue = self._again if again else self._waiting
        queue.append(place)
        self._serve()
        try:
            return await place
        except asyncio.CancelledError:
            # It may have been served in the very moment it was cancelled.
            if place.done() and not place.cancelled():
                self._open -= 1
            elif place in queue:
                queue.remove(place)
            else:
                raise _left() from None
            self._serve()
            raise

    def _serve(self) -> None:
        """Let those start whose time has come, and wake up when the next one's comes."""
        rate = self._rate
        if rate is None or not self.waiting or self._open >= int(self._limit):
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self.waiting and self._open < int(self._limit):
            ready = max(self._paused_until, rate.ready_at())
            if ready > now:
                self._wake(loop, ready)
                return
            place = (self._again or self._waiting).popleft()
            if place.done():
                continue
            self._open += 1
            rate.start(now, pressed=self.waiting > 0)
            self._rejections.started()
            place.set_result(PaceTurn(self, now))

    def _wake(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._alarm is not None:
            if self._alarm.when() <= at and not self._alarm.cancelled():
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(at, self._woken)

    def _woken(self) -> None:
        self._alarm = None
        self._serve()

    def _accepted(self, started: float, allowance: Allowance | None) -> None:
        assert self._rate is not None
        now = asyncio.get_running_loop().time()
        self._in_a_row = 0
        self._fine += 1
        self._proven = max(self._proven, self._open)
        self._latency += (now - started - self._latency) * (0.1 if self._latency else 1.0)
        if self._open >= int(self._limit) and self.waiting and started >= self._reacted:
            self._grow()
        if allowance is not None:
            self._heed(now, allowance)
        self._serve()

    def _grow(self) -> None:
        # Doubles in a round trip up to where it was well, and adds one in each after that.
        step = 1.0 if self._limit < self._threshold else 1 / self._limit
        self._limit = min(float(self._most), self._limit + step)
        if self._limit >= self.history[-1].limit * _SMALLEST_STEP:
            self._record("growth")

    def _heed(self, now: float, allowance: Allowance) -> None:
        """Slow down before the provider has to say so, when it counts down to nothing."""
        assert self._rate is not None
        if allowance.refill is None or allowance.remaining > self._open:
            return
        if self._rate.limit(now, allowance.refill):
            self._record("headers")

    def _rejected(self, started: float, retry_after: float | None, reason: str) -> None:
        assert self._rate is not None
        now = asyncio.get_running_loop().time()
        fresh = started >= self._reacted
        if reason == "rate_limit" and self._rejections.rejected(now):
            self._pause(now, retry_after or 0.0)
            return
        if not fresh:
            # Others of the same round trip say little new.
            self._pause(now, retry_after or 0.0)
            if reason == "rate_limit":
                self._rate.reject_late(now)
            return
        if reason == "overload":
            self._overload(now, retry_after or 0.0)
            return
        pause = retry_after
        if pause is None:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._in_a_row, 10))
        self._in_a_row += 1
        self._pause(now, pause)
        self._reacted = self._paused_until
        self._rate.reject(now, None if retry_after is None else self._paused_until)
        if self._rejections.rate_fell(now, self.rate):
            self._rate.forget()
            self._threshold = float(self._most)
            reason = "unrelated"
        else:
            self._shrink()
        self._record(reason, pause)

    def _overload(self, now: float, pause: float) -> None:
        self._pause(now, pause)
        self._overloads += 1
        # One that fails now and then fails with fewer open calls too.
        if 2 * self._overloads >= self._fine:
            self._reacted = max(now, self._paused_until)
            self._overloads = self._fine = 0
            self._shrink()
            self._record("overload", pause)

    def _pause(self, now: float, seconds: float) -> None:
        self._paused_until = max(self._paused_until, now + seconds)

    def _shrink(self) -> None:
        # What a provider carried before, it carries a good part of still; and where the rate
        # is what it minds, fewer open calls than the rate needs would only waste it.
        least = max(1.0, self._proven / 4, _ROOM * (self.rate or 0.0) * self._latency)
        self._threshold = max(least, self._limit * 0.75)
        self._limit = max(1.0, min(self._limit, max(least, self._limit / 2)))
        self._proven = max(1, int(self._proven * 0.75))

    def _record(self, reason: str, pause: float = 0.0) -> None:
        rate = self.rate
        self.history.append(PaceChange(self._clock(), self.limit, rate, reason, pause))
