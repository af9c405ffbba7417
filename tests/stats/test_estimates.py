"""An estimate, its interval within what is possible, and the spread that equal values hide."""

import math

import numpy as np
import pytest
from scipy import stats

from assay.errors import UsageError
from assay.stats.differences import unpaired_difference
from assay.stats.estimates import difference_estimate, mean_estimate
from assay.stats.intervals import t_interval

VALUES = [3.0, 5.0, 4.0, 4.0, 8.0]


def test_without_a_step_it_is_student_and_welch() -> None:
    other = [1.0, 2.0, 2.5]
    assert mean_estimate(VALUES).interval(0.9) == pytest.approx(t_interval(VALUES, 0.9))
    found = difference_estimate(VALUES, other, paired=False)
    assert found.interval() == pytest.approx(unpaired_difference(VALUES, other))
    pairs = difference_estimate(VALUES[:3], other, paired=True)
    assert pairs.p_value() == pytest.approx(stats.ttest_rel(VALUES[:3], other).pvalue)


@pytest.mark.parametrize("paired", [True, False])
def test_equal_counts_have_an_interval_with_width(paired: bool) -> None:
    found = difference_estimate([4] * 5, [6] * 5, paired=paired, step=1)
    error = 1 / 6 if paired else math.sqrt(2) / 6
    assert found.error == pytest.approx(error)
    assert found.interval().half_width > 0.4


@pytest.mark.parametrize("n", [2, 5, 30])
def test_a_step_changes_no_interval_of_counts_that_differ(n: int) -> None:
    values = [4] * (n - 1) + [5]
    assert mean_estimate(values, step=1) == mean_estimate(values)


def test_no_bound_lies_beyond_what_is_possible() -> None:
    found = mean_estimate([0, 0, 0, 1], step=1).interval(low=0, high=22)
    assert found.low == 0
    assert found.point < found.high
    top = mean_estimate([22] * 4, step=1).interval(low=0, high=22)
    assert top.low < top.point == top.high == 22


def test_one_value_has_no_interval() -> None:
    assert not mean_estimate([4], step=1).interval(low=0, high=22).known


def test_counts_of_five_worlds_keep_their_level() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.binomial(22, 0.14, (2_000, 5))
    found = [mean_estimate(values, step=1).interval(low=0, high=22) for values in drawn]
    held = np.mean([one.low <= 22 * 0.14 <= one.high for one in found])
    assert held >= 0.94 - 3 * math.sqrt(0.94 * 0.06 / 2_000)


@pytest.mark.parametrize("step", [-1.0, math.inf, math.nan])
def test_a_step_that_is_none_is_refused(step: float) -> None:
    with pytest.raises(UsageError, match="1 is that of counts"):
        mean_estimate(VALUES, step=step)
