"""What trials that were lost could have changed.

A trial that ended by an infrastructure error has no value, and those that are lost are not
always like the rest: the harder worlds may be the ones that break. Nothing here guesses what
they were worth; it says what the extremes would have made of the answer.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.samples import as_sample
from assay.stats.shares import fisher_exact
from assay.stats.two_samples import Sample

__all__ = ["Filled", "losses_matter", "worst_cases"]

_MANY = 0.05
_UNLIKE = 0.1


class Filled(NamedTuple):
    """Two samples in which a value stands for every trial that was lost."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]


def losses_matter(lost_a: int, trials_a: int, lost_b: int, trials_b: int) -> bool:
    """Whether so many trials are lost that an answer has to hold at the extremes.

    From 5 % of either side's trials on, or where the shares of lost trials differ (Fisher's
    exact test, 1935, below 0.1). `trials` are all that were begun, lost ones among them.
    """
    if max(lost_a / trials_a, lost_b / trials_b) >= _MANY:
        return True
    return fisher_exact(lost_a, trials_a, lost_b, trials_b) < _UNLIKE


def worst_cases(
    a: Sample,
    b: Sample,
    *,
    low: float | None = None,
    high: float | None = None,
) -> tuple[Filled, Filled]:
    """Both samples with their lost trials at the values worst for `b`, and at the best for it.

    The bounds of Horowitz and Manski, "Nonparametric analysis of randomized experiments with
    missing covariate and outcome data", 2000: whatever the lost trials were worth, the
    difference of the means lies between those of the two. An answer that both give does not
    hang on what was lost.

    Args:
        a: One value per trial, NaN where it was lost.
        b: The same; for pairs both are in pair order.
        low: The least possible value; None: the least that was seen on either side.
        high: The greatest possible value; None: the greatest that was seen.
    """
    first, second = (np.asarray(side, np.float64) for side in (a, b))
    seen = np.concatenate([side[~np.isnan(side)] for side in (first, second)])
    as_sample(seen, "values that were not lost")
    least = float(seen.min()) if low is None else low
    most = float(seen.max()) if high is None else high
    if not least <= seen.min() <= seen.max() <= most or math.isinf(most - least):
        raise UsageError(
            f"values go from {seen.min():g} to {seen.max():g}, beyond the bounds {least:g} and"
            f" {most:g}; give the least and the greatest value that is possible"
        )

    def filled(for_a: float, for_b: float) -> Filled:
        return Filled(
            np.where(np.isnan(first), for_a, first), np.where(np.isnan(second), for_b, second)
        )

    return filled(most, least), filled(least, most)
