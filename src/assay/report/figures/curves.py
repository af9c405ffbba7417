"""Learning curves: the mean of several runs with its interval, and every single run.

Runs are put on common steps by straight lines between their own points, never beyond their
first and last. Where a run has ended, the mean is that of the others, and is drawn as such.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    FigureStyle,
    Values,
    capital,
    compact,
    in_style,
    interval_text,
    isolated,
    legend_above,
    listed,
    look,
    new_figure,
    number,
    plain,
    short_names,
    shortened,
    span_of,
)
from assay.stats.intervals import Interval, t_interval

__all__ = ["MeanCurve", "Run", "learning_curves", "mean_curve"]

Run: TypeAlias = tuple[Values, Values]
"""The steps of a run and its values at them."""

_Arrays: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]

_MOST_STRETCHES: Final = 200
_TABLE_LINES: Final = 10
_TOLERANCE: Final = 0.02


class MeanCurve(NamedTuple):
    """The mean of several runs on common steps; arrays have one entry per step."""

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    """NaN where fewer than two runs are there."""
    high: NDArray[np.float64]
    runs: NDArray[np.int64]
    """How many runs are there."""

    def at(self, index: int) -> Interval:
        """The mean and its interval at one of the steps."""
        return Interval(*(float(array[index]) for array in (self.mean, self.low, self.high)))


@in_style()
def learning_curves(
    groups: Mapping[str, Sequence[Run]],
    label: str,
    *,
    level: float = 0.95,
) -> Drawing:
    """The mean curve of each group with the t interval of the mean, and single runs faintly.

    The mean is a solid line where all runs of the group are there and a dotted one where
    some have ended or not begun. A cross marks the end of a run that stops more than
    2 % of the steps before the longest of its group. The y axis shows where the runs are: a
    band of very few runs may reach beyond it.

    Args:
        groups: The runs of each group as (steps, values).
        label: The metric, with its unit.
        level: Of the interval at each step; it does not hold for the whole curve at once.

    Raises:
        UsageError: No group has a run with a finite point, or the numbers of steps and values
            of a run differ.
    """
    label = shortened(label, 48)
    kept = {
        name: [run for run in map(_clean, runs) if len(run[0])] for name, runs in groups.items()
    }
    kept = {name: runs for name, runs in kept.items() if runs}
    if not kept:
        raise UsageError(f"there is nothing to draw: no run has a finite point of {label}")
    figure, [ax] = new_figure(3.4 + 0.2 * len(kept))
    curves = {name: mean_curve(runs, level=level) for name, runs in kept.items()}
    names = short_names(kept, 40)
    for index, (name, group) in enumerate(zip(names, kept, strict=True)):
        _draw_runs(ax, kept[group], look(index))
        _draw_mean(ax, curves[group], len(kept[group]), look(index), name)
    ax.set_ylim(span_of(value for runs in kept.values() for _, run in runs for value in run))
    ax.xaxis.set_major_formatter(FuncFormatter(compact))
    ax.set_xlabel("steps")
    ax.set_ylabel(shortened(label, 26))
    legend_above(ax)
    title = f"{capital(label)} over steps"
    said = [
        _said(name, curves[group], len(kept[group]))
        for name, group in zip(names, kept, strict=True)
    ]
    return Drawing(
        title,
        f"{title}. {listed(said)}.",
        f"Thick lines: means, with the t interval at about {100 * level:.4g} % at each step;"
        f" thin lines: single runs.{_ended(kept)}",
        figure,
        _table(curves, label),
    )


def mean_curve(runs: Sequence[Run], *, level: float = 0.95, points: int = 200) -> MeanCurve:
    """The mean of runs at common steps, with Student's interval at each of them.

    Args:
        runs: At least one; steps need not agree.
        level: Of the interval at each step.
        points: How many common steps at most: those of all runs, if there are no more of
            them; else evenly from the first to the last, with those at which a run begins or
            ends.

    Raises:
        UsageError: No run has a finite point.
    """
    cleaned = [run for run in map(_clean, runs) if len(run[0])]
    if not cleaned:
        raise UsageError("the mean of no runs was asked for; give one with a finite point")
    grid = np.unique(np.concatenate([steps for steps, _ in cleaned]))
    if len(grid) > points:
        ends = [end for steps, _ in cleaned for end in (steps[0], steps[-1])]
        grid = np.unique([*np.linspace(grid[0], grid[-1], points), *ends])
    values_R_G = np.array(
        [np.interp(grid, steps, values, left=np.nan, right=np.nan) for steps, values in cleaned]
    )
    there = np.isfinite(values_R_G)
    unknown = Interval(math.nan, math.nan, math.nan)
    intervals = [
        t_interval(values_R_G[there[:, i], i].tolist(), level) if there[:, i].any() else unknown
        for i in range(len(grid))
    ]
    mean, low, high = (np.array(column) for column in zip(*intervals, strict=True))
    return MeanCurve(grid, mean, low, high, there.sum(axis=0))


def _clean(run: Run) -> _Arrays:
    steps, values = (np.asarray(part, np.float64) for part in run)
    if steps.shape != values.shape or steps.ndim != 1:
        raise UsageError(
            f"a run has {steps.size} steps and {values.size} values; give one value per step"
        )
    good = np.isfinite(steps) & np.isfinite(values)
    # Of several values at one step the last counts.
    last = dict(zip(steps[good].tolist(), values[good].tolist(), strict=True))
    ordered = sorted(last)
    return np.array(ordered), np.array([last[step] for step in ordered])


def _early(runs: Sequence[Run]) -> list[bool]:
    """Which runs end well before the longest; logging alone makes small differences."""
    first = min(float(steps[0]) for steps, _ in runs)
    last = max(float(steps[-1]) for steps, _ in runs)
    return [last - float(steps[-1]) > _TOLERANCE * (last - first) for steps, _ in runs]


def _draw_runs(ax: Axes, runs: Sequence[_Arrays], style: FigureStyle) -> None:
    for (steps, values), early in zip(runs, _early(runs), strict=True):
        shown = _extremes(values)
        ax.plot(steps[shown], values[shown], "-", color=style.colour, lw=0.7, alpha=0.35)
        if early:
            ax.plot([steps[-1]], [values[-1]], "x", color=style.colour, ms=6, mew=1.6)


def _extremes(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Where the ends and the extremes of a long run are: drawn, it looks the same."""
    if len(values) <= 2 * _MOST_STRETCHES:
        return np.arange(len(values))
    parts = np.array_split(np.arange(len(values)), _MOST_STRETCHES)
    marks = [part[find(values[part])] for part in parts for find in (np.argmin, np.argmax)]
    return np.unique([0, *marks, len(values) - 1])


