"""Estimation of the rate of calls that a provider accepts, from its rejections.

`Rate`: Calls are spaced evenly. The rate starts a little below the estimated limit, rises to
it, stays there for a while and then rises further: a cubic function of the time since the last
rejection, as TCP CUBIC uses for windows. A rejection gives an estimate of the limit: the calls
accepted since the previous rejection, divided by the time until the provider accepts another.
This is valid for token buckets, sliding windows and fixed windows.

`RejectionFilter`: Detects rejections that do not depend on the rate. If a rate limit is the
cause, most calls are rejected until the rate is low enough, and then none. If the rate has
fallen considerably, most calls are accepted, and some are still rejected, there is another
cause, and slowing down further would not help.

Pure arithmetic on times passed in; nothing here waits.
"""

from collections import deque
from typing import NamedTuple

_DROP = 0.08
"""Fraction by which the rate falls below the estimated limit."""
_PLATEAU = 20.0
"""Seconds from a drop until the rate is back at the estimated limit."""
_MIN_CALLS = 4
"""Accepted calls a single stretch needs to give an estimate."""
_STEP = 0.85
"""A rate that was accepted for a while falls at most to this fraction of itself."""
_MINUTE = 60.0
_MEMORY = 300.0
"""Seconds for which the best minute is remembered, at most twice that long."""
_LEEWAY = 0.05
"""Seconds a call may be late without delaying the next ones."""
_FORGET = 8.0
"""At this multiple of the estimate, the limit is assumed to be gone."""


class Rate:
    """Spacing of calls; unlimited until the first rejection."""

    def __init__(self, now: float, per_second: float | None = None) -> None:
        self._seen = per_second
        # A known rate is where the curve is flat.
        self._age = _PLATEAU
        self._next = self._last = self._since = now
        self._stretch = _Stretch(0, now, now, None, False)
        self._taken = 0
        self._minute: deque[float] = deque()
        self._best = _Best(now)

    @property
    def current(self) -> float | None:
        """Calls per second; None for no limit."""
        if self._seen is None:
            return None
        away = (self._age - _PLATEAU) / _PLATEAU
        return self._seen * (1 + _DROP * away**3)

    def ready_at(self) -> float:
        """Return the time at which the next call may start."""
        return self._next

    def start(self, now: float, *, pressed: bool) -> None:
        """Record the start of a call; `pressed` if others wait, so that the rate is in use.

        It counts as accepted, unless `reject` follows.
        """
        self._taken += 1
        self._minute.append(now)
        self._trim(now)
        self._best.note(now, len(self._minute) / _MINUTE)
        rate = self.current
        if rate is None or self._seen is None:
            self._next = now
            return
        self._next = max(self._next, now - _LEEWAY) + 1 / rate
        if pressed:
            self._age += min(now - self._last, 2 / rate)
            if rate > _FORGET * self._seen:
                self._seen = None
        self._last = now

    def reject(self, now: float, again_at: float | None) -> None:
        """Record a rejection; `again_at` is when the provider accepts calls again, if known.

        The calls between two rejections give the rate. If there were none, the last stretch
        with calls is extended.
        """
        self._uncount()
        end = now if again_at is None else max(again_at, now)
        if self._taken > 0:
            settled = self._age >= _PLATEAU
            self._stretch = _Stretch(self._taken, self._since, end, self.current, settled)
        else:
            self._stretch = self._stretch._replace(end=end)
        self._since, self._taken = end, 0
        self._next = max(self._next, end)
        self._age, self._last = 0.0, end
        self._update_estimate(now)

    def reject_late(self, now: float) -> None:
        """Record the rejection of a call that started before the last `reject`."""
        self._uncount()
        self._stretch = self._stretch._replace(taken=self._stretch.taken - 1)
        self._taken += 1
        self._update_estimate(now)

    def forget(self) -> None:
        """Remove the limit, until the next rejection."""
        self._seen = None

    def limit(self, now: float, per_second: float) -> bool:
        """Apply a limit reported by the provider; return whether it is a lower one."""
        rate = self.current
        if rate is not None and rate <= per_second * (1 + _DROP):
            return False
        self._seen, self._age, self._last = per_second, _PLATEAU, now
        return True

    def _update_estimate(self, now: float) -> None:
        taken, began, end, rate, settled = self._stretch
        span = end - began
        if taken <= 0 or span <= 0:
            return
        seen = max(taken / span, len(self._minute) / _MINUTE)
        if rate is not None:
            # With few calls, the estimate is mostly chance.
            seen = min(rate, seen if taken >= _MIN_CALLS else max(seen, rate / 2))
            # The mean of a stretch that started far below the limit underestimates it.
            seen = max(seen, rate * _STEP) if settled else seen
        # Rejections that do not depend on the rate must not reduce it to almost zero.
        self._seen = max(seen, self._best.value(now) / 4)

    def _uncount(self) -> None:
        self._taken -= 1
        if self._minute:
            self._minute.pop()

    def _trim(self, now: float) -> None:
        while self._minute and self._minute[0] <= now - _MINUTE:
            self._minute.popleft()


