"""Tells rejections by a limit from those that come whatever the rate of calls is.

A lower rate ends the rejections of a limit; until it is low enough, most calls are rejected.
Where the rate fell by much and most calls are taken and yet some are rejected, they have
other reasons, and slowing down further would help nobody.
"""

from collections import deque
from typing import NamedTuple

__all__ = ["RejectionFilter"]

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
