"""Summaries of a learning curve: area, mean of last points, end, slope, time to a threshold.

A curve has increasing steps and a finite value at each. It is linear between two recorded steps
and unknown outside of them. Every function takes one curve and a window of steps (`Window`): a
proportion of the curve's own range of steps, or bounds in steps, never both. Windows are never
given in points, so the area does not depend on how often a run was logged. A window must lie
within the curve: a run that ended early is rejected, not extrapolated. The module reads no file
and compares no runs.

Area, end and time to a threshold are among the measures of learning of Taylor and Stone,
"Transfer learning for reinforcement learning domains: a survey", 2009; Machado et al.,
"Revisiting the Arcade Learning Environment", 2018, report a mean of the last values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from assay.core.text import unknown_name
from assay.errors import UsageError

Numbers = Sequence[float] | NDArray[np.floating[Any]] | NDArray[np.integer[Any]]
"""Types accepted for steps and values."""


class PercentWindow(StrEnum):
    """End of a curve from which a proportion of its steps is taken."""

    LAST = "last"
    """Steps before the end."""
    FIRST = "first"
    """Steps after the start."""


class Window(TypedDict, total=False):
    """Window of a curve: `percent`, or bounds; the whole curve by default."""

    percent: float | None
    """Proportion of the curve's own range of steps, above 0 and at most 1."""
    percent_window: PercentWindow
    """End from which the proportion is taken; the last by default."""
    step_min: float | None
    """First step; None is the curve's first step."""
    step_max: float | None
    """Last step; None is the curve's last step."""


class Within(NamedTuple):
    """Part of a curve within its window; the values at the ends are interpolated."""

    steps: NDArray[np.float64]
    values: NDArray[np.float64]
    recorded: NDArray[np.bool_]
    """Whether the run recorded each point; an interpolated end is not recorded."""


def within(
    steps: Numbers,
    values: Numbers,
    percent: float | None = None,
    percent_window: PercentWindow = PercentWindow.LAST,
    step_min: float | None = None,
    step_max: float | None = None,
) -> Within:
    """Return the part of a curve within its window; the values at the ends are interpolated.

    Raises:
        UsageError: The curve or the window is invalid, or the curve does not cover the window.
    """
    check_window(percent, step_min, step_max)
    if percent_window not in [*PercentWindow]:
        raise UsageError(unknown_name("percent_window", percent_window, PercentWindow))
    x, y = _points(steps, values)
    first, last = float(x[0]), float(x[-1])
    low, high = first if step_min is None else step_min, last if step_max is None else step_max
    if percent is not None and PercentWindow(percent_window) is PercentWindow.LAST:
        low = max(first, last - percent * (last - first))
    elif percent is not None:
        high = min(last, first + percent * (last - first))
    if not first <= low < high <= last:
        raise UsageError(
            f"the window is steps {low:.12g} to {high:.12g} and the curve covers"
            f" {first:.12g} to {last:.12g}; choose a window that all runs cover, or leave"
            " this run out"
        )
    inside = (x > low) & (x < high)
    ends = np.interp([low, high], x, y)
    known = np.isin([low, high], x)
    return Within(
        np.concatenate(([low], x[inside], [high])),
        np.concatenate((ends[:1], y[inside], ends[1:])),
        np.concatenate((known[:1], np.ones(int(inside.sum()), bool), known[1:])),
    )


