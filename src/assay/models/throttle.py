"""Limits on the number of open calls to a provider and on the rate at which calls start.

There is one `Pace` per provider and key. Calls start in order of arrival; retries come first.
The limit of open calls grows while calls succeed and others wait, and shrinks when the provider
rejects one. A `Rate` spaces calls once rejections have shown that there is a rate limit. While
the provider asks for a pause, no call starts. Uses the clock of the running event loop; does
not depend on HTTP.

`read_allowance` reads a provider's limits from the headers of a reply. OpenAI, Groq and others
send `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`; Anthropic sends
`anthropic-ratelimit-requests-{limit,remaining,reset}`, with a date. Invalid ones are ignored.
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
    """Number of calls that a provider accepts."""

    remaining: int
    """Calls that may start immediately."""
    refill: float | None
    """Calls per second that become available again; None if unknown."""


def read_allowance(headers: Mapping[str, str], now: float | None = None) -> Allowance | None:
    """Read the allowance from the headers of a reply; None if they have none.

    Args:
        headers: Headers with names in lower case, or a mapping that ignores case.
        now: Seconds since 1970 (default: the current time).
    """
    for name in _NAMES:
        remaining = _parse_count(headers.get(name.format("remaining")))
        if remaining is None:
            continue
        limit = _parse_count(headers.get(name.format("limit")))
        reset = _parse_reset(headers.get(name.format("reset")), now)
        refill = None
        # At the reset all calls are available again, so the missing ones come back until then.
        if limit is not None and reset and limit > remaining:
            refill = (limit - remaining) / reset
        return Allowance(remaining, refill)
    return None


def _parse_count(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 12:
        return None
    return int(text)


def _parse_reset(text: str | None, now: float | None) -> float | None:
    if not text or len(text) > 40:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        number = float(text)
        # Some providers send the time since 1970 instead.
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
"""Seconds of the pause after a rejection without Retry-After; doubles each time."""
_LONGEST_PAUSE = 60.0
_HEADROOM = 1.5
"""Open calls allowed, as a multiple of the number that the rate needs on average."""
_SMALLEST_STEP = 1.25
"""Growth by less than this factor is not recorded in the history."""


class LimitChange(NamedTuple):
    """A change of the limits, in the history of a `Pace`."""

    at: float
    """Seconds since 1970."""
    limit: int
    """Calls that may be open."""
    rate: float | None
    """Calls that may start per second; None for no limit."""
    reason: str
    """start, growth, rate_limit, overload, headers or unrelated."""
    pause_s: float = 0.0
    """Seconds after `at` in which no call starts."""


class CallSlot:
    """Slot of one open call. Its holder reports the result once; no report changes nothing."""

    def __init__(self, pace: "Pace", started: float) -> None:
        self._pace, self.started = pace, started

    def done(self, allowance: Allowance | None = None) -> None:
        """Report that the provider accepted the call; `allowance` is from its headers."""
        self._pace._accepted(self.started, allowance)

    def throttled(self, retry_after: float | None = None) -> None:
        """Report that the call exceeded the provider's rate limit."""
        self._pace._rejected(self.started, retry_after, "rate_limit")

    def overloaded(self, retry_after: float | None = None) -> None:
        """Report that the provider is overloaded."""
        self._pace._rejected(self.started, retry_after, "overload")

    def failed(self) -> None:
        """Report a failure that is unrelated to limits."""


def _make_stop_error() -> ModelUnavailable:
    return ModelUnavailable("the run was stopped before the call started", kind="left")


