"""Times to an event of which some are only known to be longer.

A trial that ended without the event says that the event takes longer than the trial took: its
time is censored. A mean over the others would call the slow ones fast.
"""

import math
from collections.abc import Sequence

import numpy as np

from assay.errors import UsageError
from assay.stats.samples import as_sample

__all__ = ["median_time"]


def median_time(times: Sequence[float], reached: Sequence[bool]) -> float:
    """The time by which half would have come to the event; NaN if fewer than half did.

    The first time at which the product-limit estimate of survival is 1/2 or less: Kaplan and
    Meier, "Nonparametric estimation from incomplete observations", 1958. At equal times,
    events come before censoring.

    Args:
        times: How long each trial took.
        reached: Whether it came to the event; if not, its time is censored.
    """
    sample = as_sample(times, "times")
    happened = np.asarray(reached, bool)
    if len(happened) != len(sample):
        raise UsageError(
            f"{len(sample)} times and {len(happened)} marks of what was reached; give as many"
        )
    events, counts = np.unique(sample[happened], return_counts=True)
    at_risk = len(sample) - np.searchsorted(np.sort(sample), events)
    survival = np.cumprod(1 - counts / at_risk)
    # A product of fractions that is a half may come out a rounding error above it.
    half = np.flatnonzero(survival <= 0.5 + 1e-12)
    return float(events[half[0]]) if len(half) else math.nan
