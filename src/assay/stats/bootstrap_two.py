"""The bootstrap of a difference of two means: three ways to read bounds from resamples.

Each sample is resampled by itself. The functions take samples of mean zero, two values or
more with some spread in one of them, and give the bounds of the difference relative to its
estimate; `assay.stats.differences` is the way in.
"""

import math

import numpy as np
from numpy.typing import NDArray

from assay.stats.bootstrap import resample

__all__ = ["bca_bounds", "percentile_bounds", "studentised_bounds"]

Floats = NDArray[np.float64]

_ROUNDING = 1e-13
"""Differences below this part of the largest value are rounding."""


def percentile_bounds(
    a: Floats, b: Floats, tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """The quantiles of the resampled differences that leave `tail` on either side.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13.
    """
    low, high = np.quantile(_differences(a, b, rng, n_resamples), [tail, 1 - tail])
    return float(low), float(high)


def bca_bounds(
    a: Floats, b: Floats, tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """The quantiles of the resampled differences, corrected for bias and acceleration.

    Efron, Better bootstrap confidence intervals, 1987; the acceleration of two samples adds
    up the cubes and the squares of both samples' empirical influence values, each divided by
    its own n (Davison and Hinkley, Bootstrap Methods and their Application, 1997, chapter 5).
    """
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import ndtr, ndtri

    differences_B = _differences(a, b, rng, n_resamples)
    near = _ROUNDING * max(float(np.abs(a).max()), float(np.abs(b).max()))
    below = int((differences_B < -near).sum())
    ties = int((np.abs(differences_B) <= near).sum())
    # A share of 0 or 1 has no quantile; half a resample stands for what was not drawn.
    share = min(max(below + ties / 2, 0.5), n_resamples - 0.5) / n_resamples
    bias = float(ndtri(share))
    pulls = (b / len(b), -a / len(a))
    cubes = sum(float((pull**3).sum()) for pull in pulls)
    squares = sum(float((pull**2).sum()) for pull in pulls)
    acceleration = cubes / (6 * squares**1.5)
    z = bias + ndtri([tail, 1 - tail])
    # At extreme levels the denominator may pass zero, where the formula's limit is 0 or 1.
    places = ndtr(bias + z / np.maximum(1 - acceleration * z, 1e-6))
    low, high = np.quantile(differences_B, places)
    return float(low), float(high)


def studentised_bounds(
    a: Floats, b: Floats, tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """Bounds from the resampled distribution of Welch's t.

    Davison and Hinkley, 1997, chapter 5, with the standard error of each resample by formula.
    A resample without spread has a t that is infinite with the sign of its difference, or 0
    where it has none. A bound is not finite where it falls among those.
    """
    drawn_a = resample(a, rng, n_resamples, squares=True)
    drawn_b = resample(b, rng, n_resamples, squares=True)
    variances_B = np.zeros(n_resamples)
    for drawn, n in ((drawn_a, len(a)), (drawn_b, len(b))):
        spread_B = drawn.squares - drawn.means**2
        # What is left of equal values by rounding is no spread.
        variances_B += np.where(spread_B > _ROUNDING * drawn.squares, spread_B, 0.0) / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t_B = np.nan_to_num(
            (drawn_b.means - drawn_a.means) / np.sqrt(variances_B),
            nan=0.0,
            posinf=np.inf,
            neginf=-np.inf,
        )
    # A straight line between two infinite neighbours would be NaN.
    below, above = np.quantile(t_B, [tail, 1 - tail], method="inverted_cdf")
    error = math.sqrt(float((a**2).mean()) / (len(a) - 1) + float((b**2).mean()) / (len(b) - 1))
    return -float(above) * error, -float(below) * error


def _differences(a: Floats, b: Floats, rng: np.random.Generator, n_resamples: int) -> Floats:
    """Differences of the means of resamples; shape (n_resamples,)."""
    means_a = resample(a, rng, n_resamples).means
    return resample(b, rng, n_resamples).means - means_a
