"""What lost trials could have changed, at their extremes."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.differences import paired_difference
from assay.stats.estimates import Floats, difference_estimate
from assay.stats.intervals import Interval
from assay.stats.missing import (
    losses_matter,
    tipping_point,
    worst_case_interval,
    worst_cases,
)

LOST = math.nan


def test_lost_trials_stand_at_the_worst_and_at_the_best_value() -> None:
    worst, best = worst_cases([1, LOST, 3], [2, 2, LOST], low=0, high=22)
    assert (worst.a.tolist(), worst.b.tolist()) == ([1, 22, 3], [2, 2, 0])
    assert (best.a.tolist(), best.b.tolist()) == ([1, 0, 3], [2, 2, 22])


def test_whatever_was_lost_the_difference_lies_between_the_two() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.binomial(22, 0.3, 40) * 1.0, rng.binomial(22, 0.4, 40) * 1.0
    kept_a, kept_b = a.copy(), b.copy()
    kept_a[rng.integers(0, 40, 5)] = kept_b[b < 8] = LOST
    worst, best = worst_cases(kept_a, kept_b, low=0, high=22)
    assert paired_difference(*worst).point <= (b - a).mean() <= paired_difference(*best).point


def test_a_model_whose_hard_worlds_break_is_not_the_better_one() -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(10, 2, 60)
    b = a - 0.8
    b[a < np.quantile(a, 0.5)] = LOST
    seen = ~np.isnan(b)
    assert b[seen].mean() - a.mean() > 0.5
    worst, best = worst_cases(a, b, low=0, high=22)
    assert paired_difference(*worst).high < 0 < paired_difference(*best).low


@pytest.mark.parametrize(
    ("losses", "matter"),
    [
        ((0, 30, 0, 30), False),
        ((1, 30, 1, 30), False),
        ((2, 40, 0, 40), True),
        ((0, 300, 4, 300), False),
        ((0, 300, 6, 300), True),
    ],
)
def test_many_losses_and_unlike_ones_matter(
    losses: tuple[int, int, int, int], matter: bool
) -> None:
    assert losses_matter(*losses) is matter


def test_values_beyond_their_bounds_are_refused() -> None:
    with pytest.raises(UsageError, match="from 1 to 23, beyond the bounds 0 and 22"):
        worst_cases([1, 23], [LOST, 2], low=0, high=22)
    with pytest.raises(UsageError, match="no values were given"):
        worst_cases([LOST], [LOST], low=0, high=1)


def paired_interval(a: Floats, b: Floats) -> Interval:
    return difference_estimate(a, b, paired=True).interval()


def test_a_lost_partner_gives_a_difference_from_its_lowest_to_its_highest() -> None:
    found = worst_case_interval(
        [4.0, LOST, 7.0], [LOST, 5.0, 9.0], paired_interval, low=0, high=22
    )
    assert found.lowest == paired_interval(np.zeros(3), np.array([0 - 4, 5 - 22, 2.0]))
    assert found.highest == paired_interval(np.zeros(3), np.array([22 - 4, 5 - 0, 2.0]))
    assert found.interval == (7 - 5.5, found.lowest.low, found.highest.high)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_interval_holds_the_truth_where_low_values_are_lost(share: float) -> None:
    """Among complete pairs the truth was held in far fewer cases."""
    rng, held, naive = np.random.default_rng(6), 0, 0
    for _ in range(500):
        a, b = rng.binomial(22, 0.3, (2, 30)) * 1.0
        kept = b.copy()
        kept[np.argsort(b + rng.random(30))[: round(share * 30)]] = LOST
        found = worst_case_interval(a, kept, paired_interval, low=0, high=22).interval
        held += found.low <= 0 <= found.high
        seen = ~np.isnan(kept)
        plain = paired_interval(a[seen], kept[seen])
        naive += plain.low <= 0 <= plain.high
    assert held >= 0.95 * 500 > naive


def higher(a: Floats, b: Floats) -> bool:
    return paired_interval(a, b).low > 0


def test_the_tipping_point_is_where_the_conclusion_changes() -> None:
    rng = np.random.default_rng(3)
    a = rng.normal(10, 1, 40)
    b = a + rng.normal(1, 1, 40)
    b[:4] = LOST
    found = tipping_point(a, b, higher, higher=True)
    quantiles = np.quantile(b[4:], [0.125, 0.375, 0.625, 0.875])

    def moved(shift: float) -> Floats:
        return np.concatenate([quantiles - shift, b[4:]])

    assert higher(a, moved(0.999 * found))
    assert not higher(a, moved(1.001 * found))
    turned = tipping_point(-a, -b, lambda x, y: higher(y, x), higher=False)
    # The same quantiles, of other pairs.
    assert turned == pytest.approx(found, rel=0.1)


def test_a_conclusion_that_fails_at_once_or_never_tips_at_0_or_at_no_distance() -> None:
    a, b = np.arange(8.0), np.arange(8.0)
    b[0] = LOST
    assert tipping_point(a, b, higher, higher=True) == 0
    assert tipping_point(a, b, lambda *_: True, higher=True) == math.inf
