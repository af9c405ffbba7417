"""Bounds of means within a known range: guaranteed for every distribution, not on average."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.bounded import betting_interval, bounded_tost
from assay.stats.intervals import Interval


def by_definition(values: Sequence[float], alpha: float, grid: int = 4_000) -> Interval:
    """The hedged capital of the paper, one value and one candidate mean at a time."""
    kept = []
    for candidate in (np.arange(grid) + 0.5) / grid:
        plus = minus = largest = 1.0
        total, squares, variance = 0.5, 0.25, 0.25
        for seen, value in enumerate(values, 1):
            bet = math.sqrt(2 * math.log(2 / alpha) / (len(values) * variance))
            plus *= 1 + min(bet, 0.95 / candidate) * (value - candidate)
            minus *= 1 - min(bet, 0.95 / (1 - candidate)) * (value - candidate)
            largest = max(largest, 0.5 * plus, 0.5 * minus)
            total += value
            squares += (value - total / (seen + 1)) ** 2
            variance = squares / (seen + 1)
        if largest < 1 / alpha:
            kept.append(float(candidate))
    return Interval(float(np.mean(values)), min(kept), max(kept))


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_interval_is_that_of_the_definition(alpha: float) -> None:
    rng = np.random.default_rng(3)
    for values in (rng.random(12), rng.binomial(1, 0.3, 25) * 1.0, rng.beta(2, 8, 40)):
        found = betting_interval(values, 0, 1, 1 - alpha)
        expected = by_definition(values.tolist(), alpha)
        assert found == pytest.approx(expected, abs=1 / 4_000)


def test_coverage_is_at_least_nominal_when_all_outcomes_are_summed() -> None:
    n = 9
    outcomes = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
    found = [betting_interval(values, 0, 1) for values in outcomes]
    low, high = np.array([one[1:] for one in found]).T
    wins = outcomes.sum(axis=1)
    for share in np.linspace(0.02, 0.98, 49):
        weights = share**wins * (1 - share) ** (n - wins)
        assert weights[(low <= share) & (share <= high)].sum() >= 0.95


def test_a_rare_gain_is_not_called_equal_more_often_than_allowed_at_any_look() -> None:
    # A gain of 5 in one trial of five: the mean is the margin.
    rng, false, planned = np.random.default_rng(5), 0, 60
    for gains in 5.0 * (rng.random((400, planned)) < 0.2):
        looks = (
            bounded_tost(gains[:n], -5, 5, 1.0, planned=planned).equivalent
            for n in range(10, planned + 1, 10)
        )
        false += any(looks)
    assert false <= 0.05 * 400


def test_equal_trials_show_equivalence_only_if_there_are_enough() -> None:
    """(1 - 1/22)^n < 5 % from n = 65 on: no valid test can need fewer."""
    assert not bounded_tost(np.zeros(64), -22, 22, 1.0).equivalent
    found = bounded_tost(np.zeros(75), -22, 22, 1.0)
    assert found.equivalent
    assert found.p_value == max(found.p_lower, found.p_upper) < 0.05
    assert -1 < found.interval.low < 0 < found.interval.high < 1


def test_interval_and_p_value_of_equivalence_agree() -> None:
    rng = np.random.default_rng(7)
    said = []
    for mean in np.linspace(-1, 1, 40):
        found = bounded_tost(rng.normal(mean, 1, 60).clip(-5, 5), -5, 5, 1.0)
        said.append(found.interval.low > -1 and found.interval.high < 1)
        assert found.equivalent is said[-1]
    assert 5 < sum(said) < 35


def test_units_and_signs_do_not_matter() -> None:
    values = np.random.default_rng(2).beta(1, 5, 20)
    found = betting_interval(values, 0, 1)
    scaled = betting_interval(3 + 22 * values, 3, 25)
    assert scaled == pytest.approx([3 + 22 * bound for bound in found])
    turned = betting_interval(-values, -1, 0)
    assert turned == pytest.approx((-found.point, -found.high, -found.low))


def test_a_margin_beyond_the_range_is_always_shown() -> None:
    assert bounded_tost([0.0], -1, 1, 1.5).p_value == 0


def test_values_beyond_the_range_and_ranges_without_ends_are_refused() -> None:
    with pytest.raises(UsageError, match="beyond the range"):
        betting_interval([0.5, 1.5], 0, 1)
    with pytest.raises(UsageError, match="is not a range"):
        betting_interval([0.5], 0, math.inf)
    with pytest.raises(UsageError, match="more than the 1 planned"):
        betting_interval([0.5, 0.5], 0, 1, planned=1)
