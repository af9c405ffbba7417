"""Times to an event that some never come to."""

import math

import numpy as np
import pytest
from scipy import stats

from assay.errors import UsageError
from assay.stats.survival import (
    cumulative_incidence,
    incidence_test,
    median_time,
    restricted_times,
)
from tests.oracles.asking import ask_statsmodels, needs_oracles


def test_without_other_ends_it_is_the_median_of_an_odd_number_of_times() -> None:
    assert median_time([5, 1, 3], [True, True, True]) == 3


def test_a_censored_time_counts_as_longer_than_it_took() -> None:
    marks = [True, False, True, True], [False, True, False, False]
    assert median_time([1, 2, 3, 4], *marks) == 3


def test_there_is_none_if_fewer_than_half_came_to_the_event() -> None:
    assert math.isnan(median_time([1, 2, 3], [True, False, False]))
    assert math.isnan(median_time([1, 2], [False, False]))


def test_who_died_does_not_come_to_the_event_later() -> None:
    # Six of ten end at once, four succeed at 10: forty percent have no median.
    times, reached = [1] * 6 + [10] * 4, [False] * 6 + [True] * 4
    assert math.isnan(median_time(times, reached))
    found = cumulative_incidence(times, reached)
    assert (found.times.tolist(), found.shares.tolist()) == ([10], [pytest.approx(0.4)])
    # Had they been cut off instead, all would come to it at 10.
    assert median_time(times, reached, [not one for one in reached]) == 10


def test_without_censoring_the_incidence_is_the_share_of_all_trials() -> None:
    rng = np.random.default_rng(1)
    times, reached = rng.integers(1, 9, 30), rng.random(30) < 0.6
    found = cumulative_incidence(times, reached)
    for time, share in zip(*found, strict=True):
        assert share == pytest.approx((reached & (times <= time)).mean())


@pytest.mark.extras
@needs_oracles
def test_the_incidence_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(3)
    cases = [
        [rng.integers(1, 12, 25).astype(float).tolist(), rng.integers(0, 3, 25).tolist()]
        for _ in range(20)
    ]
    answers = ask_statsmodels([("incidence", case) for case in cases])
    for (times, ends), (at, shares) in zip(cases, answers, strict=True):
        found = cumulative_incidence(times, np.equal(ends, 1), np.equal(ends, 0))
        expected = dict(zip(at, shares, strict=True))
        assert found.shares == pytest.approx([expected[time] for time in found.times])


def test_without_censoring_a_restricted_time_is_the_time_or_the_horizon() -> None:
    found = restricted_times([3, 5, 2, 9], [True, False, False, True], horizon=8)
    assert found.tolist() == [3, 8, 8, 8]


def test_the_horizon_is_where_the_first_was_cut_off() -> None:
    found = restricted_times([3, 5, 7, 9], [1, 0, 0, 1], [0, 0, 1, 0])
    assert found.tolist() == [3, 7, 7, 7]
    assert restricted_times([3, 5], [True, False]).tolist() == [3, 5]


def test_restricted_times_of_censored_trials_have_hardly_a_bias() -> None:
    rng = np.random.default_rng(5)
    means = []
    for _ in range(25):
        event, cut = rng.exponential(10, 40), rng.uniform(2, 30, 40)
        times = np.minimum(event, cut)
        means.append(restricted_times(times, event <= cut, event > cut, horizon=12).mean())
    truth = 10 * (1 - math.exp(-1.2))
    assert np.mean(means) == pytest.approx(truth, abs=4 * np.std(means) / math.sqrt(25))


def test_the_scores_add_up_to_the_log_rank_statistic_of_scipy() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.exponential(10, 60), rng.exponential(16, 50)
    cut = 15.0
    reached = a < cut, b < cut
    times = np.minimum(a, cut), np.minimum(b, cut)
    found = incidence_test(
        times[0],
        reached[0],
        times[1],
        reached[1],
        ~reached[0],
        ~reached[1],
        rng=rng,
        n_resamples=20_000,
    )
    oracle = stats.logrank(
        *(stats.CensoredData.right_censored(t, ~r) for t, r in zip(times, reached, strict=True))
    )
    assert found.p_value == pytest.approx(oracle.pvalue, abs=0.01)
    assert found.statistic < 0


def test_who_died_early_is_not_taken_for_quick() -> None:
    # All of b that is not dead is as quick as a, and most of b is dead.
    a, b = [5.0, 6.0, 7.0, 8.0, 9.0, 10.0], [1.0, 1.0, 1.0, 1.0, 5.0, 6.0]
    found = incidence_test(a, [True] * 6, b, [False] * 4 + [True] * 2)
    assert found.statistic < 0
    assert found.p_value < 0.2
    paired = incidence_test(a, [True] * 6, b, [False] * 4 + [True] * 2, paired=True)
    assert paired.statistic == pytest.approx(found.statistic)
    assert paired.exact


def test_the_test_finds_nothing_where_there_is_nothing_in_at_most_5_percent() -> None:
    rng, wrong, sets = np.random.default_rng(7), 0, 400
    for _ in range(sets):
        times, died = rng.exponential(10, (2, 6)), rng.exponential(15, (2, 6))
        first, reached = np.minimum(times, died), times < died
        found = incidence_test(first[0], reached[0], first[1], reached[1])
        wrong += found.p_value <= 0.05
    assert wrong / sets <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sets)


def test_times_and_marks_have_to_go_together() -> None:
    with pytest.raises(UsageError, match="2 times and 1 marks of what was reached"):
        median_time([1, 2], [True])
    with pytest.raises(UsageError, match="both reached the event and was censored"):
        median_time([1, 2], [True, False], [True, False])
    with pytest.raises(UsageError, match="at most 3"):
        restricted_times([1, 2, 3], [1, 0, 1], [0, 1, 0], horizon=5)
    with pytest.raises(UsageError, match="not a time above 0"):
        restricted_times([1, 2], [1, 1], horizon=0)
    with pytest.raises(UsageError, match="1 trials cannot be paired with 2"):
        incidence_test([1], [True], [1, 2], [True, True], paired=True)
