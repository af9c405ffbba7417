"""A confidence sequence for a mean: an interval after each value, all of them right at once.

Exact for normal data whose spread is not known, with no largest sample and no plan of looks.
The price is width: where the largest sample is known, `spending` gives narrower intervals.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError

__all__ = ["EFFECT_VARIANCE", "anytime_bounds"]

EFFECT_VARIANCE: Final = 0.5
"""The variance of the mixture over effects, in squares of the standard deviation.

The sequence is narrowest for effects of about this size, and right for all.
"""


def anytime_bounds(
    counts: NDArray[np.int_] | Sequence[int],
    alpha: float = 0.05,
    effect_variance: float = EFFECT_VARIANCE,
) -> NDArray[np.float64]:
    """The bound of |t| after so many values; infinite where nothing can be said yet.

    With a normal mixture of variance g over the standardised effect and the right Haar measure
    over the scale, the mixed likelihood ratio of n values with the statistic t is

        (1 + n g)^(-1/2) [(1 + t^2 / (n - 1)) / (1 + t^2 / ((n - 1)(1 + n g)))]^(n / 2),

    a martingale for what does not depend on the scale, and it exceeds 1 / alpha at some n with
    a probability of at most alpha (Ville). Solved for t. Lai, "On confidence sequences", 1976;
    Wang & Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with
    unknown variance", 2023, whose normal mixture this is.
    """
    if not 0 < alpha < 1:
        raise UsageError(f"alpha {alpha!r} is not between 0 and 1; 0.05 is usual")
    if not 0 < effect_variance < math.inf:
        raise UsageError(f"effect variance {effect_variance!r} is no number above 0")
    n = np.asarray(counts, np.float64)
    if not (n >= 2).all():
        raise UsageError("a spread needs 2 values or more; ask for counts from 2 on")
    spread = 1 + n * effect_variance
    ratio = np.exp((np.log(spread) - 2 * math.log(alpha)) / n)
    # Before that even an infinite t says too little.
    enough = ratio < spread
    left = np.where(enough, 1 - ratio / spread, 1.0)
    return np.where(enough, np.sqrt((n - 1) * (ratio - 1) / left), math.inf)