def _draw_mean(ax: Axes, curve: MeanCurve, runs: int, style: FigureStyle, name: str) -> None:
    ax.fill_between(curve.steps, curve.low, curve.high, color=style.colour, alpha=0.18, lw=0)
    whole = np.where(curve.runs == runs, curve.mean, np.nan)
    every = max(1, len(curve.steps) // 8)
    ax.plot(curve.steps, curve.mean, ":", color=style.colour, lw=1.4)
    ax.plot(
        curve.steps,
        whole,
        style.line,
        color=style.colour,
        lw=2.2,
        marker=style.marker,
        markevery=every,
        ms=5,
        label=f"{isolated(name)}  ({runs} run{'s' if runs != 1 else ''})",
    )


def _said(name: str, curve: MeanCurve, runs: int) -> str:
    whole = np.flatnonzero(curve.runs == runs)
    if not len(whole):
        return f"{name}: {runs} runs that have no step in common"
    last = int(whole[-1])
    return (
        f"{name}: {runs} run{'s' if runs != 1 else ''}, mean at step"
        f" {compact(float(curve.steps[last]))} {interval_text(curve.at(last))}"
    )


def _ended(groups: Mapping[str, Sequence[Run]]) -> str:
    early = sum(sum(_early(runs)) for runs in groups.values())
    if not early:
        return ""
    return (
        f" {early} run{'s end' if early != 1 else ' ends'} before the longest of the group: a"
        " cross marks the end, and dotted means are of the runs that are there."
    )


def _table(curves: Mapping[str, MeanCurve], label: str) -> ReportTable:
    cells = []
    for name, curve in curves.items():
        for i in np.unique(np.linspace(0, len(curve.steps) - 1, _TABLE_LINES).astype(int)):
            values = (number(value, 4) for value in curve.at(int(i)))
            cells.append(
                (plain(name), compact(float(curve.steps[i])), *values, str(curve.runs[i]))
            )
    return ReportTable(
        f"{label} by steps", ("group", "steps", "mean", "low", "high", "runs"), cells
    )
