"""The interval of a mean, by Student's t or by one of three bootstraps.

The default is Student's t whatever the data look like: it is the shortest of the four that
keeps 95 % on normal data, and no method keeps it at small n on data as skewed as the lognormal
(table in docs/design/statistics.md). No test of normality and no measure of skewness ever
picks the method; `skewness_note` only says a sentence.

All of them take values that are independent of each other. Trials that share a task or a run
are not: see `assay.stats.clusters`.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay._util.names import unknown_name
from assay.errors import UsageError
from assay.stats.bootstrap import bca_bounds, percentile_bounds, resample, studentised_bounds
from assay.stats.intervals import Interval
from assay.stats.samples import as_sample, check_level, check_resamples

__all__ = ["Method", "Side", "bootstrap_means", "mean_interval", "skewness_note"]

_COCHRAN = 25.0
_NORMAL_TAIL = 1.96


class Method(StrEnum):
    """How the interval of a mean is made."""

    AUTO = "auto"
    """Student's t, always."""
    T = "t"
    """Student's t: exact on normal data, too short on skewed data."""
    STUDENTISED = "studentised"
    """The bootstrap of t: closest to its level on skewed data, and the widest."""
    BCA = "bca"
    """The bootstrap's quantiles, corrected for bias and skewness; too short below n = 30."""
    PERCENTILE = "percentile"
    """The bootstrap's plain quantiles; too short below n = 30."""


class Side(StrEnum):
    """Which of the two bounds are asked for."""

    TWO_SIDED = "two-sided"
    """Both, each missed with half of 1 - level."""
    GREATER = "greater"
    """A lower bound alone, to show that a mean is greater; the upper one is infinite."""
    LESS = "less"
    """An upper bound alone, to show that a mean is less; the lower one is infinite."""


def mean_interval(
    values: Sequence[float] | NDArray[Any],
    *,
    method: Method | str = Method.AUTO,
    level: float = 0.95,
    side: Side | str = Side.TWO_SIDED,
    rng: np.random.Generator | None = None,
    n_resamples: int = 10_000,
) -> Interval:
    """The mean of independent values with its interval.

    By default that of "Student", "The probable error of a mean", 1908; `assay.stats.bootstrap`
    has the sources of the other three.

    One value has a mean and no interval: its bounds are NaN. Values that are all equal have
    an interval of no width. The studentised bootstrap gives NaN for both bounds where a
    bound would be infinite because too many resamples have no spread: always below four
    values, and with many ties above.

    Args:
        values: One value or more, shape (N,).
        method: See `Method`; the point is the plain mean under all of them.
        level: The level of confidence.
        side: See `Side`.
        rng: The source of resamples; only the three bootstraps need it.
        n_resamples: How many of them.
    """
    sample = as_sample(values, "the values of a mean")
    check_level(level)
    way, wanted = _method(method), _side(side)
    if sample.min() == sample.max():
        # Rounding in the mean would otherwise leave a width of about 1e-17.
        return _equal(sample, wanted)
    mean = float(sample.mean())
    centred = sample - mean
    # Values are scaled to at most 1, so that squares of huge ones do not overflow.
    scale = float(np.abs(centred).max())
    centred = centred / scale
    tail = (1 - level) / (2 if wanted is Side.TWO_SIDED else 1)
    if way in (Method.AUTO, Method.T):
        low, high = _t_bounds(centred, tail)
    else:
        if rng is None:
            raise UsageError(
                f"method {str(way)!r} draws resamples; give rng=np.random.default_rng(SEED)"
            )
        check_resamples(n_resamples)
        low, high = _BOOTSTRAPS[way](centred, tail, rng, n_resamples)
    return _one_side(Interval(mean, mean + scale * low, mean + scale * high), wanted)


def bootstrap_means(
    values: Sequence[float] | NDArray[Any],
    rng: np.random.Generator,
    n_resamples: int = 10_000,
) -> NDArray[np.float64]:
    """The means of resamples of the values, drawn with replacement; shape (n_resamples,).

    Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    sample = as_sample(values, "the values of a mean")
    check_resamples(n_resamples)
    return resample(sample, rng, n_resamples).means


def skewness_note(values: Sequence[float] | NDArray[Any]) -> str | None:
    """A sentence if the values look too skewed for Student's t at their number, else None.

    Two conditions have to hold. The sample skewness G1 is more than 1.96 of its standard
    errors under normal data from zero (Fisher, 1930), so that few normal samples are named;
    and n is below 25 G1^2, Cochran's working rule for when the normal interval of a mean
    holds (Cochran, Sampling Techniques, 3rd ed. 1977, section 2.15). Up to about n = 24 the
    first decides, above it the second. At n = 5 hardly any skewed sample can be told from a
    normal one, so silence is no proof; docs/design/statistics.md has the shares.
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


def _t_bounds(centred_N: NDArray[np.float64], tail: float) -> tuple[float, float]:
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import stdtrit

    n = len(centred_N)
    half = float(stdtrit(n - 1, 1 - tail)) * float(centred_N.std(ddof=1)) / math.sqrt(n)
    return -half, half


_BOOTSTRAPS = {
    Method.STUDENTISED: studentised_bounds,
    Method.BCA: bca_bounds,
    Method.PERCENTILE: percentile_bounds,
}


def _method(name: Method | str) -> Method:
    try:
        return Method(name)
    except ValueError:
        raise UsageError(
            unknown_name("method of an interval", str(name), [one.value for one in Method])
        ) from None


def _side(name: Side | str) -> Side:
    try:
        return Side(name)
    except ValueError:
        raise UsageError(
            unknown_name("side of an interval", str(name), [one.value for one in Side])
        ) from None


def _equal(sample_N: NDArray[np.float64], side: Side) -> Interval:
    value = float(sample_N[0])
    bound = math.nan if len(sample_N) == 1 else value
    return _one_side(Interval(value, bound, bound), side)


def _one_side(found: Interval, side: Side) -> Interval:
    """Open the side that was not asked for; what is not known stays so."""
    if side is Side.GREATER:
        known = math.isfinite(found.low)
        return found._replace(high=math.inf) if known else _unknown(found)
    if side is Side.LESS:
        known = math.isfinite(found.high)
        return found._replace(low=-math.inf) if known else _unknown(found)
    known = math.isfinite(found.low) and math.isfinite(found.high)
    return found if known else _unknown(found)


def _unknown(found: Interval) -> Interval:
    return Interval(found.point, math.nan, math.nan)
