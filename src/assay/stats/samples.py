"""What every function of this package asks of its numbers, checked in one place.

A sample is a flat array of finite float64. What cannot be one is refused with a sentence;
nothing is dropped, filled in or rounded here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError

__all__ = ["as_sample", "check_level", "check_resamples"]

_FEWEST_RESAMPLES = 100


def as_sample(
    values: Sequence[float] | NDArray[Any], what: str = "values", least: int = 1
) -> NDArray[np.float64]:
    """The values as a flat array of float64; shape (N,).

    Args:
        values: Numbers, or anything NumPy reads as such; truth values count as 0 and 1.
        what: Their name in an error.
        least: How many there have to be.

    Raises:
        UsageError: If there are too few, or one is missing, infinite or no number.
    """
    try:
        sample = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise UsageError(
            f"{what} hold something that is no number; give finite numbers"
        ) from None
    if sample.ndim != 1:
        raise UsageError(f"{what} have {sample.ndim} axes; give one flat list of numbers")
    if not np.isfinite(sample).all():
        at = int(np.flatnonzero(~np.isfinite(sample))[0])
        raise UsageError(
            f"{what} are finite numbers, and number {at + 1} is {sample[at]}; leave out what"
            " is missing or infinite"
        )
    if len(sample) < least:
        got = {0: "no values were", 1: "one value was"}.get(
            len(sample), f"{len(sample)} values were"
        )
        raise UsageError(f"{got} given as {what}; give {least} or more")
    return sample


def check_level(level: float) -> None:
    """Refuse a level of confidence that is not between 0 and 1."""
    if not 0 < level < 1:
        raise UsageError(f"level {level!r} is not between 0 and 1; 0.95 is usual")


def check_resamples(n_resamples: int) -> None:
    """Refuse so few resamples that the tails of a bootstrap hold none of them."""
    if n_resamples < _FEWEST_RESAMPLES:
        raise UsageError(
            f"{n_resamples} resamples are too few for an interval; give"
            f" {_FEWEST_RESAMPLES} or more, 10,000 is usual"
        )
