"""What lost trials could have changed, at their extremes."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.differences import paired_difference
from assay.stats.shares import losses_matter, worst_cases

LOST = math.nan


def test_lost_trials_stand_at_the_worst_and_at_the_best_value() -> None:
    worst, best = worst_cases([1, LOST, 3], [2, 2, LOST], low=0, high=22)
    assert (worst.a.tolist(), worst.b.tolist()) == ([1, 22, 3], [2, 2, 0])
    assert (best.a.tolist(), best.b.tolist()) == ([1, 0, 3], [2, 2, 22])


def test_an_unbounded_metric_takes_the_extremes_that_were_seen() -> None:
    worst, best = worst_cases([5.0, LOST], [2.0, 9.0])
    assert (worst.a[1], best.a[1]) == (9.0, 2.0)


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
        worst_cases([LOST], [LOST])
