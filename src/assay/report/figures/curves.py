"""Learning curves: the mean of several runs with its interval, and every single run.

Runs are interpolated linearly to common steps, never beyond their first and last. After a run
has ended, the mean is over the remaining runs, and its line changes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    GREY,
    INK,
    FigureStyle,
    Values,
    axis_limits,
    capitalize,
    clean_text,
    draw_legend_above,
    format_compact,
    format_interval,
    format_number,
    group_style,
    isolate_direction,
    join_texts,
    new_figure,
    shorten_names,
    shorten_text,
    use_figure_style,
)
from assay.stats.intervals import Interval, t_interval

Run: TypeAlias = tuple[Values, Values]
"""Steps of a run and the values at them."""

_Arrays: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]

_MAX_SEGMENTS: Final = 200
_TABLE_LINES: Final = 10
_TOLERANCE: Final = 0.02


class MeanCurve(NamedTuple):
    """Mean of several runs at common steps; arrays have one entry per step."""

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    """NaN at steps with fewer than two runs."""
    high: NDArray[np.float64]
    runs: NDArray[np.int64]
    """Number of runs that cover each step."""

    def at(self, index: int) -> Interval:
        """Return the mean and its interval at one of the steps."""
        return Interval(*(float(array[index]) for array in (self.mean, self.low, self.high)))


@use_figure_style()
def draw_learning_curves(
    groups: Mapping[str, Sequence[Run]],
    label: str,
    *,
    level: float = 0.95,
) -> Drawing:
    """Draw the mean curve of each group with its t interval, and single runs faintly.

    The mean is a solid line where all runs of the group are present, and dotted where some have
    ended or not begun. A cross marks the end of a run that stops more than 2 % of the steps
    before the longest of its group. The y axis shows the range of the runs: a band of very few
    runs may exceed it.

    Args:
        groups: The runs of each group as (steps, values).
        label: The metric, with its unit.
        level: Level of the interval at each step; it is not simultaneous over the curve.

    Raises:
        UsageError: No group has a run with a finite point, or the numbers of steps and values
            of a run differ.
    """
    label = shorten_text(label, 48)
    kept = {
        name: [run for run in map(_clean_run, runs) if len(run[0])]
        for name, runs in groups.items()
    }
    kept = {name: runs for name, runs in kept.items() if runs}
    if not kept:
        raise UsageError(f"nothing to draw: no run has a finite value of {label}")
    figure, [ax] = new_figure(3.4 + 0.2 * len(kept))
    curves = {name: mean_curve(runs, level=level) for name, runs in kept.items()}
    names = shorten_names(kept, 40)
    for index, (name, group) in enumerate(zip(names, kept, strict=True)):
        _draw_runs(ax, kept[group], group_style(index))
        _draw_mean(ax, curves[group], len(kept[group]), group_style(index), name)
    ax.set_ylim(
        axis_limits(value for runs in kept.values() for _, run in runs for value in run)
    )
    ax.xaxis.set_major_formatter(FuncFormatter(format_compact))
    ax.set_xlabel("steps")
    ax.set_ylabel(shorten_text(label, 26))
    draw_legend_above(ax)
    title = f"{capitalize(label)} over steps"
    descriptions = [
        _describe_curve(name, curves[group], len(kept[group]))
        for name, group in zip(names, kept, strict=True)
    ]
    return Drawing(
        title,
        f"{title}. {join_texts(descriptions)}.",
        f"Thick lines: means, with the t interval at about {100 * level:.4g} % at each step;"
        f" thin lines: single runs.{_describe_early_ends(kept)}",
        figure,
        _build_curve_table(curves, label),
    )


def mean_curve(runs: Sequence[Run], *, level: float = 0.95, points: int = 200) -> MeanCurve:
    """Return the mean of runs at common steps, with a t interval at each.

    Args:
        runs: At least one; their steps may differ.
        level: Level of the interval at each step.
        points: Maximum number of common steps. If the runs have more steps, they are replaced
            by evenly spaced ones plus the first and last step of each run.

    Raises:
        UsageError: No run has a finite point.
    """
    cleaned = [run for run in map(_clean_run, runs) if len(run[0])]
    if not cleaned:
        raise UsageError("no run has a finite value; give at least one")
    grid = np.unique(np.concatenate([steps for steps, _ in cleaned]))
    if len(grid) > points:
        ends = [end for steps, _ in cleaned for end in (steps[0], steps[-1])]
        grid = np.unique([*np.linspace(grid[0], grid[-1], points), *ends])
    values_R_G = np.array(
        [np.interp(grid, steps, values, left=np.nan, right=np.nan) for steps, values in cleaned]
    )
    is_present = np.isfinite(values_R_G)
    unknown = Interval(math.nan, math.nan, math.nan)
    intervals = [
        t_interval(values_R_G[is_present[:, i], i].tolist(), level)
        if is_present[:, i].any()
        else unknown
        for i in range(len(grid))
    ]
    mean, low, high = (np.array(column) for column in zip(*intervals, strict=True))
    return MeanCurve(grid, mean, low, high, is_present.sum(axis=0))


def _clean_run(run: Run) -> _Arrays:
    steps, values = (np.asarray(part, np.float64) for part in run)
    if steps.shape != values.shape or steps.ndim != 1:
        raise UsageError(
            f"a run has {steps.size} steps and {values.size} values; give one value per step"
        )
    good = np.isfinite(steps) & np.isfinite(values)
    # If a step has several values, the last one counts.
    last = dict(zip(steps[good].tolist(), values[good].tolist(), strict=True))
    ordered = sorted(last)
    return np.array(ordered), np.array([last[step] for step in ordered])


def _find_early_ends(runs: Sequence[Run]) -> list[bool]:
    """Return which runs end well before the longest; logging causes small differences."""
    first = min(float(steps[0]) for steps, _ in runs)
    last = max(float(steps[-1]) for steps, _ in runs)
    return [last - float(steps[-1]) > _TOLERANCE * (last - first) for steps, _ in runs]


def _draw_runs(ax: Axes, runs: Sequence[_Arrays], style: FigureStyle) -> None:
    for (steps, values), early in zip(runs, _find_early_ends(runs), strict=True):
        shown = _find_extremes(values)
        ax.plot(steps[shown], values[shown], "-", color=style.colour, lw=0.7, alpha=0.35)
        if early:
            ax.plot([steps[-1]], [values[-1]], "x", color=style.colour, ms=6, mew=1.6)


def _find_extremes(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the indices of the ends and extremes of a long run, which preserve its look."""
    if len(values) <= 2 * _MAX_SEGMENTS:
        return np.arange(len(values))
    parts = np.array_split(np.arange(len(values)), _MAX_SEGMENTS)
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
        label=f"{isolate_direction(name)}  ({runs} run{'s' if runs != 1 else ''})",
    )


