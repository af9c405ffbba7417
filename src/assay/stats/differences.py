"""Differences and ratios of two means, paired and unpaired, with intervals.

The sign is always that of the second sample against the first: `b - a`, `b / a`. Paired
functions take two samples of one length, in which the values at one place belong together;
they never search for partners. A bound that the data cannot give is NaN, never a guess.
"""

import math

import numpy as np

from assay.errors import UsageError
from assay.stats.bootstrap_two import bca_bounds, percentile_bounds, studentised_bounds
from assay.stats.intervals import Interval
from assay.stats.means import Method, Side, mean_interval
from assay.stats.samples import check_level, check_resamples
from assay.stats.two_samples import (
    Floats,
    Sample,
    as_method,
    as_pairs,
    as_side,
    as_two,
    deviation_of,
    mean_of,
    pair_differences,
    scaled,
    t_quantile,
    welch,
)

__all__ = [
    "denominator_note",
    "paired_difference",
    "ratio_of_means",
    "relative_change",
    "unpaired_difference",
]


def paired_difference(
    a: Sample,
    b: Sample,
    *,
    level: float = 0.95,
    method: Method | str = Method.AUTO,
    side: Side | str = Side.TWO_SIDED,
    rng: np.random.Generator | None = None,
    n_resamples: int = 10_000,
) -> Interval:
    """The mean of `b - a` over pairs, with the interval of `mean_interval`.

    By default that of "Student", "The probable error of a mean", 1908, on the differences.
    One pair has bounds of NaN. Differences that are all equal have an interval of no width.
    """
    return mean_interval(
        pair_differences(a, b),
        method=method,
        level=level,
        side=side,
        rng=rng,
        n_resamples=n_resamples,
    )


def unpaired_difference(
    a: Sample,
    b: Sample,
    *,
    level: float = 0.95,
    method: Method | str = Method.AUTO,
    side: Side | str = Side.TWO_SIDED,
    rng: np.random.Generator | None = None,
    n_resamples: int = 10_000,
) -> Interval:
    """The difference of means `mean(b) - mean(a)` of two independent samples.

    `auto` and `t` are Welch's interval (Welch, 1947, see `welch`), which does not ask for equal
    variances; the three bootstraps resample each sample by itself
    (`assay.stats.bootstrap_two`). Where either sample has one value the bounds are NaN; where
    neither varies the interval has no width. The studentised bootstrap gives NaN where a bound
    would be infinite, because too many of its resamples have no spread.
    """
    first, second = as_two(a, b)
    check_level(level)
    way, wanted = as_method(method), as_side(side)
    if min(len(first), len(second)) < 2:
        return Interval(mean_of(second) - mean_of(first), math.nan, math.nan)
    found = welch(first, second)
    if found.error == 0:
        return _open(Interval(*[found.difference] * 3), wanted)
    tail = (1 - level) / (2 if wanted is Side.TWO_SIDED else 1)
    if way in (Method.AUTO, Method.T):
        half = t_quantile(found.freedom, 1 - tail) * found.error
        low, high = -half, half
    else:
        low, high = _bootstrapped(first, second, way, tail, rng, n_resamples)
    point = found.difference
    return _open(Interval(point, point + low, point + high), wanted)


def relative_change(a: Sample, b: Sample, *, paired: bool, level: float = 0.95) -> Interval:
    """How far the mean of `b` lies above that of `a`, as a share of the latter's size.

    (mean(b) - mean(a)) / |mean(a)|: above 0 means greater, also where means are negative.
    The bounds are those of `ratio_of_means` (Fieller, 1954), and NaN where that has none.
    """
    ratio = ratio_of_means(a, b, paired=paired, level=level)
    if float(np.mean(a)) < 0:
        return Interval(1 - ratio.point, 1 - ratio.high, 1 - ratio.low)
    return Interval(ratio.point - 1, ratio.low - 1, ratio.high - 1)


