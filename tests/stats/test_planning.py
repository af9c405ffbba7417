"""Planning, held against published and statsmodels' numbers."""

import itertools
import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.power import (
    first_n_below,
    minimum_detectable_effect,
    power_of,
    trials_for_precision,
    trials_needed,
)
from assay.stats.variance import sd_interval, sd_sampling_factors
from tests.oracles.asking import ask_statsmodels, needs_oracles


@pytest.mark.parametrize(
    ("effect", "paired", "plain"),
    [(0.2, False, 393.41), (0.2, True, 198.15), (1.0, True, 9.94), (1.0, False, 16.71)],
)
def test_trials_needed_are_those_of_the_exact_t(
    effect: float, paired: bool, plain: float
) -> None:
    found = trials_needed(effect, 1.0, paired=paired)
    assert round(found.plain, 2) == plain
    assert found.trials == math.ceil(plain)
    assert power_of(found.plain, effect, 1.0, paired=paired) == pytest.approx(0.8)


@pytest.mark.extras
@needs_oracles
def test_power_equals_statsmodels() -> None:
    designs = [
        (paired, d, n, alpha)
        for paired, d, n, alpha in itertools.product(
            (True, False), (0.05, 0.2, 0.5, 1.0, 2.5), (2, 5, 15, 100), (0.05, 0.01)
        )
        if d * n**0.5 <= 8  # statsmodels gives NaN where the power is 1 but for 1e-12
    ]
    answers = ask_statsmodels([("power", [*design]) for design in designs])
    for (paired, d, n, alpha), expected in zip(designs, answers, strict=True):
        found = power_of(n, d, 1.0, paired=paired, alpha=alpha)
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.extras
@needs_oracles
def test_trials_needed_equal_statsmodels() -> None:
    effects = (0.05, 0.2, 0.5, 1.0, 2.5)
    answers = ask_statsmodels([("trials_needed", [False, d, 0.05, 0.9]) for d in effects])
    for d, expected in zip(effects, answers, strict=True):
        plain = trials_needed(d, 1.0, paired=False, power=0.9).plain
        assert plain == pytest.approx(expected, rel=1e-6)


def test_the_smallest_effect_is_found_with_just_the_power_asked_for() -> None:
    for n, paired in ((2, True), (15, True), (15, False), (400, False)):
        effect = minimum_detectable_effect(n, 2.5, paired=paired, power=0.9)
        assert power_of(n, effect, 2.5, paired=paired) == pytest.approx(0.9)


def test_the_effect_scales_with_the_standard_deviation_and_its_sign_is_free() -> None:
    assert trials_needed(-2.0, 10.0, paired=True).plain == pytest.approx(198.1508, abs=1e-3)


def test_a_pilot_of_fifteen_leaves_the_number_open() -> None:
    low, high = sd_sampling_factors(15)
    assert (round(low, 2), round(high, 2)) == (0.63, 1.37)
    assert (round(low**2, 2), round(high**2, 2)) == (0.4, 1.87)
    spread = sd_interval(2.0, 15)
    assert (spread.low, spread.high) == pytest.approx((1.4642532, 3.1541980))
    found = trials_needed(0.2, 1.0, paired=True, pilot_n=15)
    assert found.low is not None
    assert found.high is not None
    assert found.low / found.trials == pytest.approx(0.54, abs=0.01)
    assert found.high / found.trials == pytest.approx(2.47, abs=0.02)


def test_without_a_pilot_there_is_no_range() -> None:
    for pilot in (None, 1):
        found = trials_needed(0.5, 1.0, paired=True, pilot_n=pilot)
        assert (found.low, found.high) == (None, None)


def test_a_price_has_dollars_and_hours_with_their_ranges() -> None:
    found = trials_needed(0.2, 1.0, paired=True, pilot_n=15)
    price = found.cost(0.02, 36.0, at_once=4)
    assert price.trials.point == 2 * found.trials
    assert price.dollars == pytest.approx(tuple(0.02 * n for n in price.trials))
    assert price.hours == pytest.approx(tuple(n * 0.01 / 4 for n in price.trials))
    assert found.cost(None, None).dollars is None
    assert not trials_needed(0.2, 1.0, paired=True).cost(1.0, 1.0).trials.known
    with pytest.raises(UsageError, match="cost -1"):
        found.cost(-1.0, None)


def test_no_spread_takes_two_trials() -> None:
    found = trials_needed(0.5, 0.0, paired=False, pilot_n=3)
    assert (found.trials, found.low, found.high) == (2, 2, 2)
    assert power_of(2, 0.5, 0.0, paired=True) == 1.0


def test_huge_numbers_of_trials_stay_finite() -> None:
    found = trials_needed(1e-9, 1.0, paired=True, pilot_n=4)
    assert found.plain == pytest.approx(7.8489e18, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trials_needed(0.0, 1.0, paired=True), "smallest difference that matters"),
        (lambda: trials_needed(1.0, math.nan, paired=True), "standard deviation nan"),
        (lambda: trials_needed(1.0, 1.0, paired=True, power=1.0), "power 1.0"),
        (lambda: trials_needed(1.0, 1.0, paired=True, alpha=0.0), "alpha 0.0"),
        (lambda: power_of(1, 1.0, 1.0, paired=True), "2 or more"),
        (lambda: trials_for_precision(1.0, 0.0, 0.05), "mean of 0.0"),
        (lambda: trials_for_precision(1.0, 1.0, 0.0), "relative error 0.0"),
        (lambda: first_n_below([1.0], 0.0), "threshold 0.0"),
        (lambda: sd_interval(1.0, 1), "2 or more"),
    ],
)
def test_bad_plans_get_a_sentence(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize(
    ("variation", "trials"), [(0.03, 2), (0.05, 2), (0.08, 3), (0.1, 4), (0.15, 9), (0.2, 16)]
)
def test_trials_for_precision_shrink_the_standard_error(variation: float, trials: int) -> None:
    found = trials_for_precision(variation, 1.0, 0.05, 15)
    assert found.trials == trials
    assert found.low is not None
    assert found.high is not None
    assert found.low <= trials <= found.high


def test_a_mean_that_may_be_zero_sets_no_limit() -> None:
    assert trials_for_precision(3.0, -1.0, 0.05, 15).high is None


def test_the_range_of_precision_holds_the_truth() -> None:
    rng, held = np.random.default_rng(12), 0
    for _ in range(400):
        pilot = rng.normal(1, 0.3, 8)
        found = trials_for_precision(pilot.std(ddof=1), pilot.mean(), 0.05, 8)
        assert found.low is not None
        held += found.low <= 36 and (found.high is None or found.high >= 36)
    # Three Monte Carlo errors of 0.011.
    assert 0.917 <= held / 400 <= 0.99


def test_the_plain_rule_takes_the_first_crossing() -> None:
    assert first_n_below([1.0, 1.01, 5.0], 0.05) == 2
    assert first_n_below([1.0, 2.0, 1.5, 1.5, 1.5], 0.25) == 5
    assert first_n_below([1.0, 2.0, 3.0], 0.05) is None
    assert first_n_below([1.0], 0.05) is None
    assert first_n_below([1.0, -1.0, 0.0], 0.05) is None