def _describe_curve(name: str, curve: MeanCurve, runs: int) -> str:
    whole = np.flatnonzero(curve.runs == runs)
    if not len(whole):
        return f"{name}: {runs} runs without a common step"
    last = int(whole[-1])
    return (
        f"{name}: {runs} run{'s' if runs != 1 else ''}, mean at step"
        f" {format_compact(float(curve.steps[last]))} {format_interval(curve.at(last))}"
    )


def _describe_early_ends(groups: Mapping[str, Sequence[Run]]) -> str:
    early = sum(sum(_find_early_ends(runs)) for runs in groups.values())
    if not early:
        return ""
    return (
        f" {early} run{'s end' if early != 1 else ' ends'} before the longest of the group: a"
        " cross marks the end, and a dotted mean is over the remaining runs."
    )


def _build_curve_table(curves: Mapping[str, MeanCurve], label: str) -> ReportTable:
    cells = []
    for name, curve in curves.items():
        for i in np.unique(np.linspace(0, len(curve.steps) - 1, _TABLE_LINES).astype(int)):
            values = (format_number(value, 4) for value in curve.at(int(i)))
            cells.append(
                (
                    clean_text(name),
                    format_compact(float(curve.steps[i])),
                    *values,
                    str(curve.runs[i]),
                )
            )
    return ReportTable(
        f"{label} by steps", ("group", "steps", "mean", "low", "high", "runs"), cells
    )


class PrecisionPoint(NamedTuple):
    """Standard error of the mean of n runs, relative to the mean."""

    n: int
    error: float
    low: float = math.nan
    """Bounds due to the uncertainty of the standard deviation."""
    high: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePanel:
    """One summary of the curves, such as the area under them."""

    name: str
    precision: Sequence[PrecisionPoint]
    """By n, from the standard deviation and the mean of all runs."""
    rule: Sequence[tuple[int, float]]
    """Coefficient of variation of the first n runs, as a fraction, by n."""
    rule_n: int | None
    """The first n at which the coefficient is below the threshold; None if there is none."""
    needed: int | None
    """The n at which the standard error is below the threshold; None if unknown."""
    needed_low: int | None = None
    needed_high: int | None = None


