"""Differences and ratios of two means, paired and unpaired, with confidence intervals.

The second sample is compared with the first: `b - a`, `b / a`. Paired functions take two
samples of equal length and pair values by position; they never search for partners. A bound
that the data do not determine is NaN, never a guess.

The bootstrap of an unpaired difference resamples each sample independently. The functions for
its bounds take centred samples of at least two values, at least one with some variance, and
return bounds relative to the estimate. `unpaired_difference` calls them.

`pairing` measures on the data how much variance pairing saved, because sharing a seed does not
save variance by itself. Nothing is decided by its result.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.estimates import (
    Sample,
    as_pairs,
    as_side,
    as_two,
    deviation_of,
    mean_of,
    pair_differences,
    scaled,
    welch,
)
from assay.stats.intervals import (
    Interval,
    Method,
    Side,
    as_method,
    check_level,
    check_resamples,
    mean_interval,
    open_side,
    resample,
    t_quantile,
)

Floats = NDArray[np.float64]

_ROUNDING = 1e-13
"""Differences below this fraction of the largest value are rounding errors."""


def percentile_bounds(
    a: Floats, b: Floats, tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """Return the quantiles of the resampled differences that leave `tail` on either side.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13.
    """
    low, high = np.quantile(_differences(a, b, rng, n_resamples), [tail, 1 - tail])
    return float(low), float(high)


def bca_bounds(
    a: Floats, b: Floats, tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """Return the quantiles of the resampled differences, corrected for bias and acceleration.

    Efron, Better bootstrap confidence intervals, 1987. The acceleration of two samples adds up
    the cubes and the squares of both samples' empirical influence values, each divided by its
    own n (Davison and Hinkley, Bootstrap Methods and their Application, 1997, chapter 5).
    """
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import ndtr, ndtri

    differences_B = _differences(a, b, rng, n_resamples)
    near = _ROUNDING * max(float(np.abs(a).max()), float(np.abs(b).max()))
    below = int((differences_B < -near).sum())
    ties = int((np.abs(differences_B) <= near).sum())
    # A proportion of 0 or 1 has no finite normal quantile, so half a resample is added.
    share = min(max(below + ties / 2, 0.5), n_resamples - 0.5) / n_resamples
    bias = float(ndtri(share))
    pulls = (b / len(b), -a / len(a))
    cubes = sum(float((pull**3).sum()) for pull in pulls)
    squares = sum(float((pull**2).sum()) for pull in pulls)
    acceleration = cubes / (6 * squares**1.5)
    z = bias + ndtri([tail, 1 - tail])
    # At extreme levels the denominator may cross zero; the limit of the formula is 0 or 1.
    places = ndtr(bias + z / np.maximum(1 - acceleration * z, 1e-6))
    low, high = np.quantile(differences_B, places)
    return float(low), float(high)


def studentised_bounds(
    a: Floats, b: Floats, tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """Return bounds from the resampled distribution of Welch's t.

    Davison and Hinkley, 1997, chapter 5, with the standard error of each resample by formula. A
    resample without variance has a t that is infinite with the sign of its difference, or 0 if
    the difference is 0. A bound that falls among infinite values of t is not finite.
    """
    drawn_a = resample(a, rng, n_resamples, squares=True)
    drawn_b = resample(b, rng, n_resamples, squares=True)
    variances_B = np.zeros(n_resamples)
    for drawn, n in ((drawn_a, len(a)), (drawn_b, len(b))):
        spread_B = drawn.squares - drawn.means**2
        # For equal values this is a rounding error, not variance.
        variances_B += np.where(spread_B > _ROUNDING * drawn.squares, spread_B, 0.0) / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t_B = np.nan_to_num(
            (drawn_b.means - drawn_a.means) / np.sqrt(variances_B),
            nan=0.0,
            posinf=np.inf,
            neginf=-np.inf,
        )
    # Interpolation between two infinite values would be NaN.
    below, above = np.quantile(t_B, [tail, 1 - tail], method="inverted_cdf")
    error = math.sqrt(float((a**2).mean()) / (len(a) - 1) + float((b**2).mean()) / (len(b) - 1))
    return -float(above) * error, -float(below) * error


def _differences(a: Floats, b: Floats, rng: np.random.Generator, n_resamples: int) -> Floats:
    """Return differences between the means of resamples; shape (n_resamples,)."""
    means_a = resample(a, rng, n_resamples).means
    return resample(b, rng, n_resamples).means - means_a


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
    """Return the mean of `b - a` over pairs, with the interval of `mean_interval`.

    The default interval is from "Student", "The probable error of a mean", 1908, on the
    differences. One pair has bounds of NaN. If all differences are equal, the interval has zero
    width. For the other arguments see `mean_interval`.
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
    """Return the difference of means `mean(b) - mean(a)` of two independent samples.

    `auto` and `t` give Welch's interval (Welch, 1947, see `welch`), which does not assume equal
    variances. The three bootstrap methods resample each sample independently. The bounds are
    NaN if either sample has one value. The interval has zero width if neither sample varies.
    The studentised bootstrap returns NaN if a bound would be infinite, because too many of its
    resamples have no variance.
    """
    first, second = as_two(a, b)
    check_level(level)
    way, wanted = as_method(method), as_side(side)
    if min(len(first), len(second)) < 2:
        return Interval(mean_of(second) - mean_of(first), math.nan, math.nan)
    found = welch(first, second)
    if found.error == 0:
        return open_side(Interval(*[found.difference] * 3), wanted)
    tail = (1 - level) / (2 if wanted is Side.TWO_SIDED else 1)
    if way in (Method.AUTO, Method.T):
        half = t_quantile(found.freedom, 1 - tail) * found.error
        low, high = -half, half
    else:
        low, high = _bootstrapped(first, second, way, tail, rng, n_resamples)
    point = found.difference
    return open_side(Interval(point, point + low, point + high), wanted)


