"""Confidence intervals of means and proportions that keep their coverage at small n.

The interval of a mean is Student's t or one of three bootstraps. The default is Student's t for
all data: it is the shortest of the four with 95 % coverage on normal data, and no method has
this coverage at small n on data as skewed as the lognormal (table in
docs/design/statistics.md). The method is never chosen by a test of normality or a measure of
skewness; `skewness_note` only returns a sentence.

All functions assume independent values. Trials that share a task or a run are not independent:
see `assay.stats.clusters`. A bound that the data do not determine is NaN, never a guess.

The functions for bootstrap bounds take values with mean zero and some variance, and return
bounds relative to the mean; `mean_interval` checks the input and calls them. At most about
64 MB is allocated at a time.

Input of the whole package is checked here. A sample is a flat array of finite float64. Invalid
input raises UsageError; values are never dropped, imputed or rounded.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.core.text import unknown_name
from assay.errors import UsageError

_FEWEST_RESAMPLES = 100


def as_sample(
    values: Sequence[float] | NDArray[Any], what: str = "values", least: int = 1
) -> NDArray[np.float64]:
    """Convert the values to a flat array of float64; shape (N,).

    Args:
        values: Numbers, or anything that NumPy converts to numbers; booleans count as 0 and 1.
        what: Name of the values in error messages.
        least: Minimum number of values.

    Raises:
        UsageError: There are too few values, or one is missing, infinite or not a number.
    """
    try:
        sample = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise UsageError(
            f"{what} hold something that is no number; give finite numbers"
        ) from None
    if sample.ndim != 1:
        raise UsageError(f"{what} have {sample.ndim} axes; give one flat list of numbers")
    if not np.isfinite(sample).all():
        at = int(np.flatnonzero(~np.isfinite(sample))[0])
        raise UsageError(
            f"{what} are finite numbers, and number {at + 1} is {sample[at]}; leave out what"
            " is missing or infinite"
        )
    if len(sample) < least:
        got = {0: "no values were", 1: "one value was"}.get(
            len(sample), f"{len(sample)} values were"
        )
        raise UsageError(f"{got} given as {what}; give {least} or more")
    return sample


def check_level(level: float) -> None:
    """Raise UsageError if the confidence level is not between 0 and 1."""
    if not 0 < level < 1:
        raise UsageError(f"level {level!r} is not between 0 and 1; 0.95 is usual")


def check_resamples(n_resamples: int) -> None:
    """Raise UsageError if there are too few resamples for the tails of a bootstrap."""
    if n_resamples < _FEWEST_RESAMPLES:
        raise UsageError(
            f"{n_resamples} resamples are too few for an interval; give"
            f" {_FEWEST_RESAMPLES} or more, 10,000 is usual"
        )


class Interval(NamedTuple):
    """Estimate and the bounds of its confidence interval; unknown bounds are NaN."""

    point: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether the data determine the bounds."""
        return not math.isnan(self.low)

    @property
    def half_width(self) -> float:
        """Half the distance between the bounds; NaN if they are unknown."""
        return (self.high - self.low) / 2


def t_interval(values: Sequence[float] | NDArray[Any], level: float = 0.95) -> Interval:
    """Return the mean of independent values with Student's interval.

    "Student", "The probable error of a mean", Biometrika 6, 1908: the mean plus and minus the t
    quantile of n - 1 degrees of freedom times sd / sqrt(n), exact for normal values. For one
    value the bounds are NaN. If all values are equal, the interval has zero width.
    """
    check_level(level)
    sample = as_sample(values, "the values of a mean")
    if len(sample) == 1:
        return Interval(float(sample[0]), math.nan, math.nan)
    if sample.min() == sample.max():
        # Rounding of the mean would otherwise leave a width of about 1e-17.
        return Interval(*[float(sample[0])] * 3)
    mean = float(sample.mean())
    error = float(sample.std(ddof=1)) / math.sqrt(len(sample))
    half = t_quantile(len(sample) - 1, (1 + level) / 2) * error
    return Interval(mean, mean - half, mean + half)


def wilson(successes: float, trials: int, level: float = 0.95) -> Interval:
    """Return a proportion with Wilson's interval: within [0, 1], of nonzero width at 0 and 1.

    Successes need not be integers: a tie may count half. Wilson, "Probable inference, the law
    of succession, and statistical inference", 1927.
    """
    check_level(level)
    check_share(successes, trials)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, square = successes / trials, z * z
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    half *= z / (1 + square / trials)
    # At 0 and 1 the bound is exact, and rounding would leave the point outside.
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == trials else middle + half
    return Interval(share, max(0.0, low), min(1.0, high))


def check_share(successes: float, trials: int) -> None:
    """Raise UsageError unless 0 <= successes <= trials and trials >= 1."""
    if not 0 <= successes <= trials or trials < 1:
        raise UsageError(
            f"{successes} of {trials} is no share; successes are 0 or more, trials at least"
            " as many and 1 or more"
        )


def t_quantile(freedom: float, probability: float) -> float:
    """Return the quantile of Student's t at this probability."""
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import ndtri, stdtrit

    if math.isinf(freedom):
        return float(ndtri(probability))
    return float(stdtrit(freedom, probability))