@use_figure_style()
def draw_variance_panels(
    panels: Sequence[VariancePanel],
    *,
    threshold: float,
    runs: int,
    metric: str = "",
) -> Drawing:
    """Draw one panel per summary: the error of the mean by number of runs.

    Fractions are drawn in percent. The y axis ends at four times the threshold or at the
    highest estimate, so that a wide band does not flatten the rest. A result beyond the last n
    of the panel is in the legend only.

    Args:
        panels: Usually two, for the area under the curve and for the slope.
        threshold: Upper limit for the relative error, as a fraction.
        runs: Number of runs.
        metric: The metric of the curves.

    Raises:
        UsageError: No panel is given, or one has neither errors nor coefficients.
    """
    if not panels or any(not panel.precision and not panel.rule for panel in panels):
        raise UsageError(
            "nothing to draw: a summary has no standard error for any number of runs"
        )
    figure, axes = new_figure(3.35 * len(panels), len(panels))
    for ax, panel in zip(axes, panels, strict=True):
        _draw_panel(ax, panel, threshold)
    axes[-1].set_xlabel("number of runs")
    counts = [n for panel in panels for n, *_ in (*panel.precision, *panel.rule)]
    axes[-1].set_xlim(min(counts) - 0.5, max(counts) + 0.5)
    axes[-1].xaxis.set_major_locator(MaxNLocator(10, integer=True))
    of = f" of {shorten_text(metric, 40)}" if metric else ""
    title = f"Precision{of} by number of runs"
    return Drawing(
        title,
        f"{title}, from {runs} runs, threshold {_format_percent(threshold)}."
        f" {join_texts(_describe_panel(panel, runs) for panel in panels)}.",
        f"Solid line: standard error of the mean in percent of the mean, from the spread of all"
        f" {runs} runs; band: its interval at about 95 %, due to the uncertainty of the spread."
        " Squares: coefficient of variation of the first n runs, which does not decrease with"
        " n.",
        figure,
        _build_variance_table(panels),
    )


def _draw_panel(ax: Axes, panel: VariancePanel, threshold: float) -> None:
    right, plain_rule = group_style(0), group_style(1)
    n, error, low, high = (
        np.array(column, float) for column in _finite_columns(panel.precision)
    )
    ax.fill_between(n, 100 * low, 100 * high, color=right.colour, alpha=0.18, lw=0)
    ax.plot(n, 100 * error, "-", color=right.colour, lw=2.2, label="relative standard error")
    places = [place for place, _ in panel.rule]
    shares = [100 * share if math.isfinite(share) else math.nan for _, share in panel.rule]
    ax.plot(
        places,
        shares,
        "--s",
        color=plain_rule.colour,
        ms=4,
        lw=1.1,
        label=_describe_rule(panel),
    )
    ax.axhline(
        100 * threshold,
        color=GREY,
        ls=":",
        lw=1.6,
        label=f"threshold {_format_percent(threshold)}",
    )
    last = max([*n, *places])
    if panel.needed is not None and panel.needed <= last:
        ax.axvline(panel.needed, color=INK, ls="-.", lw=1.4, label=_describe_needed(panel))
    else:
        ax.plot([], [], " ", label=_describe_needed(panel))
    known = [value for value in (*(100 * error), *shares) if math.isfinite(value)]
    ax.set_ylim(0, 1.08 * max([400 * threshold, *known]))
    ax.set_ylabel(f"{isolate_direction(shorten_text(panel.name))}:\nerror (% of the mean)")
    ax.tick_params(labelbottom=True)
    draw_legend_above(ax, 2)


def _finite_columns(points: Sequence[PrecisionPoint]) -> Sequence[Sequence[float]]:
    finite = [
        [value if math.isfinite(value) else math.nan for value in point] for point in points
    ]
    return list(zip(*finite, strict=True)) if finite else [[], [], [], []]


def _describe_rule(panel: VariancePanel) -> str:
    first = "never below" if panel.rule_n is None else f"N = {panel.rule_n}"
    return f"plain rule: {first}"


def _describe_needed(panel: VariancePanel) -> str:
    if panel.needed is None:
        return "N needed: unknown"
    span = ""
    if panel.needed_low is not None or panel.needed_high is not None:
        ends = (
            "?" if end is None else str(end) for end in (panel.needed_low, panel.needed_high)
        )
        span = f" ({' to '.join(ends)})"
    return f"N needed = {panel.needed}{span}"


def _describe_panel(panel: VariancePanel, runs: int) -> str:
    last = next((point for point in panel.precision if point.n == runs), None)
    now = (
        ""
        if last is None
        else f"relative standard error {_format_percent(last.error)} at {last.n} runs; "
    )
    return (
        f"{shorten_text(panel.name)}: {now}{_describe_needed(panel)}, {_describe_rule(panel)}"
    )


def _format_percent(share: float) -> str:
    return "unknown" if not math.isfinite(share) else f"{format_number(100 * share)} %"


def _build_variance_table(panels: Sequence[VariancePanel]) -> ReportTable:
    cells = []
    for panel in panels:
        rule = dict(panel.rule)
        for point in panel.precision:
            shares = (point.error, point.low, point.high, rule.get(point.n, math.nan))
            cells.append((clean_text(panel.name), str(point.n), *map(_format_percent, shares)))
    head = (
        "summary",
        "runs",
        "relative standard error",
        "low",
        "high",
        "coefficient of variation",
    )
    return ReportTable("relative error by number of runs", head, cells)
