"""How many calls a second a provider takes, learnt from the calls it rejects.

Calls are spaced evenly at a rate a little below what the provider was seen to take, creep up
to it, stay there for a while, and then feel for more: a cubic curve of the time since the
last rejection, as TCP CUBIC has for windows. A rejection says where the limit is: the
calls accepted since the one before, over the time until the provider takes another. That
holds for token buckets, sliding windows and fixed windows alike.

Pure arithmetic on times it is told; waits for nothing.

Tells rejections by a limit from those that come whatever the rate of calls is.

A lower rate ends the rejections of a limit; until it is low enough, most calls are rejected.
Where the rate fell by much and most calls are taken and yet some are rejected, they have
other reasons, and slowing down further would help nobody.
"""

from collections import deque
from typing import NamedTuple

_DROP = 0.08
"""By how much the rate falls below what was seen."""
_PLATEAU = 20.0
"""Seconds from a drop until the rate is back at what was seen."""
_FEW = 4
"""Accepted calls from which on a single stretch tells the rate."""
_STEP = 0.85
"""To what part of itself a rate falls at most that was good for a while."""
_MINUTE = 60.0
_MEMORY = 300.0
"""Seconds for which the best minute counts, at most twice that long."""
_LEEWAY = 0.05
"""Seconds a call may be late without the next ones being late too."""
_FORGET = 8.0
"""At this many times what was seen, the limit is taken to be gone."""


class Rate:
    """The spacing of calls; unlimited until a rejection teaches otherwise."""

    def __init__(self, now: float, per_second: float | None = None) -> None:
        self._seen = per_second
        # A rate that is given is where the curve is flat.
        self._age = _PLATEAU
        self._next = self._last = self._since = now
        self._stretch = _Stretch(0, now, now, None, False)
        self._taken = 0
        self._minute: deque[float] = deque()
        self._best = _Best(now)

    @property
    def current(self) -> float | None:
        """Calls a second; None for no limit."""
        if self._seen is None:
            return None
        away = (self._age - _PLATEAU) / _PLATEAU
        return self._seen * (1 + _DROP * away**3)

    def ready_at(self) -> float:
        """When the next call may start."""
        return self._next

    def start(self, now: float, *, pressed: bool) -> None:
        """A call starts; `pressed` if others wait, so that the rate is being tried.

        It counts as taken, until `reject` says that it was not.
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
        """Learn from a rejection; the provider takes calls again at `again_at`, if it says so.

        Calls between two rejections tell the rate. If there were none, the last stretch that
        had some turns out to have taken longer.
        """
        self._untake()
        end = now if again_at is None else max(again_at, now)
        if self._taken > 0:
            settled = self._age >= _PLATEAU
            self._stretch = _Stretch(self._taken, self._since, end, self.current, settled)
        else:
            self._stretch = self._stretch._replace(end=end)
        self._since, self._taken = end, 0
        self._next = max(self._next, end)
        self._age, self._last = 0.0, end
        self._learn(now)

    def reject_late(self, now: float) -> None:
        """A call that started before the last `reject` was rejected too."""
        self._untake()
        self._stretch = self._stretch._replace(taken=self._stretch.taken - 1)
        self._taken += 1
        self._learn(now)

    def forget(self) -> None:
        """Start calls without spacing, until a rejection teaches otherwise."""
        self._seen = None

    def limit(self, now: float, per_second: float) -> bool:
        """Go no faster than the provider says it can; returns whether that is slower."""
        rate = self.current
        if rate is not None and rate <= per_second * (1 + _DROP):
            return False
        self._seen, self._age, self._last = per_second, _PLATEAU, now
        return True

    def _learn(self, now: float) -> None:
        taken, began, end, rate, settled = self._stretch
        span = end - began
        if taken <= 0 or span <= 0:
            return
        seen = max(taken / span, len(self._minute) / _MINUTE)
        if rate is not None:
            # A stretch of a few calls is mostly chance.
            seen = min(rate, seen if taken >= _FEW else max(seen, rate / 2))
            # The mean of a stretch that began far below the limit is below it too.
            seen = max(seen, rate * _STEP) if settled else seen
        # Rejections that no lower rate prevents must not drive it to nothing.
        self._seen = max(seen, self._best.value(now) / 4)

    def _untake(self) -> None:
        self._taken -= 1
        if self._minute:
            self._minute.pop()

    def _trim(self, now: float) -> None:
        while self._minute and self._minute[0] <= now - _MINUTE:
            self._minute.popleft()


class _Stretch(NamedTuple):
    """What happened between two rejections."""

    taken: int
    began: float
    end: float
    rate: float | None
    settled: bool
    """Whether the rate was back at what had been seen before."""


class _Best:
    """The largest of recent values."""

    def __init__(self, now: float) -> None:
        self._turned = now
        self._before = self._current = 0.0

    def note(self, now: float, value: float) -> None:
        self._turn(now)
        self._current = max(self._current, value)

    def value(self, now: float) -> float:
        self._turn(now)
        return max(self._before, self._current)

    def _turn(self, now: float) -> None:
        if now - self._turned >= _MEMORY:
            late = now - self._turned >= 2 * _MEMORY
            self._before, self._current = (0.0 if late else self._current), 0.0
            self._turned = now


_VERDICT_AFTER = 6
"""Rejections in a row from which on there is a verdict."""
_RATE_FELL_TO = 0.6
"""To what part of itself the rate must have fallen meanwhile."""
_TAKEN_PER_REJECTION = 2.0
"""Calls taken for each that is rejected, for most calls to be taken."""
_TAKEN_COUNTED = 10
"""Calls taken between two rejections, beyond which more prove nothing more."""
_TAKEN_IF_RARE = 60
"""Calls taken between two rejections, from which on they are few enough for any reason."""
_IGNORING_S = 120.0
"""Seconds for which a verdict holds after the last rejection."""
_MISTRUST_S = 600.0
"""Seconds without another verdict, after one that was wrong; they double."""
_CHECKS = ((20, 0.75), (100, 0.4))
"""After how many calls a verdict is looked at, and which share of rejections refutes it."""


class _Drop(NamedTuple):
    taken: int
    refused: int
    rate: float


class RejectionFilter:
    """Counts calls and comes to a verdict; a wrong one is taken back soon."""

    def __init__(self) -> None:
        self._drops: deque[_Drop] = deque(maxlen=_VERDICT_AFTER)
        self._taken = self._refused = 0
        self._ignoring_until = self._heeding_until = float("-inf")
        self._mistrust = _MISTRUST_S

    def started(self) -> None:
        """A call starts; it counts as taken until it is rejected, which is known soon."""
        self._taken += 1

    def rejected(self, now: float) -> bool:
        """A call was rejected; returns whether that means nothing."""
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
        """The rate fell to `rate`; returns whether rejections mean nothing from here on."""
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
