"""Which steps of a learning curve count.

A curve is a row of steps that grow and a finite value at each; between two recorded steps it
is the straight line, outside of them it is not known. A window is a share of the curve's own
span of steps, or bounds in steps, never both, and it must lie within the curve: a run that
ended early is refused, not stretched.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from assay._util.names import unknown_name
from assay.errors import UsageError

__all__ = [
    "Numbers",
    "PercentWindow",
    "Window",
    "Within",
    "check_window",
    "within",
]

Numbers = Sequence[float] | NDArray[np.floating[Any]] | NDArray[np.integer[Any]]
"""What steps and values are taken as."""


class PercentWindow(StrEnum):
    """Which end of a curve a share of its steps is taken from."""

    LAST = "last"
    """The steps before the end."""
    FIRST = "first"
    """The steps after the start."""


class Window(TypedDict, total=False):
    """Which steps of a curve count: `percent`, or bounds; the whole curve without either."""

    percent: float | None
    """The share of the curve's own span of steps, above 0 and at most 1."""
    percent_window: PercentWindow
    """Which end the share is taken from; the last by default."""
    step_min: float | None
    """The first step; None is the curve's own."""
    step_max: float | None
    """The last step; None is the curve's own."""


class Within(NamedTuple):
    """A curve within its window, whose ends are interpolated."""

    steps: NDArray[np.float64]
    values: NDArray[np.float64]
    recorded: NDArray[np.bool_]
    """Which of the points the run recorded; an interpolated end is not one."""


def within(
    steps: Numbers,
    values: Numbers,
    percent: float | None = None,
    percent_window: PercentWindow = PercentWindow.LAST,
    step_min: float | None = None,
    step_max: float | None = None,
) -> Within:
    """A curve within its window; the values at its ends are interpolated.

    Raises:
        UsageError: The curve or the window is not allowed, or one does not cover the other.
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
    """Refuse a window that contradicts itself, before there is a curve."""
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
