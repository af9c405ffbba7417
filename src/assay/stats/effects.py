"""Effect sizes without a unit, with confidence intervals, and the noncentral t distribution.

A positive effect means that `b` is greater than `a`. Standardised differences divide by a
standard deviation and assume normal data. `probability_of_improvement` and `cliffs_delta` only
count which of two values is greater and assume nothing but independence. Without any variance a
standardised difference is 0 or infinite, and its bounds are NaN.

For normal data, t = mean / (sd / sqrt(n)) follows the noncentral t distribution whose
noncentrality is mean / (sd / sqrt(n)) of the true values. Effect sizes and power use it.
"""

import math
from collections.abc import Callable
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from assay.stats.estimates import Sample, as_pairs, as_two, pair_differences, scaled
from assay.stats.intervals import Interval, check_level, wilson

_FAR = 1_000.0
"""Beyond this, SciPy's series is slow, and from about 1e6 it returns NaN."""


def noncentral_t_cdf(t: float, freedom: float, noncentrality: float) -> float:
    """Return the probability of a value of at most t."""
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import nctdtr, ndtr

    if freedom > 1e7:
        # Normal limit: SciPy's series is slow there, and the difference is below 1e-7.
        return float(ndtr(t - noncentrality))
    if abs(noncentrality) > _FAR:
        return _far_cdf(t, freedom, noncentrality)
    chance = float(nctdtr(freedom, noncentrality, t))
    if math.isnan(chance):
        # SciPy returns NaN in tails beyond its series; there the probability is 0 or 1.
        return 1.0 if t > noncentrality else 0.0
    return chance


def noncentrality_interval(t: float, freedom: float, level: float) -> tuple[float, float]:
    """Return the noncentralities that a test at 1 - level would not reject after observing t.

    Steiger and Fouladi, "Noncentrality interval estimation and the evaluation of statistical
    models", 1997: each bound makes t the quantile that leaves half of 1 - level outside.
    """
    tail = (1 - level) / 2

    def bound(chance: float) -> float:
        # Far beyond any plausible noncentrality: the spread of t grows with t / sqrt(freedom).
        reach = 10 + 10 * abs(t) * (1 + 10 / math.sqrt(freedom))
        return solve(lambda nc: chance - noncentral_t_cdf(t, freedom, nc), -reach, reach)

    return bound(1 - tail), bound(tail)