class Pace:
    """Limits of open calls and call rate of one provider.

    Args:
        max_connections: Maximum number of open calls.
        per_minute: Known rate limit, in calls per minute.
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
        self._again: deque[asyncio.Future[CallSlot]] = deque()
        self._waiting: deque[asyncio.Future[CallSlot]] = deque()
        self._rate: Rate | None = None
        self._paused_until = self._reacted = float("-inf")
        self._in_a_row = self._overloads = self._fine = 0
        self._latency = 0.0
        self._rejections = RejectionFilter()
        self._backing_off: set[asyncio.Future[None]] = set()
        self._left = False
        self._alarm: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clock = clock
        self.history: deque[LimitChange] = deque(maxlen=_HISTORY)
        """Changes of the limits, the latest last."""
        self._record("start")

    @property
    def limit(self) -> int:
        """Number of calls that may be open."""
        return int(self._limit)

    @property
    def rate(self) -> float | None:
        """Number of calls that may start per second; None for no limit."""
        return self._rate.current if self._rate else None

    @property
    def open(self) -> int:
        """Number of open calls."""
        return self._open

    @property
    def waiting(self) -> int:
        """Number of calls waiting for a slot."""
        return len(self._again) + len(self._waiting)

    @asynccontextmanager
    async def turn(self, *, again: bool = False) -> AsyncIterator[CallSlot]:
        """Wait for a slot and hold it; `again` for a retry."""
        turn = await self._wait(again)
        try:
            yield turn
        finally:
            self._open -= 1
            self._start_waiting()

    async def back_off(self, seconds: float) -> bool:
        """Wait before a retry; return False if `leave` was called meanwhile."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._backing_off.add(waiting)
        try:
            if not self._left:
                await asyncio.wait({waiting}, timeout=seconds)
            return not self._left
        finally:
            self._backing_off.discard(waiting)

    def leave(self) -> None:
        """End all waits; open calls continue."""
        self._left = True
        waiting: list[asyncio.Future[Any]] = [*self._backing_off, *self._again, *self._waiting]
        self._again.clear()
        self._waiting.clear()
        for place in waiting:
            if not place.done():
                place.cancel()

    async def _wait(self, again: bool) -> CallSlot:
        if self._left:
            raise _make_stop_error()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Waits and the alarm of another event loop are void.
            self._loop, self._alarm, self._open = loop, None, 0
            self._again.clear()
            self._waiting.clear()
        if self._rate is None:
            per_second = None if self._per_minute is None else self._per_minute / 60
            self._rate = Rate(loop.time(), per_second)
        place: asyncio.Future[CallSlot] = loop.create_future()
        queue = self._again if again else self._waiting
        queue.append(place)
        self._start_waiting()
        try:
            return await place
        except asyncio.CancelledError:
            # It may have got a slot just before it was cancelled.
            if place.done() and not place.cancelled():
                self._open -= 1
            elif place in queue:
                queue.remove(place)
            else:
                raise _make_stop_error() from None
            self._start_waiting()
            raise

    def _start_waiting(self) -> None:
        """Start the waiting calls that are due, and set an alarm for the next one."""
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
            place.set_result(CallSlot(self, now))

    def _wake(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._alarm is not None:
            if self._alarm.when() <= at and not self._alarm.cancelled():
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(at, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._start_waiting()

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
            self._apply_allowance(now, allowance)
        self._start_waiting()

    def _grow(self) -> None:
        # Doubles per round trip up to the threshold, then adds one per round trip.
        step = 1.0 if self._limit < self._threshold else 1 / self._limit
        self._limit = min(float(self._most), self._limit + step)
        if self._limit >= self.history[-1].limit * _SMALLEST_STEP:
            self._record("growth")

    def _apply_allowance(self, now: float, allowance: Allowance) -> None:
        """Slow down before the provider rejects calls, when few remain."""
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
            # Further rejections of the same round trip add little information.
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
        # Occasional failures would occur with fewer open calls too.
        if 2 * self._overloads >= self._fine:
            self._reacted = max(now, self._paused_until)
            self._overloads = self._fine = 0
            self._shrink()
            self._record("overload", pause)

    def _pause(self, now: float, seconds: float) -> None:
        self._paused_until = max(self._paused_until, now + seconds)

    def _shrink(self) -> None:
        # The provider can still handle a good part of what it handled before; and under a rate
        # limit, fewer open calls than the rate needs would waste capacity.
        least = max(1.0, self._proven / 4, _HEADROOM * (self.rate or 0.0) * self._latency)
        self._threshold = max(least, self._limit * 0.75)
        self._limit = max(1.0, min(self._limit, max(least, self._limit / 2)))
        self._proven = max(1, int(self._proven * 0.75))

    def _record(self, reason: str, pause: float = 0.0) -> None:
        rate = self.rate
        self.history.append(LimitChange(self._clock(), self.limit, rate, reason, pause))