def relative_change(a: Sample, b: Sample, *, paired: bool, level: float = 0.95) -> Interval:
    """Return the change of the mean from `a` to `b`, relative to the size of the mean of `a`.

    (mean(b) - mean(a)) / |mean(a)|: positive if `b` is greater, even if means are negative. The
    bounds follow from `ratio_of_means` (Fieller, 1954), and are NaN if it has none.
    """
    ratio = ratio_of_means(a, b, paired=paired, level=level)
    if float(np.mean(a)) < 0:
        return Interval(1 - ratio.point, 1 - ratio.high, 1 - ratio.low)
    return Interval(ratio.point - 1, ratio.low - 1, ratio.high - 1)


def ratio_of_means(a: Sample, b: Sample, *, paired: bool, level: float = 0.95) -> Interval:
    """Return mean(b) / mean(a) with Fieller's interval.

    Fieller, "Some problems in interval estimation", JRSS B 16, 1954. Paired samples use the
    covariance within pairs and n - 1 degrees of freedom, which is exact for normal pairs.
    Unpaired ones use unequal variances and Welch's degrees of freedom at the estimated ratio
    (Tamhane and Logan, "Finding the maximum safe dose level for heteroscedastic data", Journal
    of Biopharmaceutical Statistics 14, 2004), which is approximate.

    If the interval of mean(a) at this level contains 0, the ratios compatible with the data are
    not a single finite interval and the bounds are NaN. If mean(a) is 0, the point is NaN, too.
    `denominator_note` explains this in a sentence.
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
        # At the true ratio, second - ratio * first has mean 0 and these degrees of freedom.
        freedom = welch(first * point, second).freedom
    low, high = _fieller(first, second, paired, t_quantile(freedom, (1 + level) / 2))
    return _in_unit(Interval(point, low, high), up - down)


def denominator_note(a: Sample, *, level: float = 0.95) -> str | None:
    """Return a sentence on why a ratio to the mean of `a` has no bounds, or None if it has.

    An unpaired ratio has other degrees of freedom than the mean of `a` alone, so in borderline
    cases it may have no bounds and no note, or the reverse.
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
    """Convert the interval of scaled samples to the unit of the samples; NaN if not finite."""
    with np.errstate(over="ignore"):
        point, *bounds = (float(np.ldexp(value, exponent)) for value in found)
    known = all(map(math.isfinite, bounds))
    return Interval(point, *(bounds if known else (math.nan, math.nan)))


