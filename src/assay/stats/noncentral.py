"""Student's t away from the null: its distribution, and what noncentrality fits a t.

For normal data, where t = mean / (sd / sqrt(n)) has the noncentrality mean / (sd / sqrt(n))
of the true values. Effect sizes and power rest on it.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["noncentral_t_cdf", "noncentrality_interval", "solve"]

_FAR = 1_000.0
"""Beyond it SciPy's series is slow, and from about 1e6 on it gives NaN."""


def noncentral_t_cdf(t: float, freedom: float, noncentrality: float) -> float:
    """The chance of a value of at most t."""
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import nctdtr, ndtr

    if freedom > 1e7:
        # The limit; SciPy's series is slow there and the difference below 1e-7.
        return float(ndtr(t - noncentrality))
    if abs(noncentrality) > _FAR:
        return _far_cdf(t, freedom, noncentrality)
    chance = float(nctdtr(freedom, noncentrality, t))
    if math.isnan(chance):
        # SciPy gives NaN in tails too far out for its series; there the chance is 0 or 1.
        return 1.0 if t > noncentrality else 0.0
    return chance


def noncentrality_interval(t: float, freedom: float, level: float) -> tuple[float, float]:
    """The noncentralities that a test at 1 - level would not reject, having seen t.

    Steiger and Fouladi, "Noncentrality interval estimation and the evaluation of statistical
    models", 1997: each bound makes t the quantile that leaves half of 1 - level outside.
    """
    tail = (1 - level) / 2

    def bound(chance: float) -> float:
        # Far beyond what t could come from: the spread of t grows with t / sqrt(freedom).
        reach = 10 + 10 * abs(t) * (1 + 10 / math.sqrt(freedom))
        return solve(lambda nc: chance - noncentral_t_cdf(t, freedom, nc), -reach, reach)

    return bound(1 - tail), bound(tail)


def solve(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises crosses zero between low and high; the nearer end if not."""
    if rising(low) >= 0:
        return low
    if rising(high) <= 0:
        return high
    from scipy.optimize import brentq

    return float(brentq(rising, low, high, xtol=1e-12, rtol=1e-12))


def _far_cdf(t: float, freedom: float, noncentrality: float) -> float:
    """The chance of (Z + noncentrality) / S <= t, by quadrature over the normal Z.

    S is the root of a chi-square over its freedom, Z is small beside what it is added to.
    """
    from scipy.special import gammaincc, ndtr

    if t < 0:
        return 1 - _far_cdf(-t, freedom, -noncentrality)
    if t == 0:
        return float(ndtr(-noncentrality))
    z, weights = _normal_nodes()
    root = np.maximum(0.0, (noncentrality + z) / t)
    return float(weights @ gammaincc(freedom / 2, freedom * root**2 / 2))


@cache
def _normal_nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    return z, weights / weights.sum()
