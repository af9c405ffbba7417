"""Estimates with standard errors, which give both the interval and the p-value.

For discrete values such as counts, `step` prevents a few equal values from implying certainty:
three worlds with four achievements each do not show that every world has four. The standard
error of a mean of n values is then at least step / (n + 1), which is the standard error of n
equal values plus one value a step away (the added trials of Agresti and Coull, "Approximate is
better than 'exact' for interval estimation of binomial proportions", 1998). Values that differ
at all have a larger standard error, so nothing else changes.

The module also has the parts that comparisons of two samples share: checks, pairs, and Welch's
standard error. Values up to 1e305 are supported: if their squares would overflow or underflow,
samples are first scaled by a power of two, which is exact.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.stats.intervals import Interval, Side, as_sample, check_level, open_side

Sample = Sequence[float] | NDArray[Any]
"""One sample, shape (N,)."""
Floats = NDArray[np.float64]

_ROUNDING = 1e-14
"""Differences below this fraction of the largest value are rounding errors."""
_LARGEST = 1e305
"""Above this, sums and differences of a few values overflow."""
_SAFE = (1e-60, 1e60)
"""Range in which fourth powers, and sums of many of them, neither overflow nor underflow."""


class Welch(NamedTuple):
    """Difference of means with its standard error and degrees of freedom."""

    difference: float
    error: float
    freedom: float
    """Infinite if neither sample varies."""


def as_two(a: Sample, b: Sample) -> tuple[Floats, Floats]:
    """Check both samples and convert them to arrays; each has at least one value."""
    first = as_sample(a, "the values of the first sample")
    second = as_sample(b, "the values of the second sample")
    for sample in (first, second):
        check_size(float(np.abs(sample).max()))
    return first, second


def check_size(size: float) -> None:
    """Raise UsageError if the largest absolute value is too large to add up."""
    if size > _LARGEST:
        raise UsageError(
            f"a value of size {size:.4g} is too large to compare; give values in a unit"
            f" in which they are below {_LARGEST:g}"
        )


def as_pairs(a: Sample, b: Sample) -> tuple[Floats, Floats]:
    """Check paired samples and convert them to arrays of equal length, in pair order."""
    first, second = as_two(a, b)
    if len(first) != len(second):
        raise UsageError(
            f"{len(first)} values cannot be paired with {len(second)}; give one value of each"
            " per pair, or compare them unpaired"
        )
    return first, second


def pair_differences(a: Sample, b: Sample) -> Floats:
    """Return `b - a` for each pair, without variation caused by rounding alone; shape (N,)."""
    first, second = as_pairs(a, b)
    differences = second - first
    size = max(float(np.abs(first).max()), float(np.abs(second).max()))
    if float(np.ptp(differences)) <= _ROUNDING * size:
        # 0.3 - 0.2 and 0.2 - 0.1 differ in the last digit; no test should depend on that.
        differences[:] = np.median(differences)
    return differences


def scaled(*samples: Floats) -> tuple[tuple[Floats, ...], int]:
    """Divide the samples by a power of two if their size requires it, and return its exponent.

    A result in the unit of the samples is `np.ldexp(result, exponent)`.
    """
    size = max(float(np.abs(sample).max()) for sample in samples)
    if size == 0 or _SAFE[0] < size < _SAFE[1]:
        return samples, 0
    exponent = math.frexp(size)[1]
    return tuple(np.ldexp(sample, -exponent) for sample in samples), exponent


def welch(a: Floats, b: Floats) -> Welch:
    """Return the difference of two means with unequal variances, each of two or more values.

    Welch, "The generalization of 'Student's' problem when several different population
    variances are involved", Biometrika 34, 1947.
    """
    errors = [deviation_of(sample) / math.sqrt(len(sample)) for sample in (a, b)]
    error = math.hypot(*errors)
    if error == 0:
        return Welch(float(b[0] - a[0]), 0.0, math.inf)
    # Proportions of the variance instead of its squares, which underflow for tiny values.
    spread = sum(
        (part / error) ** 4 / (len(sample) - 1)
        for part, sample in zip(errors, (a, b), strict=True)
    )
    return Welch(mean_of(b) - mean_of(a), error, 1 / spread)


def as_side(name: Side | str) -> Side:
    """Return the side with this name."""
    try:
        return Side(name)
    except ValueError:
        raise UsageError(unknown_name("side", str(name), Side)) from None


def mean_of(sample: Floats) -> float:
    """Return the mean; exact for equal values."""
    # A sum of equal values would be off in the last digit.
    return float(sample[0] if sample.min() == sample.max() else sample.mean())


def deviation_of(sample: Floats) -> float:
    """Return the standard deviation with n - 1; 0 for equal values."""
    if sample.min() == sample.max():
        return 0.0
    (shrunk,), exponent = scaled(sample)
    return float(np.ldexp(shrunk.std(ddof=1), exponent))


class Estimate(NamedTuple):
    """Mean, or difference of two means, with its standard error."""

    point: float
    error: float
    """Standard error; NaN if the data do not determine it."""
    freedom: float
    """Degrees of freedom of the t statistic (estimate - truth) / error."""

    def interval(
        self,
        level: float = 0.95,
        *,
        low: float = -math.inf,
        high: float = math.inf,
        side: Side = Side.TWO_SIDED,
    ) -> Interval:
        """Return Student's interval, truncated to the possible values from low to high.

        The bounds are NaN if the error is NaN.
        """
        check_level(level)
        if math.isnan(self.error):
            return Interval(self.point, math.nan, math.nan)
        # SciPy is slow to import, and most of assay does not need it.
        from scipy.special import stdtrit

        below = (1 + level) / 2 if side is Side.TWO_SIDED else level
        half = float(stdtrit(self.freedom, below)) * self.error
        found = Interval(self.point, max(low, self.point - half), min(high, self.point + half))
        return found if side is Side.TWO_SIDED else open_side(found, side)

    def p_value(self, null: float = 0.0, side: Side = Side.TWO_SIDED) -> float:
        """Return the p-value of the t test against `null`; 1 if the error is NaN."""
        if math.isnan(self.error):
            return 1.0
        gap = self.point - null
        if self.error == 0:
            t = math.copysign(math.inf, gap) if gap else 0.0
        else:
            t = gap / self.error
        from scipy.special import stdtr

        if side is Side.TWO_SIDED:
            return min(1.0, 2 * float(stdtr(self.freedom, -abs(t))))
        return float(stdtr(self.freedom, -t if side is Side.GREATER else t))


def mean_estimate(values: Sample, *, step: float = 0.0) -> Estimate:
    """Return the mean of independent values with its standard error.

    "Student", "The probable error of a mean", 1908. One value has an error of NaN.

    Args:
        values: One per world, with replicates averaged, or one per task.
        step: Smallest difference between unequal values: 1 for counts, 0 if unknown.
    """
    sample = as_sample(values, "the values of a mean")
    n = len(sample)
    error = deviation_of(sample) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(mean_of(sample), least_error(error, n, step), n - 1)


def difference_estimate(a: Sample, b: Sample, *, paired: bool, step: float = 0.0) -> Estimate:
    """Return `mean(b) - mean(a)` with Student's standard error (1908) if paired, or Welch's.

    Welch, 1947 (see `welch`). For `step` see `mean_estimate`.
    """
    if paired:
        return mean_estimate(pair_differences(a, b), step=step)
    first, second = (mean_estimate(sample, step=step) for sample in as_two(a, b))
    return combined(second.point - first.point, [first[1:], second[1:]])


def least_error(error: float, n: int, step: float) -> float:
    """Return the standard error of n values, but at least step / (n + 1)."""
    if not (step >= 0 and math.isfinite(step)):
        raise UsageError(f"step {step!r} is not a finite number from 0 on; 1 is that of counts")
    return max(error, step / (n + 1))


def combined(point: float, parts: Sequence[tuple[float, float]]) -> Estimate:
    """Combine independent parts of an error and their degrees of freedom by Satterthwaite.

    Satterthwaite, "An approximate distribution of estimates of variance components", 1946.
    """
    error = math.hypot(*(part for part, _ in parts))
    if math.isnan(error):
        return Estimate(point, math.nan, math.nan)
    if error == 0:
        return Estimate(point, 0.0, float(sum(freedom for _, freedom in parts)))
    spread = math.fsum((part / error) ** 4 / freedom for part, freedom in parts)
    return Estimate(point, error, 1 / spread)
