"""Lost trials: what a result could be, whatever the lost trials had scored.

A trial that was started and has no value is lost: an infrastructure error, a missing grade, a
row that a file lacks. Lost trials may differ from the others, because harder worlds fail more
often, so their values are never guessed. With a range, every value they could have had is
allowed for (`worst_case_interval`). Without one, no bound exists: `tipping_point` says how far
from the others the lost trials must lie to change a conclusion.

Samples have NaN for lost trials. Pairs are in pair order, and a pair with one value counts: the
difference of a lost partner goes from value - high to value - low.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from assay.errors import UsageError
from assay.stats.estimates import Floats, Sample
from assay.stats.intervals import Interval, as_sample
from assay.stats.shares import fisher_exact

_MANY = 0.05
_UNLIKE = 0.1
_DOUBLINGS = 40


class Filled(NamedTuple):
    """Two samples in which lost trials have been given a value."""

    a: Floats
    b: Floats


class LossBounds(NamedTuple):
    """A difference at both extremes of the lost trials."""

    lowest: Interval
    """With the lost trials at the values worst for `b`."""
    highest: Interval
    """With the lost trials at the values best for `b`."""
    interval: Interval
    """Union of both; the point is that of the trials with a value, NaN if there are none."""


def losses_matter(lost_a: int, trials_a: int, lost_b: int, trials_b: int) -> bool:
    """Return whether so many trials are lost that a result without a range has no verdict.

    True if at least 5 % of either side's trials are lost, or if the proportions of lost trials
    differ (Fisher's exact test, 1935, below 0.1). `trials` counts all started trials, including
    the lost ones.
    """
    if max(lost_a / trials_a, lost_b / trials_b) >= _MANY:
        return True
    return fisher_exact(lost_a, trials_a, lost_b, trials_b) < _UNLIKE


def worst_cases(a: Sample, b: Sample, *, low: float, high: float) -> tuple[Filled, Filled]:
    """Fill lost trials with the values worst for `b`, and with the values best for `b`.

    The bounds of Horowitz and Manski, "Nonparametric analysis of randomized experiments with
    missing covariate and outcome data", 2000: for any values of the lost trials, the difference
    of means lies between the differences in the two cases.

    Args:
        a: One value per trial, NaN if it was lost.
        b: One value per trial, NaN if it was lost; for pairs both are in pair order.
        low: Smallest possible value.
        high: Largest possible value.
    """
    first, second, seen = _sides(a, b)
    if not low <= seen.min() <= seen.max() <= high or math.isinf(high - low):
        raise UsageError(
            f"values go from {seen.min():g} to {seen.max():g}, beyond the bounds {low:g} and"
            f" {high:g}; give the least and the greatest value that is possible"
        )

    def filled(for_a: float, for_b: float) -> Filled:
        return Filled(
            np.where(np.isnan(first), for_a, first), np.where(np.isnan(second), for_b, second)
        )

    return filled(high, low), filled(low, high)


def worst_case_interval(
    a: Sample,
    b: Sample,
    find: Callable[[Floats, Floats], Interval],
    *,
    low: float,
    high: float,
) -> LossBounds:
    """Return the interval of a difference that holds whatever the lost trials had scored.

    The union of the intervals in both `worst_cases` (Horowitz and Manski, 2000), between which
    the difference with the true values of the lost trials lies.

    Args:
        a: One value per trial, NaN if it was lost.
        b: The same for the second side.
        find: Interval of the difference of two complete samples.
        low: Smallest possible value.
        high: Largest possible value.
    """
    lowest, highest = (find(*case) for case in worst_cases(a, b, low=low, high=high))
    first, second, _ = _sides(a, b)
    known = [side[~np.isnan(side)] for side in (first, second)]
    point = known[1].mean() - known[0].mean() if all(map(len, known)) else math.nan
    both = Interval(float(point), min(lowest.low, highest.low), max(lowest.high, highest.high))
    return LossBounds(lowest, highest, both)


def tipping_point(
    a: Sample, b: Sample, holds: Callable[[Floats, Floats], bool], *, higher: bool
) -> float:
    """Return how far from the others the lost trials must lie to change a conclusion.

    Yan, Lee and Li, "Missing data handling methods in medical device clinical trials", 2009:
    lost trials of a side get values spread as the others of that side, moved against the
    conclusion by the same amount, which is increased until the conclusion no longer holds. It
    is 0 if it does not hold even unmoved, and infinite if it holds at any distance.

    Args:
        a: One value per trial, NaN if it was lost.
        b: The same for the second side; for pairs both are in pair order.
        holds: Whether the conclusion holds for two complete samples.
        higher: Whether the conclusion is that `b` is higher; if not, that it is lower.
    """
    first, second, seen = _sides(a, b)
    sign = 1 if higher else -1

    def at(shift: float) -> bool:
        return holds(_spread(first, sign * shift), _spread(second, -sign * shift))

    if not at(0.0):
        return 0.0
    far = float(np.ptp(seen)) or max(abs(float(seen[0])), 1.0)
    near = 0.0
    for _ in range(_DOUBLINGS):
        if not at(far):
            break
        near, far = far, 2 * far
    else:
        return math.inf
    for _ in range(_DOUBLINGS):
        middle = (near + far) / 2
        near, far = (middle, far) if at(middle) else (near, middle)
    return far


def _sides(a: Sample, b: Sample) -> tuple[Floats, Floats, Floats]:
    """Return both samples as arrays, and all values that were not lost."""
    first, second = (np.asarray(side, np.float64) for side in (a, b))
    seen = np.concatenate([side[~np.isnan(side)] for side in (first, second)])
    return first, second, as_sample(seen, "values that were not lost")


def _spread(side: Floats, shift: float) -> Floats:
    """Fill lost trials with evenly spaced quantiles of the others, moved by the shift."""
    lost = np.isnan(side)
    if not lost.any() or lost.all():
        return side
    ranks = (np.arange(lost.sum()) + 0.5) / lost.sum()
    filled = side.copy()
    filled[lost] = np.quantile(side[~lost], ranks) + shift
    return filled
