"""An estimate with its standard error, from which interval and p-value follow alike.

For values that go by steps, such as counts, `step` keeps a few equal ones from passing for
certainty: three worlds with four achievements each do not show that every world has four. The
standard error of a mean of n values is then at least step / (n + 1), that of n equal values
had one more been a step away (the added trials of Agresti and Coull, "Approximate is better
than 'exact' for interval estimation of binomial proportions", 1998). Values that differ at all
have a greater one, so nothing else changes.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from assay.errors import UsageError
from assay.stats.intervals import Interval
from assay.stats.means import Side
from assay.stats.samples import as_sample, check_level
from assay.stats.two_samples import Sample, as_two, deviation_of, mean_of, pair_differences

__all__ = ["Estimate", "combined", "difference_estimate", "least_error", "mean_estimate"]


class Estimate(NamedTuple):
    """A mean, or a difference of two, with its standard error."""

    point: float
    error: float
    """NaN where the data do not give one."""
    freedom: float
    """Degrees of freedom of the t that (estimate - truth) / error has."""

    def interval(
        self, level: float = 0.95, *, low: float = -math.inf, high: float = math.inf
    ) -> Interval:
        """Student's interval without what lies beyond low and high, the values that can be.

        Its bounds are NaN where there is no error.
        """
        check_level(level)
        if math.isnan(self.error):
            return Interval(self.point, math.nan, math.nan)
        # SciPy takes a while to import, and most of assay does without.
        from scipy.special import stdtrit

        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        return Interval(self.point, max(low, self.point - half), min(high, self.point + half))

    def p_value(self, null: float = 0.0, side: Side = Side.TWO_SIDED) -> float:
        """Of the t test that the truth is `null`; 1 where there is no error."""
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
    """The mean of independent values with its standard error.

    "Student", "The probable error of a mean", 1908. One value has an error of NaN.

    Args:
        values: Worlds, with their replicates averaged, or tasks.
        step: By how much values differ at least if they differ, 1 for counts; 0: not known.
    """
    sample = as_sample(values, "the values of a mean")
    n = len(sample)
    error = deviation_of(sample) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(mean_of(sample), least_error(error, n, step), n - 1)


def difference_estimate(a: Sample, b: Sample, *, paired: bool, step: float = 0.0) -> Estimate:
    """`mean(b) - mean(a)` with its standard error: Student's (1908) of pairs, or Welch's.

    Welch, 1947 (see `welch`). `step` is that of `mean_estimate`.
    """
    if paired:
        return mean_estimate(pair_differences(a, b), step=step)
    first, second = (mean_estimate(sample, step=step) for sample in as_two(a, b))
    return combined(second.point - first.point, [first[1:], second[1:]])


def least_error(error: float, n: int, step: float) -> float:
    """The standard error of n values, at least that of one more value a step away."""
    if not (step >= 0 and math.isfinite(step)):
        raise UsageError(f"step {step!r} is not a finite number from 0 on; 1 is that of counts")
    return max(error, step / (n + 1))


def combined(point: float, parts: Sequence[tuple[float, float]]) -> Estimate:
    """Independent parts of an error, each with its degrees of freedom, by Satterthwaite.

    Satterthwaite, "An approximate distribution of estimates of variance components", 1946.
    """
    error = math.hypot(*(part for part, _ in parts))
    if math.isnan(error):
        return Estimate(point, math.nan, math.nan)
    if error == 0:
        return Estimate(point, 0.0, float(sum(freedom for _, freedom in parts)))
    spread = math.fsum((part / error) ** 4 / freedom for part, freedom in parts)
    return Estimate(point, error, 1 / spread)
