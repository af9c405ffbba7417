"""Counts of one attack: a row of the table."""

import sys
import time
from dataclasses import dataclass, field

__all__ = ["FaultRow", "scaled_range", "set_scale"]

_PROGRESS_INTERVAL_S = 5.0
"""Seconds between two progress lines."""
_scale = 1.0


def set_scale(scale: float) -> None:
    """Set the factor by which all numbers of tries are multiplied."""
    global _scale
    _scale = scale


def scaled_range(tries: int) -> range:
    """Return the indices of the tries, at least one."""
    return range(max(1, round(tries * _scale)))


@dataclass(slots=True)
class FaultRow:
    """A row of the table: an attack, tried several times."""

    attack: str
    tries: int = 0
    losses: int = 0
    """Number of tries in which something was lost, wrong or hidden."""
    note: str = ""
    """Observation in a few words."""
    first_loss: str = ""
    _last_report: float = field(default_factory=time.monotonic)

    def count(self, lost: str = "") -> None:
        """Count a try; `lost` describes the loss, if any."""
        self.tries += 1
        if lost:
            self.losses += 1
            self.first_loss = self.first_loss or lost
        if lost or time.monotonic() - self._last_report > _PROGRESS_INTERVAL_S:
            self._last_report = time.monotonic()
            progress = f"  {self.attack}: {self.tries} tries, {self.losses} losses"
            print(f"{progress}; {lost}" if lost else progress, file=sys.stderr, flush=True)
