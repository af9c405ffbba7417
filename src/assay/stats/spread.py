"""How well a few normal values tell the standard deviation they come from."""

import math

from assay.errors import UsageError
from assay.stats.intervals import Interval
from assay.stats.samples import check_level

__all__ = ["checked_sd", "sd_interval", "sd_sampling_factors"]


def sd_interval(sd: float, n: int, *, level: float = 0.95) -> Interval:
    """The true standard deviation, given that of n normal values.

    The chi-square interval, sd sqrt((n - 1) / quantile): Snedecor and Cochran, Statistical
    Methods, 8th ed. 1989. At n = 15 it runs from 0.73 to 1.58 times sd, so that
    a number of trials in proportion to the variance is open from 0.54 to 2.49 times.
    """
    low, high = sd_sampling_factors(n, level=level)
    return Interval(checked_sd(sd), sd / high, sd / low)


def sd_sampling_factors(n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Between which multiples of the true value the sd of n normal values falls.

    The square roots of the chi-square quantiles over n - 1. At n = 15 from 0.63 to 1.37: a
    planned number of trials lands between 0.40 and 1.87 times the right one. This looks from
    the truth to the pilot; `sd_interval` looks back.
    """
    check_level(level)
    if n < 2:
        raise UsageError(f"the spread of {n} values is not known; give 2 or more")
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import chdtri

    tail = (1 - level) / 2
    low, high = (float(chdtri(n - 1, above)) for above in (1 - tail, tail))
    return math.sqrt(low / (n - 1)), math.sqrt(high / (n - 1))


def checked_sd(sd: float) -> float:
    """The standard deviation, which is a finite number from 0 on."""
    if not (sd >= 0 and math.isfinite(sd)):
        raise UsageError(f"standard deviation {sd!r} is not a finite number from 0 on")
    return float(sd)
