"""Intervals of means and shares that hold at small n.

Every function takes all values there are and returns an `Interval`. A bound that the data
cannot give is NaN, never a guess.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.samples import as_sample, check_level

__all__ = ["Interval", "check_share", "t_interval", "wilson"]


class Interval(NamedTuple):
    """An estimate and the bounds of its interval; bounds that are not known are NaN."""

    point: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether the data gave bounds at all."""
        return not math.isnan(self.low)

    @property
    def half_width(self) -> float:
        """Half the distance of the bounds; NaN where they are not known."""
        return (self.high - self.low) / 2


def t_interval(values: Sequence[float] | NDArray[Any], level: float = 0.95) -> Interval:
    """The mean of independent values with Student's interval.

    "Student", "The probable error of a mean", Biometrika 6, 1908: the mean plus and minus
    the t quantile of n - 1 degrees of freedom times sd / sqrt(n), exact for normal values.
    One value has a mean and no interval: its bounds are NaN. Values that are all equal have
    an interval of no width.
    """
    check_level(level)
    sample = as_sample(values, "the values of a mean")
    if len(sample) == 1:
        return Interval(float(sample[0]), math.nan, math.nan)
    if sample.min() == sample.max():
        # Rounding in the mean would otherwise leave a width of about 1e-17.
        return Interval(*[float(sample[0])] * 3)
    mean = float(sample.mean())
    error = float(sample.std(ddof=1)) / math.sqrt(len(sample))
    half = _t_quantile(len(sample) - 1, (1 + level) / 2) * error
    return Interval(mean, mean - half, mean + half)


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """A share with Wilson's interval, which stays within [0, 1] and has width at 0 and 1.

    Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    check_level(level)
    check_share(successes, trials)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, square = successes / trials, z * z
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    half *= z / (1 + square / trials)
    # At either end the bound is exact, and rounding would leave the point outside.
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == trials else middle + half
    return Interval(share, max(0.0, low), min(1.0, high))


def check_share(successes: int, trials: int) -> None:
    """Refuse numbers of successes and trials that make no share."""
    if not 0 <= successes <= trials or trials < 1:
        raise UsageError(
            f"{successes} of {trials} is no share; successes are 0 or more, trials at least"
            " as many and 1 or more"
        )


def _t_quantile(freedom: int, probability: float) -> float:
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))
