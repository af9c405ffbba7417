"""Times of which some are only known to be longer."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.survival import median_time
from tests.oracles.asking import ask_statsmodels, needs_oracles


def test_without_censoring_it_is_the_median_of_an_odd_number_of_times() -> None:
    assert median_time([5, 1, 3], [True, True, True]) == 3


def test_a_censored_time_counts_as_longer_than_it_took() -> None:
    assert median_time([1, 2, 3, 4], [True, False, True, True]) == 3


def test_there_is_none_if_fewer_than_half_came_to_the_event() -> None:
    assert math.isnan(median_time([1, 2, 3], [True, False, False]))
    assert math.isnan(median_time([1, 2], [False, False]))


@pytest.mark.extras
@needs_oracles
def test_it_follows_from_the_survival_function_of_statsmodels() -> None:
    rng = np.random.default_rng(3)
    cases = [
        [rng.integers(1, 12, 25).astype(float).tolist(), (rng.random(25) < 0.8).tolist()]
        for _ in range(20)
    ]
    answers = ask_statsmodels([("median_time", case) for case in cases])
    assert [median_time(times, reached) for times, reached in cases] == answers


def test_times_and_marks_have_to_be_equally_many() -> None:
    with pytest.raises(UsageError, match="2 times and 1 marks"):
        median_time([1, 2], [True])
