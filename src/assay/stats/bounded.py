"""Intervals and equivalence for means of values with a known range, valid at every n.

Student's interval assumes that the sample shows the spread. A metric that is mostly zero, or a
rare large gain, does not: five zeros are no evidence that the mean is 0. The bounds here use
the range instead of a normal distribution, so their coverage is at least nominal for every
distribution within the range. They are 2 to 4 times as wide as Student's below 30 values of a
narrow distribution (table in docs/design/statistics.md).

A gambler starts with capital 1 and bets on each value, in the given order, against the claim
that the mean is m. If the claim is true, the capital reaches 1 / alpha with a probability of at
most alpha (Ville). The bound is the most extreme m whose claim does not make the gambler rich.
As the bets use earlier values only, bounds and p-values also hold at any number of interim
analyses of growing data with the same planned n. Values must be in an order that does not
depend on them, such as that of the worlds.
"""

import math

import numpy as np

from assay.errors import UsageError
from assay.stats.estimates import Floats, Sample
from assay.stats.intervals import Interval, as_sample, check_level
from assay.stats.significance import Equivalence, check_margin

_STAKE = 0.95
"""Largest proportion of the capital that one value can lose. Smaller stakes give wider bounds
below 100 values: with 0.5 it takes twice as many equal values to show equivalence."""
_STEPS = 60
"""Bisections of a bound: enough for every digit of a float."""


def betting_interval(
    values: Sample, low: float, high: float, level: float = 0.95, *, planned: int | None = None
) -> Interval:
    """Return the mean of values from low to high, with an interval of guaranteed coverage.

    The hedged capital interval of Waudby-Smith and Ramdas, "Estimating means of bounded random
    variables by betting", 2024, section 4.4, with their predictable plug-in bets for a fixed n.
    They let one value lose at most 1/2 or 3/4 of the capital; here it is 0.95.

    Args:
        values: Independent values, in an order that does not depend on them.
        low: Smallest possible value.
        high: Largest possible value.
        level: Confidence level.
        planned: Number of values at the last interim analysis; the number of values if None.
            The intersection of the intervals at all analyses has the coverage `level`.
    """
    check_level(level)
    unit = _as_unit(values, low, high)
    tail = (1 - level) / 2
    lower = _lower_bound(unit, tail, planned)
    upper = 1 - _lower_bound(1 - unit, tail, planned)
    point = float(unit.mean())
    size = high - low
    return Interval(
        low + size * point, low + size * min(lower, point), low + size * max(upper, point)
    )


def bounded_tost(
    differences: Sample,
    low: float,
    high: float,
    margin: float,
    level: float = 0.95,
    *,
    planned: int | None = None,
) -> Equivalence:
    """Test whether the mean of bounded differences lies within (-margin, margin).

    Two one-sided tests (Schuirmann, 1987, see `equivalence_test`) with the capital of
    `betting_interval` (Waudby-Smith and Ramdas, 2024): a p-value is 1 over the largest capital
    of the gambler who bets against a mean of the margin, at bets tuned to 1 - level. Below
    about 3 (high - low) / (2 margin) pairs equivalence cannot be shown, even if all are equal.

    Args:
        differences: Paired differences, in an order that does not depend on them. Two
            independent samples are paired in the order of their trials.
        low: Smallest possible difference: the lowest minus the highest value of the metric.
        high: Largest possible difference.
        margin: Smallest difference that matters.
        level: 1 minus the type I error of the test.
        planned: Number of pairs at the last interim analysis, see `betting_interval`.
    """
    check_margin(margin)
    check_level(level)
    unit, alpha, size = _as_unit(differences, low, high), 1 - level, high - low
    p_lower = _p_value(unit, (-margin - low) / size, alpha, planned)
    p_upper = _p_value(1 - unit, (high - margin) / size, alpha, planned)
    p = max(p_lower, p_upper)
    interval = betting_interval(
        differences, low, high, max(1 - 2 * alpha, 1e-9), planned=planned
    )
    return Equivalence(p < alpha, p, p_lower, p_upper, interval, float(margin), len(unit))


def _as_unit(values: Sample, low: float, high: float) -> Floats:
    """Return the values rescaled from their range to [0, 1]."""
    sample = as_sample(values, "the values of a mean")
    if not (math.isfinite(high - low) and low < high):
        raise UsageError(f"{low!r} to {high!r} is not a range; give its finite ends, low first")
    if sample.min() < low or sample.max() > high:
        raise UsageError(
            f"values go from {sample.min():g} to {sample.max():g}, beyond the range {low:g} to"
            f" {high:g}; give the least and the greatest value that is possible"
        )
    return np.asarray(np.clip((sample - low) / (high - low), 0, 1))


def _bets(unit: Floats, alpha: float, planned: int | None) -> Floats:
    """Return the bet on each value, from the variance of the values before it."""
    n = len(unit)
    if planned is not None and planned < n:
        raise UsageError(f"{n} values are more than the {planned} planned")
    counts = np.arange(1, n + 1)
    means = (0.5 + unit.cumsum()) / (counts + 1)
    variances = (0.25 + ((unit - means) ** 2).cumsum()) / (counts + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    return np.asarray(np.sqrt(2 * math.log(1 / alpha) / ((planned or n) * before)))


def _log_capital(unit: Floats, bets: Floats, mean: float) -> float:
    """Return the log of the largest capital of the gambler against a mean at most `mean`."""
    bets = np.minimum(bets, _STAKE / mean) if mean > 0 else bets
    return float(np.log1p(bets * (unit - mean)).cumsum().max())


def _lower_bound(unit: Floats, alpha: float, planned: int | None) -> float:
    """Return the smallest mean that is not rejected; the capital falls as the mean grows."""
    bets, enough = _bets(unit, alpha, planned), math.log(1 / alpha)
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _log_capital(unit, bets, middle) >= enough:
            low = middle
        else:
            high = middle
    return low


def _p_value(unit: Floats, mean: float, alpha: float, planned: int | None) -> float:
    """Return the p-value of the test against a mean at most `mean`, below 0 impossible."""
    if mean < 0:
        return 0.0
    if mean >= 1:
        return 1.0
    return min(1.0, math.exp(-_log_capital(unit, _bets(unit, alpha, planned), mean)))
