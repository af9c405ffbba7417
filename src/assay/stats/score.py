"""The Crafter score: one number for 22 success rates.

It rewards breadth: a rare achievement counts for more than a common one made more often.
Rates of zero weigh heavily, so the score of the same player grows with the number of
episodes; only scores of equal n can be set beside each other.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["crafter_score"]


def crafter_score(rates: NDArray[np.float64] | Sequence[float]) -> NDArray[np.float64]:
    """The Crafter score of success rates in [0, 1]; the last axis are the achievements.

    exp(mean(ln(1 + percent))) - 1, as in the reference's `analysis/common.py`. It lies
    between 0 and 100.
    """
    percent = 100 * np.asarray(rates, np.float64)
    return np.asarray(np.expm1(np.log1p(percent).mean(axis=-1)))
