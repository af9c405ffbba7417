"""One number for a learning curve: area, last points, end, slope, time to a threshold.

Every function takes the steps and values of one curve and the window of steps that counts
(`assay.stats.windows`). A window is never a number of points: how often a run was logged
changes no area. It reads no file and compares no runs.

Area, end and time to a threshold are among the measures of learning of Taylor and Stone,
"Transfer learning for reinforcement learning domains: a survey", 2009; a mean of the last
values is what Machado et al., "Revisiting the Arcade Learning Environment", 2018, report.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Unpack

import numpy as np

from assay.errors import UsageError
from assay.stats.windows import (
    Numbers,
    PercentWindow,
    Window,
    check_window,
    within,
)

__all__ = [
    "DEFAULT_PERCENT",
    "Crossing",
    "Summary",
    "SummarySpec",
    "auc",
    "final_value",
    "last_n_mean",
    "slope",
    "summarize_curve",
    "time_to_threshold",
]


DEFAULT_PERCENT = 0.25
"""The share of a run's steps, at its end, of which an area is taken unless told otherwise."""


class Summary(StrEnum):
    """What a curve is reduced to."""

    AUC = "auc"
    """The area below the curve; divided by its length it is the mean value by step."""
    LAST_N = "last_n"
    """The mean of the last n recorded values."""
    FINAL = "final"
    """The value at the end."""
    SLOPE = "slope"
    """The gain per step of the least-squares line."""
    TIME_TO_THRESHOLD = "time_to_threshold"
    """The first step at which the curve is at the threshold."""


class Crossing(NamedTuple):
    """When a curve came to a threshold."""

    value: float
    """The step of the crossing; where there is none, the last step that was looked at."""
    reached: bool
    """False says that the time is censored: it is longer than `value`, how much is unknown."""


@dataclass(frozen=True, kw_only=True)
class SummarySpec:
    """How curves are reduced to a number each; the same for all runs of a comparison.

    Without `percent`, `step_min` and `step_max` the window is the whole curve.
    """

    type: Summary = Summary.AUC
    percent: float | None = None
    """The share of the curve's steps, above 0 and at most 1."""
    percent_window: PercentWindow = PercentWindow.LAST
    step_min: float | None = None
    """The first step of the window; None is the curve's own."""
    step_max: float | None = None
    """The last step of the window; None is the curve's own."""
    normalize_steps: bool = True
    """Whether an area is divided by the length of its window."""
    n: int = 5
    """How many values `last_n` averages."""
    threshold: float | None = None
    """What `time_to_threshold` waits for."""
    falling: bool = False
    """Whether the threshold is reached from above, as a loss does."""

    def __post_init__(self) -> None:
        check_window(self.percent, self.step_min, self.step_max)
        _check_count(self.n)
        if self.type is Summary.TIME_TO_THRESHOLD and self.threshold is None:
            raise UsageError("time_to_threshold needs a threshold; give the value to wait for")
        if self.threshold is not None:
            _check_threshold(self.threshold)

    @property
    def window(self) -> Window:
        """The window, as the functions of this module take it."""
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
    """The area below a curve over a window of steps, by the trapezoid rule.

    With `normalize_steps` it is divided by the length of the window: the mean value by step,
    in the unit of the values. The trapezoid rule is exact for the straight lines between
    recorded points (Atkinson, An Introduction to Numerical Analysis, 1989, section 5.1);
    where a window ends between two points the value there is interpolated.
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
    """The mean of the last n values that were recorded within the window.

    It goes by points: runs that were logged at other intervals are averaged over other
    lengths. A window with fewer than n points is refused, since its mean would be of less.
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
    """The value at the end of the window, interpolated if the window ends between points."""
    curve = within(steps, values, **window)
    return float(curve.values[-1])


def slope(
    steps: Numbers,
    values: Numbers,
    **window: Unpack[Window],
) -> float:
    """The slope, in values per step, of the least-squares line through the recorded points.

    sum((x - mean x) (y - mean y)) / sum((x - mean x)^2): Draper and Smith, Applied Regression
    Analysis, 1998, section 1.2. Every point has the same weight, so that steps that were
    logged densely count for more.
    """
    curve = within(steps, values, **window)
    x, y = curve.steps[curve.recorded], curve.values[curve.recorded]
    if len(x) < 2:
        raise UsageError(
            f"a slope takes two points and the window has {len(x)}; give a wider window"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        # In units of the window, whose squares neither overflow nor vanish.
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
    """The first step of the window at which the curve is at the threshold, or beyond it.

    Between two points it is where the straight line crosses. A curve that never gets there
    is censored, not late: `reached` is False and `value` the last step that was looked at.
    With `falling`, beyond is below.
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
    # Halves, so that no difference of two large values overflows.
    rise = after_value / 2 - before_value / 2
    share = (threshold / 2 - before_value / 2) / rise if rise else 1.0
    before, end = (float(curve.steps[i]) for i in (after - 1, after))
    return Crossing(min(before + share * (end - before), end), True)


def summarize_curve(steps: Numbers, values: Numbers, spec: SummarySpec) -> float:
    """Reduce a curve to the number a spec asks for.

    A threshold that was never reached is infinity: it ranks behind every run that got there,
    and no mean takes it unseen. `time_to_threshold` tells when such a run ended.
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
