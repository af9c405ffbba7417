"""Differences and ratios of two means, paired and unpaired, with intervals.

The sign is always that of the second sample against the first: `b - a`, `b / a`. Paired
functions take two samples of one length, in which the values at one place belong together;
they never search for partners. A bound that the data cannot give is NaN, never a guess.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay._util.names import unknown_name
from assay.errors import UsageError
from assay.stats.bootstrap_two import bca_bounds, percentile_bounds, studentised_bounds
from assay.stats.intervals import Interval
from assay.stats.means import Method, Side, mean_interval
from assay.stats.samples import as_sample, check_level, check_resamples

__all__ = [
    "Sample",
    "Welch",
    "as_method",
    "as_pairs",
    "as_side",
    "as_two",
    "denominator_note",
    "pair_differences",
    "paired_difference",
    "ratio_of_means",
    "relative_change",
    "unpaired_difference",
    "welch",
]

Sample = Sequence[float] | NDArray[Any]
"""What every function here takes as one sample, shape (N,)."""
Floats = NDArray[np.float64]

_ROUNDING = 1e-14
"""Differences below this part of the largest value are rounding."""


class Welch(NamedTuple):
    """A difference of means with its standard error and degrees of freedom."""

    difference: float
    error: float
    freedom: float
    """Infinite where neither sample varies."""


def as_two(a: Sample, b: Sample) -> tuple[Floats, Floats]:
    """Both samples as checked arrays, of any lengths from one on."""
    first = as_sample(a, "the values of the first sample")
    return first, as_sample(b, "the values of the second sample")


def as_pairs(a: Sample, b: Sample) -> tuple[Floats, Floats]:
    """Both samples as checked arrays of one length, in pair order."""
    first, second = as_two(a, b)
    if len(first) != len(second):
        raise UsageError(
            f"{len(first)} values cannot be paired with {len(second)}; give one value of each"
            " per pair, or compare them unpaired"
        )
    return first, second


def pair_differences(a: Sample, b: Sample) -> Floats:
    """`b - a` pair by pair, without the spread that rounding alone makes; shape (N,)."""
    first, second = as_pairs(a, b)
    differences = second - first
    size = max(float(np.abs(first).max()), float(np.abs(second).max()))
    if float(np.ptp(differences)) <= _ROUNDING * size:
        # 0.3 - 0.2 and 0.2 - 0.1 differ in the last digit; no test should live on that.
        differences[:] = np.median(differences)
    return differences


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

    `auto` and `t` are Welch's interval, which does not ask for equal variances; the three
    bootstraps resample each sample by itself (`assay.stats.bootstrap_two`). Where either
    sample has one value the bounds are NaN; where neither varies the interval has no width.
    The studentised bootstrap gives NaN where a bound would be infinite, because too many of
    its resamples have no spread.
    """
    first, second = as_two(a, b)
    check_level(level)
    way, wanted = as_method(method), as_side(side)
    if min(len(first), len(second)) < 2:
        return Interval(_mean(second) - _mean(first), math.nan, math.nan)
    found = welch(first, second)
    if found.error == 0:
        return _open(Interval(*[found.difference] * 3), wanted)
    tail = (1 - level) / (2 if wanted is Side.TWO_SIDED else 1)
    if way in (Method.AUTO, Method.T):
        half = _t_quantile(found.freedom, 1 - tail) * found.error
        low, high = -half, half
    else:
        low, high = _bootstrapped(first, second, way, tail, rng, n_resamples)
    point = found.difference
    return _open(Interval(point, point + low, point + high), wanted)


def welch(a: Floats, b: Floats) -> Welch:
    """The difference of two means with unequal variances, of samples of two or more.

    Welch, "The generalization of 'Student's' problem when several different population
    variances are involved", Biometrika 34, 1947.
    """
    errors = [_deviation(sample) / math.sqrt(len(sample)) for sample in (a, b)]
    error = math.hypot(*errors)
    if error == 0:
        return Welch(float(b[0] - a[0]), 0.0, math.inf)
    # Shares of the variance instead of its squares, which underflow for tiny values.
    spread = sum(
        (part / error) ** 4 / (len(sample) - 1)
        for part, sample in zip(errors, (a, b), strict=True)
    )
    return Welch(_mean(b) - _mean(a), error, 1 / spread)


def relative_change(a: Sample, b: Sample, *, paired: bool, level: float = 0.95) -> Interval:
    """How far the mean of `b` lies above that of `a`, as a share of the latter's size.

    (mean(b) - mean(a)) / |mean(a)|: above 0 means greater, also where means are negative.
    The bounds are those of `ratio_of_means`, and NaN where that has none.
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
    below, above = _mean(first), _mean(second)
    if below == 0:
        return Interval(*[math.nan] * 3)
    point = above / below
    if min(len(first), len(second)) < 2:
        return Interval(point, math.nan, math.nan)
    freedom = len(first) - 1.0
    if not paired:
        # If the ratio is true, second - ratio * first has mean 0 and these degrees of freedom.
        freedom = welch(first * point, second).freedom
    low, high = _fieller(first, second, paired, _t_quantile(freedom, (1 + level) / 2))
    return Interval(point, low, high)


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


def as_method(name: Method | str) -> Method:
    """The method of this name."""
    try:
        return Method(name)
    except ValueError:
        raise UsageError(unknown_name("method of an interval", str(name), Method)) from None


def as_side(name: Side | str) -> Side:
    """The side of this name."""
    try:
        return Side(name)
    except ValueError:
        raise UsageError(unknown_name("side", str(name), Side)) from None


def _mean(sample: Floats) -> float:
    # Equal values are their own mean; a sum of them would be off in the last digit.
    return float(sample[0] if sample.min() == sample.max() else sample.mean())


def _deviation(sample: Floats) -> float:
    return 0.0 if sample.min() == sample.max() else float(sample.std(ddof=1))


def _fieller(a: Floats, b: Floats, paired: bool, t: float) -> tuple[float, float]:
    """The roots in r of mean(b - r a)^2 = t^2 var(mean(b - r a)), or NaN."""
    below, above = _mean(a), _mean(b)
    v_below, v_above = _deviation(a) ** 2 / len(a), _deviation(b) ** 2 / len(b)
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
    centred = [sample - _mean(sample) for sample in (a, b)]
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


def _t_quantile(freedom: float, probability: float) -> float:
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import ndtri, stdtrit

    if math.isinf(freedom):
        return float(ndtri(probability))
    return float(stdtrit(freedom, probability))