_BATCH = 4_000_000
"""Number of values drawn at a time."""
_ROUNDING = 1e-13
"""Differences below this fraction of the largest value are rounding errors."""


class Resampled(NamedTuple):
    """Statistics of B resamples."""

    means: NDArray[np.float64]
    """Means of the resamples, shape (B,)."""
    squares: NDArray[np.float64]
    """Means of the squared values, shape (B,); empty unless requested."""


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
    """Return the quantiles of the resampled means that leave `tail` on either side.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.
    """
    means_B = np.sort(resample(centred_N, rng, n_resamples).means)
    return _quantile(means_B, tail), _quantile(means_B, 1 - tail)


def bca_bounds(
    centred_N: NDArray[np.float64], tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """Return the quantiles of the resampled means, corrected for bias and acceleration.

    Efron, Better bootstrap confidence intervals, 1987: the quantile at p is taken at
    Phi(z0 + (z0 + z) / (1 - a (z0 + z))) with z = Phi^-1(p). z0 is the normal quantile of the
    proportion of resampled means below the mean, where an equal one counts half. a comes from
    the jackknife, whose skewness is, for a mean, the skewness of the values themselves.
    """
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import ndtr, ndtri

    means_B = np.sort(resample(centred_N, rng, n_resamples).means)
    # Sums in another order differ in the last digits, which would create or break ties.
    near = _ROUNDING * float(np.abs(centred_N).max())
    below, above = np.searchsorted(means_B, [-near, near])
    # A proportion of 0 or 1 has no finite normal quantile, so half a resample is added.
    share = float(np.clip((below + above) / 2, 0.5, n_resamples - 0.5)) / n_resamples
    bias = float(ndtri(share))
    squares = float((centred_N**2).sum())
    acceleration = float((centred_N**3).sum()) / (6 * squares**1.5)

    def corrected(p: float) -> float:
        z = bias + float(ndtri(p))
        # At extreme levels the denominator may cross zero; the limit of the formula is 0 or 1.
        shrink = max(1 - acceleration * z, 1e-6)
        return float(ndtr(bias + z / shrink))

    return _quantile(means_B, corrected(tail)), _quantile(means_B, corrected(1 - tail))


def studentised_bounds(
    centred_N: NDArray[np.float64], tail: float, rng: np.random.Generator, n_resamples: int
) -> tuple[float, float]:
    """Return bounds from the resampled distribution of t instead of Student's.

    Efron and Tibshirani, 1993, section 12.5, with the standard error of each resample by
    formula. A resample without variance has a t that is infinite with the sign of its mean, or
    0 if its mean equals the sample's. A bound that falls among these is infinite or NaN.
    """
    drawn = resample(centred_N, rng, n_resamples, squares=True)
    variances_B = drawn.squares - drawn.means**2
    spread_B = variances_B > _ROUNDING * drawn.squares
    with np.errstate(divide="ignore", invalid="ignore"):
        errors_B = np.sqrt(np.where(spread_B, variances_B, 0.0))
        t_B = np.nan_to_num(drawn.means / errors_B, nan=0.0, posinf=np.inf, neginf=-np.inf)
    t_B.sort()
    # The divisor of the variance and the root of n cancel: they are equal in both errors.
    error = math.sqrt(float((centred_N**2).mean()))
    low, high = _quantile(t_B, 1 - tail), _quantile(t_B, tail)
    return -low * error, -high * error


def _quantile(sorted_B: NDArray[np.float64], p: float) -> float:
    """Return the value at position p (B + 1) of B, interpolated linearly.

    Davison and Hinkley, Bootstrap Methods and Their Application, 1997, section 5.2.1: the tails
    have their nominal probability at any B. The default of NumPy and SciPy cuts about one more
    resample from each. Positions are limited to the first and the last value.
    """
    last = len(sorted_B) - 1
    place = min(max(p * (last + 2) - 1, 0.0), float(last))
    left = min(int(place), last - 1)
    share = place - left
    if share == 0:
        return float(sorted_B[left])
    return float(sorted_B[left]) * (1 - share) + float(sorted_B[left + 1]) * share


_COCHRAN = 25.0
_NORMAL_TAIL = 1.96


class Method(StrEnum):
    """Method for the interval of a mean."""

    AUTO = "auto"
    """Student's t, for all data."""
    T = "t"
    """Student's t: exact on normal data, too short on skewed data."""
    STUDENTISED = "studentised"
    """Bootstrap of t: coverage closest to the level on skewed data, and the widest interval."""
    BCA = "bca"
    """Bootstrap quantiles corrected for bias and skewness; too short below n = 30."""
    PERCENTILE = "percentile"
    """Plain bootstrap quantiles; too short below n = 30."""


class Side(StrEnum):
    """Bounds of an interval: both, or only one."""

    TWO_SIDED = "two-sided"
    """Both bounds, each missed with probability (1 - level) / 2."""
    GREATER = "greater"
    """Lower bound only, to show that a mean is greater; the upper bound is infinite."""
    LESS = "less"
    """Upper bound only, to show that a mean is less; the lower bound is infinite."""


def mean_interval(
    values: Sequence[float] | NDArray[Any],
    *,
    method: Method | str = Method.AUTO,
    level: float = 0.95,
    side: Side | str = Side.TWO_SIDED,
    rng: np.random.Generator | None = None,
    n_resamples: int = 10_000,
) -> Interval:
    """Return the mean of independent values with its confidence interval.

    The default method is from "Student", "The probable error of a mean", 1908. For the sources
    of the other three see `studentised_bounds`, `bca_bounds` and `percentile_bounds` in
    `assay.stats.intervals`.

    For one value the bounds are NaN. If all values are equal, the interval has zero width. The
    studentised bootstrap returns NaN for both bounds if a bound would be infinite because too
    many resamples have no variance: always below four values, and with many ties above.

    Args:
        values: At least one value, shape (N,).
        method: See `Method`; the point is the plain mean for all of them.
        level: Confidence level.
        side: See `Side`.
        rng: Random generator; required by the three bootstrap methods only.
        n_resamples: Number of resamples.
    """
    sample = as_sample(values, "the values of a mean")
    check_level(level)
    way, wanted, n = as_method(method), _side(side), len(sample)
    if sample.min() == sample.max():
        return open_side(t_interval(sample, level), wanted)
    mean = float(sample.mean())
    centred = sample - mean
    # Scaled to at most 1, so that squares of huge values do not overflow.
    scale = float(np.abs(centred).max())
    centred = centred / scale
    tail = (1 - level) / (2 if wanted is Side.TWO_SIDED else 1)
    if way in (Method.AUTO, Method.T):
        high = t_quantile(n - 1, 1 - tail) * float(centred.std(ddof=1)) / math.sqrt(n)
        low = -high
    else:
        if rng is None:
            raise UsageError(
                f"method {str(way)!r} draws resamples; give rng=np.random.default_rng(SEED)"
            )
        check_resamples(n_resamples)
        low, high = _BOOTSTRAPS[way](centred, tail, rng, n_resamples)
    return open_side(Interval(mean, mean + scale * low, mean + scale * high), wanted)


def bootstrap_means(
    values: Sequence[float] | NDArray[Any],
    rng: np.random.Generator,
    n_resamples: int = 10_000,
) -> NDArray[np.float64]:
    """Return means of resamples of the values, drawn with replacement; shape (n_resamples,).

    Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    sample = as_sample(values, "the values of a mean")
    check_resamples(n_resamples)
    return resample(sample, rng, n_resamples).means


def skewness_note(values: Sequence[float] | NDArray[Any]) -> str | None:
    """Return a sentence if the values look too skewed for Student's t at this n, or None.

    Two conditions have to hold. The sample skewness G1 is more than 1.96 of its standard errors
    under normal data from zero (Fisher, 1930), so that few normal samples are reported; and n
    is below 25 G1^2, Cochran's working rule for when the normal interval of a mean holds
    (Cochran, Sampling Techniques, 3rd ed. 1977, section 2.15). Up to about n = 24 the first
    decides, above it the second. At n = 5 hardly any skewed sample can be distinguished from a
    normal one, so None does not prove normality; docs/design/statistics.md has the proportions.
    """
    sample = as_sample(values, "the values of a mean")
    n = len(sample)
    if n < 3 or sample.min() == sample.max():
        return None
    centred = sample - sample.mean()
    centred = centred / np.abs(centred).max()
    plain = float((centred**3).mean() / (centred**2).mean() ** 1.5)
    skewness = plain * math.sqrt(n * (n - 1)) / (n - 2)
    error = math.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
    if abs(skewness) <= _NORMAL_TAIL * error or n >= _COCHRAN * skewness**2:
        return None
    return (
        f"the {n} values are skewed (skewness {skewness:.1f}), so Student's interval may hold"
        " the true mean less often than it says, below 95 % where it says 95 %; method"
        " 'studentised' comes closer, at a greater width"
    )


_BOOTSTRAPS = {
    Method.STUDENTISED: studentised_bounds,
    Method.BCA: bca_bounds,
    Method.PERCENTILE: percentile_bounds,
}


def as_method(name: Method | str) -> Method:
    """Return the method with this name."""
    try:
        return Method(name)
    except ValueError:
        raise UsageError(unknown_name("method of an interval", str(name), Method)) from None


def _side(name: Side | str) -> Side:
    try:
        return Side(name)
    except ValueError:
        raise UsageError(
            unknown_name("side of an interval", str(name), [one.value for one in Side])
        ) from None


def open_side(found: Interval, side: Side) -> Interval:
    """Make the bound that `side` omits infinite; return NaN if a required one is not finite."""
    needed = {Side.GREATER: (found.low,), Side.LESS: (found.high,)}.get(side, found[1:])
    if not all(map(math.isfinite, needed)):
        return Interval(found.point, math.nan, math.nan)
    low = -math.inf if side is Side.LESS else found.low
    return Interval(found.point, low, math.inf if side is Side.GREATER else found.high)
