"""Tells rejections by a limit from those that come whatever the rate of calls is.

A lower rate ends the rejections of a limit; until it is low enough, most calls are rejected.
Where the rate fell by much and most calls are taken and yet some are rejected, they have
other reasons, and slowing down further would help nobody.
"""

from collections import deque
from typing import NamedTuple

__all__ = ["Moods"]

_ROW = 6
"""Rejections in a row from which on there is a verdict."""
_FELL = 0.6
"""To what part of itself the rate must have fallen meanwhile."""
_MOST = 2.0
"""Calls taken for each that is rejected, for most calls to be taken."""
_ENOUGH = 10
"""Calls taken between two rejections, beyond which more prove nothing more."""
_RARE = 60
"""Calls taken between two rejections, from which on they are few enough for any reason."""
_DEAF = 120.0
"""Seconds for which a verdict holds after the last rejection."""
_WRONG = 600.0
"""Seconds without another verdict, after one that was wrong; they double."""
_LOOKS = ((20, 0.75), (100, 0.4))
"""After how many calls a verdict is looked at, and which share of rejections refutes it."""


class _Lesson(NamedTuple):
    taken: int
    refused: int
    rate: float


class Moods:
    """Counts calls and comes to a verdict; a wrong one is taken back soon."""

    def __init__(self) -> None:
        self._row: deque[_Lesson] = deque(maxlen=_ROW)
        self._taken = self._refused = 0
        self._deaf_until = self._listen_until = float("-inf")
        self._wrong = _WRONG

    def started(self) -> None:
        """A call starts; it counts as taken until it is rejected, which is known soon."""
        self._taken += 1

    def rejected(self, now: float) -> bool:
        """A call was rejected; returns whether that means nothing."""
        self._refused += 1
        self._taken -= 1
        if now >= self._deaf_until:
            return False
        seen = self._taken + self._refused
        if any(seen >= calls and self._refused > share * seen for calls, share in _LOOKS):
            self._deaf_until, self._listen_until = now, now + self._wrong
            self._wrong *= 2
            self._taken = self._refused = 0
            return False
        if seen >= _LOOKS[-1][0]:
            self._taken = self._refused = 0
        self._deaf_until = now + _DEAF
        return True

    def learnt(self, now: float, rate: float | None) -> bool:
        """The rate fell to `rate`; returns whether rejections mean nothing from here on."""
        if rate is None:
            return False
        if self._taken > _RARE:
            self._row.clear()
        self._row.append(_Lesson(self._taken, self._refused, rate))
        self._taken = self._refused = 0
        if len(self._row) < _ROW or now < self._listen_until:
            return False
        taken = sum(min(lesson.taken, _ENOUGH) for lesson in self._row)
        refused = sum(lesson.refused for lesson in self._row)
        if taken < refused * _MOST or rate > _FELL * self._row[0].rate:
            return False
        self._row.clear()
        self._deaf_until = now + _DEAF
        return True