def solve(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of an increasing function in [low, high], or the nearer end if none."""
    if rising(low) >= 0:
        return low
    if rising(high) <= 0:
        return high
    from scipy.optimize import brentq

    return float(brentq(rising, low, high, xtol=1e-12, rtol=1e-12))


def _far_cdf(t: float, freedom: float, noncentrality: float) -> float:
    """Return the probability of (Z + noncentrality) / S <= t, by quadrature over the normal Z.

    S is the square root of a chi-square variable over its degrees of freedom. Z is small
    compared with the noncentrality.
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


Floats = NDArray[np.float64]


def cohens_d(a: Sample, b: Sample, *, paired: bool = False, level: float = 0.95) -> Interval:
    """Return the difference of means in standard deviations of one trial.

    The standard deviation is pooled over both samples (Cohen, Statistical Power Analysis for
    the Behavioral Sciences, 2nd ed. 1988, section 2.2). If paired, it is the root of the mean
    of both variances, known as d_av (Cumming, Understanding the New Statistics, 2012, chapter
    11). So paired and unpaired designs give effect sizes on the same scale; `cohens_dz` is the
    effect size that pairing makes larger.

    The interval inverts the noncentral t: exact unpaired with equal variances (Steiger and
    Fouladi, 1997), approximate paired (Algina and Keselman, "Approximate confidence intervals
    for effect sizes", 2003).
    """
    check_level(level)
    (first, second), _ = scaled(*(as_pairs(a, b) if paired else as_two(a, b)))
    if paired:
        return _paired_d(first, second, level)
    n, m = len(first), len(second)
    difference, freedom = float(second.mean() - first.mean()), n + m - 2
    squares = _squares(first) + _squares(second)
    if freedom < 1 or squares == 0:
        return _spreadless(difference)
    d = difference / math.sqrt(squares / freedom)
    if min(n, m) == 1:
        return Interval(d, math.nan, math.nan)
    return _scaled(d, math.sqrt(1 / n + 1 / m), freedom, level)


def cohens_dz(a: Sample, b: Sample, *, level: float = 0.95) -> Interval:
    """Return the mean of paired differences in standard deviations of those differences.

    Cohen, 1988, section 2.3.5: the effect size on which a paired t test and its power depend.
    It grows with the correlation within pairs, so it is not comparable with `cohens_d`. Its
    interval is exact for normal differences (Steiger and Fouladi, 1997).
    """
    check_level(level)
    (differences,), _ = scaled(pair_differences(a, b))
    squares, n = _squares(differences), len(differences)
    if squares == 0:
        return _spreadless(float(differences[0]))
    dz = float(differences.mean()) / math.sqrt(squares / (n - 1))
    return _scaled(dz, math.sqrt(1 / n), n - 1, level)


def hedges_g(a: Sample, b: Sample, *, paired: bool = False, level: float = 0.95) -> Interval:
    """Return Cohen's d, corrected for its bias at small n.

    d times Gamma(f / 2) / (sqrt(f / 2) Gamma((f - 1) / 2)) with f degrees of freedom (Hedges,
    "Distribution theory for Glass's estimator of effect size", 1981), n - 1 of them if paired
    as in Cumming, 2012. The bounds are the bounds of d: d and g estimate the same true effect
    size, and shrinking the bounds as well would change their coverage. With one degree of
    freedom the factor is undefined, and the point is 0.
    """
    d = cohens_d(a, b, paired=paired, level=level)
    freedom = len(a) - 1 if paired else len(a) + len(b) - 2
    if not math.isfinite(d.point):
        return d
    return d._replace(point=d.point * _shrinkage(freedom))


def probability_of_improvement(
    a: Sample, b: Sample, *, paired: bool = False, level: float = 0.95
) -> Interval:
    """Return the probability that a trial of `b` beats a trial of `a`; a tie counts half.

    Unpaired, over all pairs of trials, with the score interval of Newcombe, "Confidence
    intervals for an effect size measure based on the Mann-Whitney statistic. Part 2", 2006,
    method 5. Paired, within the pairs, with Wilson's interval, where wins and half of the ties
    are the successes. Both intervals stay within [0, 1] and have nonzero width when one side
    always wins. Ties make both wider than necessary. In simulations the coverage of the
    unpaired interval at 95 % was 95 to 97 % with 5 to 15 normal values of equal spread, and 93
    to 94 % if one sample had three times the spread. With fewer than two values the bounds are
    NaN.
    """
    check_level(level)
    if paired:
        signs = np.sign(pair_differences(a, b))
        won = float((signs + 1).sum()) / 2
        if len(signs) < 2:
            return Interval(won, math.nan, math.nan)
        return wilson(won, len(signs), level)
    first, second = as_two(a, b)
    ordered = np.sort(first)
    wins = np.searchsorted(ordered, second, "left") + np.searchsorted(ordered, second, "right")
    share = float(wins.mean()) / (2 * len(first))
    if min(len(first), len(second)) < 2:
        return Interval(share, math.nan, math.nan)
    z = NormalDist().inv_cdf((1 + level) / 2)
    return _newcombe(share, len(first), len(second), z)


def cliffs_delta(
    a: Sample, b: Sample, *, paired: bool = False, level: float = 0.95
) -> Interval:
    """Return P(b > a) - P(b < a), from -1 to 1.

    Cliff, "Dominance statistics: ordinal analyses to answer ordinal questions", 1993. The
    estimate and its bounds are 2 P - 1 of `probability_of_improvement`. Cliff's own interval
    has zero width if one sample lies entirely above the other.
    """
    share = probability_of_improvement(a, b, paired=paired, level=level)
    return Interval(*(2 * value - 1 for value in share))


def _squares(sample: Floats) -> float:
    """Return the sum of squared deviations; exactly 0 for equal values."""
    if sample.min() == sample.max():
        return 0.0
    return float(((sample - sample.mean()) ** 2).sum())


def _spreadless(difference: float) -> Interval:
    point = math.copysign(math.inf, difference) if difference else 0.0
    return Interval(point, math.nan, math.nan)


def _scaled(d: float, error: float, freedom: int, level: float) -> Interval:
    """Return the interval of a standardised difference whose t is d / error."""
    low, high = noncentrality_interval(d / error, freedom, level)
    return Interval(d, low * error, high * error)


def _paired_d(a: Floats, b: Floats, level: float) -> Interval:
    n, differences = len(a), pair_differences(a, b)
    spread = math.sqrt((_squares(a) + _squares(b)) / (2 * max(1, n - 1)))
    if spread == 0:
        return _spreadless(float(differences[0]))
    d = float(differences.mean()) / spread
    deviation = math.sqrt(_squares(differences) / (n - 1))
    if deviation == 0:
        # All pairs differ by the same amount, so the difference has no sampling error.
        return Interval(d, d, d)
    return _scaled(d, deviation / spread / math.sqrt(n), n - 1, level)


def _shrinkage(freedom: int) -> float:
    if freedom < 2:
        return 0.0
    logs = math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)
    return math.exp(logs) / math.sqrt(freedom / 2)


def _newcombe(share: float, n: int, m: int, z: float) -> Interval:
    """Return Newcombe's method 5: the roots p of |p - share| = z error(p)."""
    more = (n + m) / 2 - 1

    def error(p: float) -> float:
        spread = 1 + more * ((1 - p) / (2 - p) + p / (1 + p))
        return math.sqrt(p * (1 - p) * spread / (n * m))

    # At a proportion of 0 or 1, the proportion itself is a trivial root; it is excluded.
    inside = 1e-12
    low = solve(lambda p: p + z * error(p) - share, 0.0, share * (1 - inside))
    high = solve(lambda p: p - z * error(p) - share, share + inside * (1 - share), 1.0)
    return Interval(share, low, high)
