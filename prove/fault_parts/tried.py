"""What one attack came to."""

import sys
import time
from dataclasses import dataclass, field

__all__ = ["Tried", "set_scale", "times"]

_EVERY_S = 5.0
"""Seconds between two lines that say how far it is."""
_scale = 1.0


def set_scale(scale: float) -> None:
    """Make every attack so many times as often as it is written."""
    global _scale
    _scale = scale


def times(tries: int) -> range:
    """The numbers of tries; at least one."""
    return range(max(1, round(tries * _scale)))


@dataclass(slots=True)
class Tried:
    """A line of the table: an attack, tried several times."""

    attack: str
    tries: int = 0
    losses: int = 0
    """Tries after which something was lost, wrong or hidden."""
    note: str = ""
    """What was seen, in a few words."""
    first_loss: str = ""
    _told: float = field(default_factory=time.monotonic)

    def count(self, lost: str = "") -> None:
        """One more try; `lost` says what it lost, if it did."""
        self.tries += 1
        if lost:
            self.losses += 1
            self.first_loss = self.first_loss or lost
        if lost or time.monotonic() - self._told > _EVERY_S:
            self._told = time.monotonic()
            said = f"  {self.attack}: {self.tries} tries, {self.losses} losses"
            print(f"{said}; {lost}" if lost else said, file=sys.stderr, flush=True)