def _points(steps: Numbers, values: Numbers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, y = _floats(steps, "steps"), _floats(values, "values")
    if len(x) != len(y):
        raise UsageError(f"a curve has {len(x)} steps and {len(y)} values; give one for each")
    if len(x) < 2:
        raise UsageError(f"a curve has {len(x)} of 2 points or more; leave this run out")
    bad = np.flatnonzero(np.diff(x) <= 0)
    if len(bad):
        before, after = x[bad[0]], x[bad[0] + 1]
        what = "occurs twice" if before == after else f"comes after step {before:.12g}"
        raise UsageError(
            f"step {after:.12g} {what}; sort a curve by step and keep one value for each"
        )
    return x, y


def _floats(numbers: Numbers, what: str) -> NDArray[np.float64]:
    found = np.asarray(numbers, np.float64)
    if found.ndim != 1 or not len(found):
        raise UsageError(f"the {what} of a curve are a row of numbers, one for each point")
    bad = np.flatnonzero(~np.isfinite(found))
    if len(bad):
        raise UsageError(
            f"{found[bad[0]]} is among the {what} of a curve, at point {bad[0] + 1} of"
            f" {len(found)}; leave out points that are missing or infinite"
        )
    return found


def check_window(percent: float | None, step_min: float | None, step_max: float | None) -> None:
    """Raise UsageError if a window contradicts itself; no curve is needed."""
    if percent is not None and (step_min, step_max) != (None, None):
        raise UsageError(
            "a window is a percent of the steps or goes from step_min to step_max; give one"
            " of them, not both"
        )
    if percent is not None and not 0 < percent <= 1:
        raise UsageError(
            f"percent {percent!r} is not a share above 0 and up to 1; 0.25 is 25 %"
        )
    for name, bound in (("step_min", step_min), ("step_max", step_max)):
        if bound is not None and not math.isfinite(bound):
            raise UsageError(f"{name} {bound!r} is not a step; give a finite number")
    if step_min is not None and step_max is not None and step_min >= step_max:
        raise UsageError(f"step_min {step_min!r} is not below step_max {step_max!r}")


DEFAULT_PERCENT = 0.25
"""Default window for the area: this proportion of a run's steps, at its end."""


class Summary(StrEnum):
    """Kind of summary of a curve."""

    AUC = "auc"
    """Area under the curve; divided by its length, it is the mean value by step."""
    LAST_N = "last_n"
    """Mean of the last n recorded values."""
    FINAL = "final"
    """Value at the end."""
    SLOPE = "slope"
    """Slope of the least-squares line, per step."""
    TIME_TO_THRESHOLD = "time_to_threshold"
    """First step at which the curve reaches the threshold."""


class Crossing(NamedTuple):
    """Step at which a curve reached a threshold."""

    value: float
    """Step of the crossing; if there is none, the last step of the window."""
    reached: bool
    """If False, the time is censored: it is longer than `value` by an unknown amount."""


@dataclass(frozen=True, kw_only=True)
class SummarySpec:
    """Definition of the summary of a curve; all runs of a comparison use the same one.

    Without `percent`, `step_min` and `step_max` the window is the whole curve.
    """

    type: Summary = Summary.AUC
    percent: float | None = None
    """Proportion of the curve's steps, above 0 and at most 1."""
    percent_window: PercentWindow = PercentWindow.LAST
    step_min: float | None = None
    """First step of the window; None is the curve's first step."""
    step_max: float | None = None
    """Last step of the window; None is the curve's last step."""
    normalize_steps: bool = True
    """Whether an area is divided by the length of its window."""
    n: int = 5
    """Number of values that `last_n` averages."""
    threshold: float | None = None
    """Threshold of `time_to_threshold`."""
    falling: bool = False
    """Whether the threshold is reached from above, as for a loss."""

    def __post_init__(self) -> None:
        check_window(self.percent, self.step_min, self.step_max)
        _check_count(self.n)
        if self.type is Summary.TIME_TO_THRESHOLD and self.threshold is None:
            raise UsageError("time_to_threshold needs a threshold; give the value to wait for")
        if self.threshold is not None:
            _check_threshold(self.threshold)

    @property
    def window(self) -> Window:
        """Window, as the functions of this module take it."""
        return Window(
            percent=self.percent,
            percent_window=self.percent_window,
            step_min=self.step_min,
            step_max=self.step_max,
        )


def auc(
    steps: Numbers,
    values: Numbers,
    *,
    normalize_steps: bool = True,
    **window: Unpack[Window],
) -> float:
    """Return the area under a curve over a window of steps, by the trapezoid rule.

    With `normalize_steps` the area is divided by the length of the window: the mean value by
    step, in the unit of the values. The trapezoid rule is exact for the straight lines between
    recorded points (Atkinson, An Introduction to Numerical Analysis, 1989, section 5.1). If a
    window ends between two points, the value there is interpolated.
    """
    curve = within(steps, values, **window)
    length = curve.steps[-1] - curve.steps[0]
    with np.errstate(over="ignore"):
        weights = np.diff(curve.steps) / (length if normalize_steps else 1.0)
        area = float((weights * (curve.values[1:] / 2 + curve.values[:-1] / 2)).sum())
    return _finite(area, "area below the curve")


def last_n_mean(
    steps: Numbers,
    values: Numbers,
    n: int = 5,
    **window: Unpack[Window],
) -> float:
    """Return the mean of the last n values that were recorded within the window.

    It counts points: runs that were logged at different intervals are averaged over different
    numbers of steps. A window with fewer than n points is rejected, because its mean would be
    over fewer values.
    """
    _check_count(n)
    curve = within(steps, values, **window)
    found = curve.values[curve.recorded]
    if len(found) < n:
        raise UsageError(
            f"the last {n} points were asked for and the window has {len(found)}; give a"
            " smaller n or a wider window"
        )
    return _finite(float((found[-n:] / n).sum()), "mean of the last points")


def final_value(
    steps: Numbers,
    values: Numbers,
    **window: Unpack[Window],
) -> float:
    """Return the value at the end of the window, interpolated if the end is between points."""
    curve = within(steps, values, **window)
    return float(curve.values[-1])


def slope(
    steps: Numbers,
    values: Numbers,
    **window: Unpack[Window],
) -> float:
    """Return the slope, in values per step, of the least-squares line through recorded points.

    sum((x - mean x) (y - mean y)) / sum((x - mean x)^2): Draper and Smith, Applied Regression
    Analysis, 1998, section 1.2. Every point has the same weight, so densely logged steps count
    for more.
    """
    curve = within(steps, values, **window)
    x, y = curve.steps[curve.recorded], curve.values[curve.recorded]
    if len(x) < 2:
        raise UsageError(
            f"a slope takes two points and the window has {len(x)}; give a wider window"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        # In units of the window, so that squares neither overflow nor underflow.
        span = x[-1] - x[0]
        across = (x - x.mean()) / span
        rise = float((across * (y - y.mean())).sum() / (across * across).sum())
    return _finite(rise / float(span), "slope")


def time_to_threshold(
    steps: Numbers,
    values: Numbers,
    threshold: float,
    *,
    falling: bool = False,
    **window: Unpack[Window],
) -> Crossing:
    """Return the first step of the window at which the curve is at or beyond the threshold.

    Between two points it is the step at which the straight line crosses. If the curve never
    reaches the threshold, the time is censored: `reached` is False and `value` is the last step
    of the window. With `falling`, beyond means below.
    """
    _check_threshold(threshold)
    curve = within(steps, values, **window)
    there = curve.values <= threshold if falling else curve.values >= threshold
    if not there.any():
        return Crossing(float(curve.steps[-1]), False)
    after = int(np.argmax(there))
    if after == 0:
        return Crossing(float(curve.steps[0]), True)
    before_value, after_value = (float(curve.values[i]) for i in (after - 1, after))
    # Halves, so that the difference of two large values does not overflow.
    rise = after_value / 2 - before_value / 2
    share = (threshold / 2 - before_value / 2) / rise if rise else 1.0
    before, end = (float(curve.steps[i]) for i in (after - 1, after))
    return Crossing(min(before + share * (end - before), end), True)


def summarize_curve(steps: Numbers, values: Numbers, spec: SummarySpec) -> float:
    """Reduce a curve to the number that a spec defines.

    A threshold that was never reached gives infinity: it ranks behind every run that reached
    it, and makes every mean infinite instead of distorting it. `time_to_threshold` returns the
    step at which such a run ended.
    """
    window = spec.window
    match spec.type:
        case Summary.AUC:
            return auc(steps, values, normalize_steps=spec.normalize_steps, **window)
        case Summary.LAST_N:
            return last_n_mean(steps, values, spec.n, **window)
        case Summary.FINAL:
            return final_value(steps, values, **window)
        case Summary.SLOPE:
            return slope(steps, values, **window)
        case Summary.TIME_TO_THRESHOLD:
            assert spec.threshold is not None
            found = time_to_threshold(
                steps, values, spec.threshold, falling=spec.falling, **window
            )
            return found.value if found.reached else math.inf


def _check_count(n: int) -> None:
    if n < 1:
        raise UsageError(f"n {n!r} is not a number of points; give 1 or more")


def _check_threshold(threshold: float) -> None:
    if not math.isfinite(threshold):
        raise UsageError(f"threshold {threshold!r} is not a value; give a finite number")


def _finite(number: float, what: str) -> float:
    if not math.isfinite(number):
        raise UsageError(f"the {what} is too large for a number; give values in another unit")
    return number
