"""Intervals against worked examples, SciPy, and their own promises."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from assay.errors import UsageError
from assay.stats.intervals import Interval, t_interval, wilson
from tests.support import run_python

finite = st.floats(-1e6, 1e6)


def test_the_t_interval_of_a_worked_example() -> None:
    # Mean 3, deviation sqrt(2.5), t(4 degrees, 0.975) = 2.776445.
    found = t_interval([1, 2, 3, 4, 5])
    assert found.point == 3
    assert found.half_width == pytest.approx(2.776445105 * math.sqrt(2.5 / 5))
    assert found.low == pytest.approx(3 - found.half_width)


@given(st.lists(finite, min_size=2, max_size=30), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
@settings(max_examples=60)
def test_the_t_interval_agrees_with_scipy(values: list[float], level: float) -> None:
    found = t_interval(values, level)
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    if error < 1e-9:
        assert found.half_width == pytest.approx(0, abs=1e-6)
        return
    low, high = reference.t.interval(level, len(values) - 1, np.mean(values), error)
    assert found.low == pytest.approx(low, rel=1e-9, abs=1e-6)
    assert found.high == pytest.approx(high, rel=1e-9, abs=1e-6)


def test_one_value_has_a_mean_and_no_interval() -> None:
    found = t_interval([7.5])
    assert found.point == 7.5
    assert not found.known
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert math.isnan(found.half_width)


@pytest.mark.parametrize("value", [0.1, 0.0, -3.3, 1e300])
def test_equal_values_have_an_interval_of_no_width(value: float) -> None:
    assert t_interval([value] * 7) == Interval(value, value, value)


def test_the_t_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.Generator(np.random.PCG64(1))
    covered = 0
    for sample in random.normal(5, 2, (2000, 4)):
        found = t_interval(sample.tolist())
        covered += found.low <= 5 <= found.high
    assert 0.935 < covered / 2000 < 0.965


@pytest.mark.parametrize(
    ("values", "level", "words"),
    [
        pytest.param([], 0.95, "no values", id="nothing"),
        pytest.param([1.0, math.nan], 0.95, "finite", id="nan"),
        pytest.param([1.0, math.inf], 0.95, "finite", id="infinite"),
        pytest.param([1.0, 2.0], 95, "level 95", id="a level in percent"),
        pytest.param([1.0, 2.0], math.nan, "level nan", id="no level"),
    ],
)
def test_what_has_no_mean_is_refused(values: list[float], level: float, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        t_interval(values, level)


@given(st.integers(1, 200), st.data())
@settings(max_examples=60)
def test_wilson_agrees_with_scipy(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    found = wilson(successes, trials)
    exact = reference.binomtest(successes, trials).proportion_ci(method="wilson")
    assert found.point == successes / trials
    assert found.low == pytest.approx(exact.low, abs=1e-12)
    assert found.high == pytest.approx(exact.high, abs=1e-12)
    assert 0 <= found.low <= found.point <= found.high <= 1


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_a_share_of_nothing_is_refused(successes: int, trials: int) -> None:
    with pytest.raises(UsageError, match=f"{successes} of {trials}"):
        wilson(successes, trials)


def test_importing_statistics_does_not_import_scipy() -> None:
    code = "import sys, assay.stats; sys.exit('scipy' in sys.modules)"
    run_python("-c", code)
