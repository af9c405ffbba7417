"""How far values are from a normal distribution, to be shown and never to decide.

A test of normality is no gate for a t test: where it passes by chance the t test that follows
keeps its level worst (Rochon, Gondan and Kieser, "To test or not to test: preliminary
assessment of normality when comparing two independent samples", 2012). Nothing of this package
picks a method by what is returned here.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from assay.stats.samples import as_sample

__all__ = ["Normality", "normality"]

_FEWEST, _MOST = 3, 5_000


class Normality(NamedTuple):
    """What the shape of a sample looks like."""

    p_value: float
    """Of the test of Shapiro and Wilk; NaN below 3 values, and where all are equal."""
    skewness: float
    """The sample skewness G1; NaN where it is not defined."""
    n: int


def normality(values: Sequence[float] | NDArray[Any]) -> Normality:
    """The p-value of Shapiro and Wilk, and the skewness corrected for bias.

    Shapiro and Wilk, "An analysis of variance test for normality (complete samples)", 1965,
    with Royston's p-values (AS R94, 1995), which hold up to n = 5,000; above it there is none.
    G1 is the skewness of Joanes and Gill, "Comparing measures of sample skewness and
    kurtosis", 1998.
    """
    sample = as_sample(values, "values to test for normality")
    n = len(sample)
    if n < _FEWEST or sample.min() == sample.max():
        return Normality(math.nan, math.nan, n)
    centred = sample - sample.mean()
    # Scaled to at most 1, so that cubes of huge values do not overflow.
    centred = centred / abs(centred).max()
    plain = float((centred**3).mean() / (centred**2).mean() ** 1.5)
    skewness = plain * math.sqrt(n * (n - 1)) / (n - 2)
    if n > _MOST:
        return Normality(math.nan, skewness, n)
    from scipy.stats import shapiro

    return Normality(float(shapiro(centred).pvalue), skewness, n)
