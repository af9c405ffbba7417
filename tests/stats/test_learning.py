"""Summaries of learning curves against hand-computed numbers, SciPy and NumPy."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, interpolate

from assay.errors import UsageError
from assay.stats.learning_curves import (
    Crossing,
    PercentWindow,
    Summary,
    SummarySpec,
    auc,
    final_value,
    last_n_mean,
    slope,
    summarize_curve,
    time_to_threshold,
)

STEPS = [0, 10, 20, 40]
VALUES = [0.0, 1.0, 3.0, 3.0]


@st.composite
def curves(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    gaps = draw(st.lists(st.integers(1, 1000), min_size=2, max_size=30))
    values = draw(st.lists(st.floats(-1e3, 1e3), min_size=len(gaps), max_size=len(gaps)))
    return np.cumsum(gaps).astype(np.float64), np.array(values)


def test_the_area_of_a_worked_example() -> None:
    # Trapezoids of 5, 20 and 60 over 40 steps.
    assert auc(STEPS, VALUES, normalize_steps=False) == 85
    assert auc(STEPS, VALUES) == 85 / 40


@pytest.mark.parametrize(
    ("window", "area", "length"),
    [
        ({"percent": 0.25}, 30, 10),
        ({"percent": 0.75}, 80, 30),
        ({"percent": 1.0}, 85, 40),
        ({"percent": 0.25, "percent_window": PercentWindow.FIRST}, 5, 10),
        # Interpolated at both ends: from 0.5 to 1 in 5 steps, from 1 to 2 in 5.
        ({"step_min": 5, "step_max": 15}, 3.75 + 7.5, 10),
        ({"step_min": 20}, 60, 20),
        ({"step_max": 15}, 5 + 7.5, 15),
    ],
    ids=str,
)
def test_a_window_is_cut_by_steps(window: Any, area: float, length: float) -> None:
    assert auc(STEPS, VALUES, normalize_steps=False, **window) == pytest.approx(area)
    assert auc(STEPS, VALUES, **window) == pytest.approx(area / length)


@given(curves(), st.floats(0, 0.4), st.floats(0.6, 1))
@settings(max_examples=60)
def test_the_area_of_a_window_agrees_with_scipy(
    curve: tuple[np.ndarray, np.ndarray], start: float, end: float
) -> None:
    steps, values = curve
    low, high = steps[0] + np.array([start, end]) * (steps[-1] - steps[0])
    line = interpolate.interp1d(steps, values)
    grid = np.unique(np.concatenate(([low, high], steps[(steps > low) & (steps < high)])))
    expected = integrate.trapezoid(line(grid), grid)
    found = auc(steps, values, step_min=low, step_max=high, normalize_steps=False)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(curves(), st.floats(0.01, 1), st.sampled_from(PercentWindow), st.integers(2, 5))
@settings(max_examples=60)
def test_logging_a_straight_line_more_often_changes_no_area(
    curve: tuple[np.ndarray, np.ndarray], percent: float, end: PercentWindow, times: int
) -> None:
    steps, values = curve
    # Dense in the first half only: by number of points, "last 25 %" would mean other steps.
    half = (steps[0] + steps[-1]) / 2
    dense = np.union1d(steps, np.linspace(steps[0], half, 7 * times))
    before = auc(steps, values, percent=percent, percent_window=end)
    after = auc(dense, np.interp(dense, steps, values), percent=percent, percent_window=end)
    assert after == pytest.approx(before, rel=1e-7, abs=1e-6)


def test_the_mean_of_the_last_points_and_the_end() -> None:
    assert last_n_mean(STEPS, VALUES, 3) == pytest.approx(7 / 3)
    assert last_n_mean(STEPS, VALUES, 2, step_max=25) == 2
    assert final_value(STEPS, VALUES) == 3
    assert final_value(STEPS, VALUES, step_max=15) == 2


@given(curves())
@settings(max_examples=60)
def test_the_slope_agrees_with_numpy(curve: tuple[np.ndarray, np.ndarray]) -> None:
    steps, values = curve
    expected = np.polynomial.Polynomial.fit(steps, values, 1).convert().coef
    gain = expected[1] if len(expected) > 1 else 0.0
    assert slope(steps, values) == pytest.approx(gain, rel=1e-6, abs=1e-7)


def test_the_slope_of_billions_of_steps_is_exact() -> None:
    steps = np.arange(0, 5_000_000_000, 50_000_000)
    assert slope(steps, 3 + 2e-9 * steps) == pytest.approx(2e-9, rel=1e-12)
    assert slope(steps, 3 + 2e-9 * steps, percent=0.1) == pytest.approx(2e-9, rel=1e-9)
    assert slope(steps, np.full(100, 7.0)) == 0


@pytest.mark.parametrize(
    ("threshold", "more", "expected"),
    [
        pytest.param(2, {}, Crossing(15, True), id="between two points"),
        pytest.param(1, {}, Crossing(10, True), id="at a point"),
        pytest.param(-1, {}, Crossing(0, True), id="from the start"),
        pytest.param(3.5, {}, Crossing(40, False), id="never"),
        pytest.param(2, {"step_max": 12}, Crossing(12, False), id="after the window"),
        pytest.param(2, {"step_min": 18}, Crossing(18, True), id="before the window"),
        pytest.param(-1, {"falling": True}, Crossing(40, False), id="falling, never"),
    ],
)
def test_when_a_curve_comes_to_a_threshold(
    threshold: float, more: Any, expected: Crossing
) -> None:
    assert time_to_threshold(STEPS, VALUES, threshold, **more) == expected


def test_the_first_crossing_counts_even_if_the_curve_falls_back() -> None:
    assert time_to_threshold([0, 2, 4, 6], [0, 4, 0, 8], 2) == Crossing(1, True)


def test_a_loss_reaches_its_threshold_from_above() -> None:
    assert time_to_threshold([0, 10], [4, 0], 1, falling=True) == Crossing(7.5, True)


@given(curves(), st.floats(-1e3, 1e3), st.booleans())
@settings(max_examples=60)
def test_a_crossing_lies_on_the_curve(
    curve: tuple[np.ndarray, np.ndarray], threshold: float, falling: bool
) -> None:
    steps, values = curve
    found = time_to_threshold(steps, values, threshold, falling=falling)
    sign = -1 if falling else 1
    before = values[steps < found.value]
    assert (sign * before < sign * threshold).all()
    if found.reached and len(before):
        there = float(np.interp(found.value, steps, values))
        assert there == pytest.approx(threshold, abs=1e-6)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SummarySpec(), 85 / 40),
        (SummarySpec(percent=0.25, normalize_steps=False), 30),
        (SummarySpec(type=Summary.LAST_N, n=2), 3),
        (SummarySpec(type=Summary.FINAL, step_max=15), 2),
        (SummarySpec(type=Summary.SLOPE, step_max=20), 0.15),
        (SummarySpec(type=Summary.TIME_TO_THRESHOLD, threshold=2), 15),
        (SummarySpec(type=Summary.TIME_TO_THRESHOLD, threshold=9), math.inf),
        (SummarySpec(type=Summary.TIME_TO_THRESHOLD, threshold=-1, falling=True), math.inf),
    ],
    ids=str,
)
def test_a_spec_gives_the_number_it_names(spec: SummarySpec, expected: float) -> None:
    assert summarize_curve(STEPS, VALUES, spec) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("steps", "values", "words"),
    [
        pytest.param([1, 3, 2], [0, 0, 0], "step 2 comes after step 3", id="unsorted"),
        pytest.param([1, 2, 2], [0, 0, 0], "step 2 occurs twice", id="a step twice"),
        pytest.param([1, 2], [0, math.nan], "nan is among the values", id="nan"),
        pytest.param([1, math.inf], [0, 0], "inf is among the steps", id="infinite"),
        pytest.param([1], [0], "1 of 2 points", id="one point"),
        pytest.param([], [], "row of numbers", id="nothing"),
        pytest.param([[1, 2]], [[1, 2]], "row of numbers", id="a table"),
        pytest.param([1, 2], [0], "2 steps and 1 values", id="lengths"),
    ],
)
def test_what_is_no_curve_is_refused(steps: Any, values: Any, words: str) -> None:
    for summary in (auc, last_n_mean, final_value, slope):
        with pytest.raises(UsageError, match=words):
            summary(steps, values)
    with pytest.raises(UsageError, match=words):
        time_to_threshold(steps, values, 1)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ({"percent": 0.25, "step_min": 0}, "not both"),
        ({"percent": 0.25, "step_max": 0}, "not both"),
        ({"percent": 25}, "percent 25 is not a share"),
        ({"percent": 0}, "percent 0 is not a share"),
        ({"percent": math.nan}, "percent nan"),
        ({"step_min": 20, "step_max": 20}, "step_min 20 is not below step_max 20"),
        ({"step_min": math.inf}, "step_min inf"),
        ({"step_min": 0, "step_max": 2_000_000_001}, "steps 0 to 2000000001 and .* 0 to 40"),
        ({"step_min": -1}, "the curve covers 0 to 40"),
        ({"step_min": 40}, "the curve covers 0 to 40"),
        ({"percent_window": "middle"}, "unknown percent_window 'middle'"),
    ],
    ids=str,
)
def test_windows_that_contradict_are_refused(window: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        auc(STEPS, VALUES, **window)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"percent": 0.25, "step_min": 0}, "not both"),
        ({"n": 0}, "n 0"),
        ({"type": Summary.TIME_TO_THRESHOLD}, "needs a threshold"),
        ({"threshold": math.nan}, "threshold nan"),
    ],
    ids=str,
)
def test_a_spec_is_checked_before_there_is_a_curve(spec: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        SummarySpec(**spec)


def test_a_window_with_too_few_points_is_refused() -> None:
    with pytest.raises(UsageError, match=r"last 5 points .* the window has 4"):
        last_n_mean(STEPS, VALUES)
    with pytest.raises(UsageError, match="takes two points and the window has 1"):
        slope(STEPS, VALUES, step_min=5, step_max=15)


def test_a_sum_too_large_for_a_number_is_refused() -> None:
    with pytest.raises(UsageError, match="too large"):
        auc([0, 100], [1e308, 1e308], normalize_steps=False)
    assert auc([0, 100], [1e308, 1e308]) == 1e308
    assert time_to_threshold([0, 1], [-1.5e308, 1.5e308], 0) == Crossing(0.5, True)
