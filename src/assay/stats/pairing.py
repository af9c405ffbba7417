"""What pairing was worth: the correlation within pairs and the variance it saved.

Sharing a seed saves nothing by itself. Whether it did is measured here on the data at hand,
and said in a sentence; nothing is decided by it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.stats.differences import paired_difference, unpaired_difference
from assay.stats.intervals import Interval
from assay.stats.samples import check_level
from assay.stats.two_samples import Sample, as_pairs, pair_differences, scaled

__all__ = ["Pairing", "pairing"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pairing:
    """What a paired design gained over the same trials unpaired."""

    correlation: Interval
    """Of the values within pairs; NaN where a sample does not vary, bounds below 4 pairs."""
    variance_ratio: float
    """Variance of the mean difference, paired over unpaired; 1 where nothing varies."""
    saved: float
    """1 - variance_ratio; below 0 where pairing added variance."""
    n: int
    """Pairs."""
    hurts: bool
    """Whether the whole interval of the correlation lies below what pairing has to bring for
    the paired interval not to be wider than Welch's; never below four pairs."""
    sentence: str
    """All of it in words."""


def pairing(a: Sample, b: Sample, *, level: float = 0.95) -> Pairing:
    """Measure what pairing the values of `a` and `b` was worth.

    The variance of a mean of differences is (var a + var b - 2 cov) / n, and without the
    covariance it is what unpaired samples have (Snedecor and Cochran, Statistical Methods,
    8th ed. 1989). A paired interval also has fewer degrees of freedom, n - 1,
    which costs width at small n: there is a least correlation from which on it is not wider
    than Welch's. One sample is a poor guide to that: with a true correlation of 0.3 the paired
    interval is the wider one in nearly half of all sets of five pairs. So pairing is said to
    hurt only if the interval of the correlation lies below that least one. The correlation is
    Pearson's, with Fisher's interval ("On the 'probable error' of a coefficient of
    correlation", 1921).
    """
    check_level(level)
    (first, second), _ = scaled(*as_pairs(a, b))
    n = len(first)
    ratio = _ratio(first, second)
    paired = paired_difference(first, second, level=level)
    apart = unpaired_difference(first, second, level=level)
    correlation = _correlation(first, second, level)
    widths = (paired.half_width, apart.half_width)
    hurts = correlation.known and correlation.high < _break_even(first, second, ratio, widths)
    sentence = _sentence(correlation, ratio, n, hurts, widths, level)
    return Pairing(correlation, ratio, 1 - ratio, n, hurts, sentence)


def _ratio(a: Floats, b: Floats) -> float:
    if len(a) < 2:
        return 1.0
    differences = pair_differences(a, b)
    unpaired = sum(float(x.var(ddof=1)) for x in (a, b) if np.ptp(x))
    if unpaired == 0:
        return 1.0
    return float(differences.var(ddof=1)) / unpaired if np.ptp(differences) else 0.0


def _break_even(a: Floats, b: Floats, ratio: float, widths: tuple[float, float]) -> float:
    """The correlation at which the paired interval would be as wide as Welch's."""
    if widths[0] == 0:
        return -1.0
    needed = ratio * (widths[1] / widths[0]) ** 2
    spreads = (float(a.std()), float(b.std()))
    return (1 - needed) * (spreads[0] ** 2 + spreads[1] ** 2) / (2 * spreads[0] * spreads[1])


def _correlation(a: Floats, b: Floats, level: float) -> Interval:
    if len(a) < 2 or not np.ptp(a) or not np.ptp(b):
        return Interval(*[math.nan] * 3)
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import ndtri

    x, y = a - a.mean(), b - b.mean()
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    r = min(1.0, max(-1.0, float(x @ y)))
    if len(a) < 4:
        return Interval(r, math.nan, math.nan)
    if abs(r) > 1 - 1e-12:
        return Interval(r, r, r)
    half = float(ndtri((1 + level) / 2)) / math.sqrt(len(a) - 3)
    return Interval(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))


def _sentence(
    correlation: Interval,
    ratio: float,
    n: int,
    hurts: bool,
    widths: tuple[float, float],
    level: float,
) -> str:
    if n < 2:
        return "One pair does not show what pairing is worth; run two or more."
    if math.isnan(correlation.point):
        return (
            f"What pairing is worth cannot be told from {n} pairs: the values of one side are"
            " all equal."
        )
    bounds = (
        f", about {100 * level:.4g} % interval {correlation.low:.2f} to {correlation.high:.2f}"
        if correlation.known
        else ""
    )
    measured = f"correlation {correlation.point:.2f}{bounds}, {n} pairs"
    if hurts:
        wider = widths[0] / widths[1] - 1
        return (
            f"Pairing hurts here ({measured}): the paired interval is {100 * wider:.0f} %"
            " wider than the unpaired one; the pairs share too little, so plan the next trials"
            " unpaired, and do not pick the design by the answer it gives."
        )
    # Widths that are equal but for rounding hurt nobody.
    if widths[0] > widths[1] * (1 + 1e-9):
        return (
            f"Whether pairing helps cannot be told from {n} pairs ({measured}): the paired"
            " interval is not the shorter one here, which may be chance."
        )
    if ratio <= 0:
        return f"Pairing removed all of the variance ({measured}): all pairs differ alike."
    return (
        f"Pairing saved {100 * (1 - ratio):.0f} % of the variance ({measured}): {n} pairs tell"
        f" as much as {n / ratio:.0f} unpaired trials of each."
    )