class _Stretch(NamedTuple):
    """Period between two rejections."""

    taken: int
    began: float
    end: float
    rate: float | None
    settled: bool
    """Whether the rate was back at the previous estimate."""


class _Best:
    """Maximum of recent values."""

    def __init__(self, now: float) -> None:
        self._rotated = now
        self._before = self._current = 0.0

    def note(self, now: float, value: float) -> None:
        self._rotate(now)
        self._current = max(self._current, value)

    def value(self, now: float) -> float:
        self._rotate(now)
        return max(self._before, self._current)

    def _rotate(self, now: float) -> None:
        if now - self._rotated >= _MEMORY:
            late = now - self._rotated >= 2 * _MEMORY
            self._before, self._current = (0.0 if late else self._current), 0.0
            self._rotated = now


_VERDICT_AFTER = 6
"""Consecutive rejections needed for a verdict."""
_RATE_FELL_TO = 0.6
"""Fraction to which the rate must have fallen meanwhile."""
_TAKEN_PER_REJECTION = 2.0
"""Accepted calls per rejection, for "most calls are accepted"."""
_TAKEN_COUNTED = 10
"""Accepted calls between two rejections that are counted, at most."""
_TAKEN_IF_RARE = 60
"""After this many accepted calls, rejections are too rare for a verdict."""
_IGNORING_S = 120.0
"""Seconds for which a verdict is valid after the last rejection."""
_MISTRUST_S = 600.0
"""Seconds without another verdict after a wrong one; doubles each time."""
_CHECKS = ((20, 0.75), (100, 0.4))
"""Numbers of calls after which a verdict is checked, and the share of rejections that
refutes it."""


class _Drop(NamedTuple):
    taken: int
    refused: int
    rate: float


class RejectionFilter:
    """Detector of rejections that do not depend on the rate; revokes a wrong verdict soon."""

    def __init__(self) -> None:
        self._drops: deque[_Drop] = deque(maxlen=_VERDICT_AFTER)
        self._taken = self._refused = 0
        self._ignoring_until = self._heeding_until = float("-inf")
        self._mistrust = _MISTRUST_S

    def started(self) -> None:
        """Record the start of a call; it counts as accepted unless it is rejected."""
        self._taken += 1

    def rejected(self, now: float) -> bool:
        """Record a rejection; return whether to ignore it."""
        self._refused += 1
        self._taken -= 1
        if now >= self._ignoring_until:
            return False
        seen = self._taken + self._refused
        if any(seen >= calls and self._refused > share * seen for calls, share in _CHECKS):
            self._ignoring_until, self._heeding_until = now, now + self._mistrust
            self._mistrust *= 2
            self._taken = self._refused = 0
            return False
        if seen >= _CHECKS[-1][0]:
            self._taken = self._refused = 0
        self._ignoring_until = now + _IGNORING_S
        return True

    def rate_fell(self, now: float, rate: float | None) -> bool:
        """Record that the rate fell to `rate`; return whether to ignore further rejections."""
        if rate is None:
            return False
        if self._taken > _TAKEN_IF_RARE:
            self._drops.clear()
        self._drops.append(_Drop(self._taken, self._refused, rate))
        self._taken = self._refused = 0
        if len(self._drops) < _VERDICT_AFTER or now < self._heeding_until:
            return False
        taken = sum(min(drop.taken, _TAKEN_COUNTED) for drop in self._drops)
        refused = sum(drop.refused for drop in self._drops)
        if taken < refused * _TAKEN_PER_REJECTION or rate > _RATE_FELL_TO * self._drops[0].rate:
            return False
        self._drops.clear()
        self._ignoring_until = now + _IGNORING_S
        return True