def _fieller(a: Floats, b: Floats, paired: bool, t: float) -> tuple[float, float]:
    """Return the roots in r of mean(b - r a)^2 = t^2 var(mean(b - r a)), or NaN."""
    below, above = mean_of(a), mean_of(b)
    v_below, v_above = deviation_of(a) ** 2 / len(a), deviation_of(b) ** 2 / len(b)
    shared = float(np.cov(a, b)[0, 1]) / len(a) if paired and v_below and v_above else 0.0
    square = below**2 - t**2 * v_below
    if square <= 0:
        return math.nan, math.nan
    middle = (below * above - t**2 * shared) / square
    # Discriminant, written so that it is not a difference of nearly equal squares.
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
    """Return bootstrap bounds relative to the difference."""
    if rng is None:
        raise UsageError(
            f"method {str(method)!r} draws resamples; give rng=np.random.default_rng(SEED)"
        )
    check_resamples(n_resamples)
    centred = [sample - mean_of(sample) for sample in (a, b)]
    # Scaled to at most 1, so that squares of huge values do not overflow.
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


@dataclass(frozen=True)
class Pairing:
    """Gain of a paired design over an unpaired one with the same trials."""

    correlation: Interval
    """Correlation within pairs; NaN if a sample does not vary, bounds NaN below 4 pairs."""
    variance_ratio: float
    """Variance of the mean difference, paired over unpaired; 1 if no value varies."""
    saved: float
    """1 - variance_ratio; negative if pairing added variance."""
    n: int
    """Number of pairs."""
    hurts: bool
    """Whether the upper bound of the correlation is below the correlation at which the paired
    interval is as wide as Welch's; always False with fewer than four pairs."""
    sentence: str
    """The result in words."""


def pairing(a: Sample, b: Sample, *, level: float = 0.95) -> Pairing:
    """Measure how much variance was saved by pairing the values of `a` and `b`.

    The variance of a mean of differences is (var a + var b - 2 cov) / n; without the covariance
    it is the variance of unpaired samples (Snedecor and Cochran, Statistical Methods, 8th ed.
    1989). A paired interval also has fewer degrees of freedom, n - 1, which makes it wider at
    small n. So the correlation must exceed a break-even value for the paired interval to be
    shorter than Welch's. One sample is a poor guide: with a true correlation of 0.3 the paired
    interval is the wider one in nearly half of all sets of five pairs. So pairing is reported
    to hurt only if the interval of the correlation lies below the break-even value. The
    correlation is Pearson's, with Fisher's interval ("On the 'probable error' of a coefficient
    of correlation", 1921).
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
    """Return the correlation at which the paired interval would be as wide as Welch's."""
    if widths[0] == 0:
        return -1.0
    needed = ratio * (widths[1] / widths[0]) ** 2
    spreads = (float(a.std()), float(b.std()))
    return (1 - needed) * (spreads[0] ** 2 + spreads[1] ** 2) / (2 * spreads[0] * spreads[1])


def _correlation(a: Floats, b: Floats, level: float) -> Interval:
    if len(a) < 2 or not np.ptp(a) or not np.ptp(b):
        return Interval(*[math.nan] * 3)
    # SciPy is slow to import, and most of assay does not need it.
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
    # Widths that differ by rounding only count as equal.
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
