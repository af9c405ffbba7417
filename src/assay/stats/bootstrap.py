"""The bootstrap of one mean: resamples, and three ways to read bounds from them.

The functions that give bounds take values with mean zero and give the bounds of the mean
relative to it. They expect checked input with some spread; `assay.stats.means` is the way
in. No more than about 64 MB is held at a time, whatever the number of values.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Resampled", "bca_bounds", "percentile_bounds", "resample", "studentised_bounds"]

_BATCH = 4_000_000
"""So many values are drawn at a time."""
_ROUNDING = 1e-13
"""Differences below this part of the largest value are rounding."""


class Resampled(NamedTuple):
    """What is kept of B resamples."""

    means: NDArray[np.float64]
    """Their means, shape (B,)."""
    squares: NDArray[np.float64]
    """The means of their squares, shape (B,); empty unless asked for."""


def resample(
    sample_N: NDArray[np.float64],
    rng: np.random.Generator,
    n_resamples: int,
    squares: bool = False,
) -> Resampled:
    """Draw resamples of a sample with replacement, each as long as the sample."""
    n = len(sample_N)
    means_B = np.empty(n_resamples)
    squares_B = np.empty(n_resamples if squares else 0)
    batch = max(1, _BATCH // n)
    for start in range(0, n_resamples, batch):
        size = min(batch, n_resamples - start)
        drawn = sample_N.take(rng.integers(0, n, (size, n)))
        means_B[start : start + size] = drawn.mean(axis=1)
        if squares:
            squares_B[start : start + size] = np.einsum("bn,bn->b", drawn, drawn) / n
    return Resampled(means_B, squares_B)


def percentile_bounds(
    centred_N: NDArray[np.float64], tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """The quantiles of the resampled means that leave `tail` on either side.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.
    """
    means_B = np.sort(resample(centred_N, rng, n_resamples).means)
    return _quantile(means_B, tail), _quantile(means_B, 1 - tail)


def bca_bounds(
    centred_N: NDArray[np.float64], tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """The quantiles of the resampled means, corrected for bias and acceleration.

    Efron, Better bootstrap confidence intervals, 1987: the quantile at p is taken at
    Phi(z0 + (z0 + z) / (1 - a (z0 + z))) with z = Phi^-1(p). z0 is the normal quantile of
    the share of resampled means below the mean, where an equal one counts half. a comes from
    the jackknife, whose skewness is, for a mean, that of the values themselves.
    """
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import ndtr, ndtri

    means_B = np.sort(resample(centred_N, rng, n_resamples).means)
    # Sums in another order differ in the last digits, and would make or break a tie.
    near = _ROUNDING * float(np.abs(centred_N).max())
    below, above = np.searchsorted(means_B, [-near, near])
    # A share of 0 or 1 has no quantile; half a resample stands for what was not drawn.
    share = float(np.clip((below + above) / 2, 0.5, n_resamples - 0.5)) / n_resamples
    bias = float(ndtri(share))
    squares = float((centred_N**2).sum())
    acceleration = float((centred_N**3).sum()) / (6 * squares**1.5)

    def corrected(p: float) -> float:
        z = bias + float(ndtri(p))
        # At extreme levels the denominator may pass zero, where the formula's limit is 0 or 1.
        shrink = max(1 - acceleration * z, 1e-6)
        return float(ndtr(bias + z / shrink))

    return _quantile(means_B, corrected(tail)), _quantile(means_B, corrected(1 - tail))


def studentised_bounds(
    centred_N: NDArray[np.float64], tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """Bounds from the resampled distribution of t instead of Student's.

    Efron and Tibshirani, 1993, section 12.5, with the standard error of each resample by
    formula. A resample without spread has a t that is infinite with the sign of its mean, or
    0 where its mean is the sample's. A bound is infinite or NaN where it falls among those.
    """
    drawn = resample(centred_N, rng, n_resamples, squares=True)
    variances_B = drawn.squares - drawn.means**2
    spread_B = variances_B > _ROUNDING * drawn.squares
    with np.errstate(divide="ignore", invalid="ignore"):
        errors_B = np.sqrt(np.where(spread_B, variances_B, 0.0))
        t_B = np.nan_to_num(drawn.means / errors_B, nan=0.0, posinf=np.inf, neginf=-np.inf)
    t_B.sort()
    # The divisor of the variance and the root of n are the same in both errors.
    error = math.sqrt(float((centred_N**2).mean()))
    low, high = _quantile(t_B, 1 - tail), _quantile(t_B, tail)
    return -low * error, -high * error


def _quantile(sorted_B: NDArray[np.float64], p: float) -> float:
    """The value at place p (B + 1) of B, on a straight line between its neighbours.

    Davison and Hinkley, Bootstrap Methods and Their Application, 1997, section 5.2.1: the
    tails hold what they should at any B. NumPy's and SciPy's default cuts about one resample
    more from each. Beyond the first or the last place it is the first or the last.
    """
    last = len(sorted_B) - 1
    place = min(max(p * (last + 2) - 1, 0.0), float(last))
    left = min(int(place), last - 1)
    share = place - left
    if share == 0:
        return float(sorted_B[left])
    return float(sorted_B[left]) * (1 - share) + float(sorted_B[left + 1]) * share
