"""Statistics as pure functions on numbers; nothing here opens a file or draws."""

from assay.stats.intervals import Interval, t_interval, wilson
from assay.stats.score import crafter_score

__all__ = ["Interval", "crafter_score", "t_interval", "wilson"]