def ratio_of_means(a: Sample, b: Sample, *, paired: bool, level: float = 0.95) -> Interval:
    """mean(b) / mean(a) with Fieller's interval.

    Fieller, "Some problems in interval estimation", JRSS B 16, 1954. Paired samples use the
    covariance within pairs and n - 1 degrees of freedom, which is exact for normal pairs.
    Unpaired ones use unequal variances and Welch's degrees of freedom at the estimated ratio
    (Tamhane and Logan, "Finding the maximum safe dose level for heteroscedastic data",
    Journal of Biopharmaceutical Statistics 14, 2004), which is approximate.

    Where the interval of mean(a) at this level contains 0, the ratios that fit the data are
    not one stretch of numbers and the bounds are NaN; where mean(a) is 0, so is the point.
    `denominator_note` says so in words.
    """
    check_level(level)
    first, second = as_pairs(a, b) if paired else as_two(a, b)
    ((first,), down), ((second,), up) = scaled(first), scaled(second)
    below, above = mean_of(first), mean_of(second)
    if below == 0:
        return Interval(*[math.nan] * 3)
    point = above / below
    if min(len(first), len(second)) < 2:
        return _in_unit(Interval(point, math.nan, math.nan), up - down)
    freedom = len(first) - 1.0
    if not paired:
        # If the ratio is true, second - ratio * first has mean 0 and these degrees of freedom.
        freedom = welch(first * point, second).freedom
    low, high = _fieller(first, second, paired, t_quantile(freedom, (1 + level) / 2))
    return _in_unit(Interval(point, low, high), up - down)


def denominator_note(a: Sample, *, level: float = 0.95) -> str | None:
    """Why a ratio to the mean of `a` has no bounds, or None where it can have them.

    An unpaired ratio has other degrees of freedom than the mean of `a` alone, so close to the
    edge it may have no bounds and no note, or the reverse.
    """
    interval = mean_interval(a, level=level)
    if not interval.known:
        return "the baseline has one value, so a ratio to it has no interval; run more trials"
    if not interval.low <= 0 <= interval.high:
        return None
    return (
        f"the baseline's mean {interval.point:.4g} is not clear of 0 (interval"
        f" {interval.low:.4g} to {interval.high:.4g}), so a ratio to it has no bounds; read"
        " the difference instead"
    )


def _in_unit(found: Interval, exponent: int) -> Interval:
    """An interval of scaled samples in the unit of the samples; what is no number is NaN."""
    with np.errstate(over="ignore"):
        point, *bounds = (float(np.ldexp(value, exponent)) for value in found)
    known = all(map(math.isfinite, bounds))
    return Interval(point, *(bounds if known else (math.nan, math.nan)))


def _fieller(a: Floats, b: Floats, paired: bool, t: float) -> tuple[float, float]:
    """The roots in r of mean(b - r a)^2 = t^2 var(mean(b - r a)), or NaN."""
    below, above = mean_of(a), mean_of(b)
    v_below, v_above = deviation_of(a) ** 2 / len(a), deviation_of(b) ** 2 / len(b)
    shared = float(np.cov(a, b)[0, 1]) / len(a) if paired and v_below and v_above else 0.0
    square = below**2 - t**2 * v_below
    if square <= 0:
        return math.nan, math.nan
    middle = (below * above - t**2 * shared) / square
    # The discriminant, written so that it is not a difference of nearly equal squares.
    gap = above - middle * below
    variance = v_above - 2 * middle * shared + middle**2 * v_below
    half = math.sqrt(max(0.0, (t**2 * variance - gap**2) / square))
    return middle - half, middle + half


def _bootstrapped(
    a: Floats,
    b: Floats,
    method: Method,
    tail: float,
    rng: np.random.Generator | None,
    n_resamples: int,
) -> tuple[float, float]:
    """Bounds relative to the difference."""
    if rng is None:
        raise UsageError(
            f"method {str(method)!r} draws resamples; give rng=np.random.default_rng(SEED)"
        )
    check_resamples(n_resamples)
    centred = [sample - mean_of(sample) for sample in (a, b)]
    # Values are scaled to at most 1, so that squares of huge ones do not overflow.
    scale = max(float(np.abs(sample).max()) for sample in centred)
    low, high = _BOOTSTRAPS[method](
        centred[0] / scale, centred[1] / scale, tail, rng, n_resamples
    )
    return scale * low, scale * high


_BOOTSTRAPS = {
    Method.STUDENTISED: studentised_bounds,
    Method.BCA: bca_bounds,
    Method.PERCENTILE: percentile_bounds,
}


def _open(found: Interval, side: Side) -> Interval:
    """Open the side that was not asked for; a bound that is not finite is not known."""
    asked = {Side.GREATER: (found.low,), Side.LESS: (found.high,)}.get(side, found[1:])
    if not all(map(math.isfinite, asked)):
        return Interval(found.point, math.nan, math.nan)
    low = -math.inf if side is Side.LESS else found.low
    return Interval(found.point, low, math.inf if side is Side.GREATER else found.high)
