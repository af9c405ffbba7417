"""How precise a mean is, as a share of the mean."""

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from assay.stats.intervals import Interval
from assay.stats.noncentral import noncentrality_interval
from assay.stats.samples import as_sample, check_level

__all__ = ["relative_standard_error"]


def relative_standard_error(
    values: Sequence[float] | NDArray[Any], *, level: float = 0.95
) -> Interval:
    """The standard error of a mean as a share of it, sd / (sqrt(n) |mean|).

    Its inverse is the noncentrality of Student's t, so that the bounds are exact for normal
    values: they come from inverting the noncentral t (Lehmann, Testing Statistical Hypotheses,
    2nd ed. 1986, section 6.8), and hold the error of the mean as well as that of the sd. The
    upper one is infinite where the mean is not clear of 0. A mean of 0 has no share: all is
    NaN. One value has no spread: all is NaN.
    """
    check_level(level)
    sample = as_sample(values, "the values of a mean")
    n, mean = len(sample), float(sample.mean())
    if n < 2 or mean == 0:
        return Interval(math.nan, math.nan, math.nan)
    if sample.min() == sample.max():
        return Interval(0.0, 0.0, 0.0)
    # Divided by the mean first, so that no square over- or underflows.
    error = float((sample / mean).std(ddof=1)) / math.sqrt(n)
    low, high = noncentrality_interval(1 / error, n - 1, level)
    return Interval(error, 1 / high, 1 / low if low > 0 else math.inf)
