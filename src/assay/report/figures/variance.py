"""How many runs are enough: the relative standard error beside the plain rule."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    GREY,
    INK,
    in_style,
    isolated,
    legend_above,
    listed,
    look,
    new_figure,
    number,
    plain,
    shortened,
)

__all__ = ["PrecisionPoint", "VariancePanel", "variance_panels"]


class PrecisionPoint(NamedTuple):
    """The standard error of the mean of n runs, as a share of the mean."""

    n: int
    error: float
    low: float = math.nan
    """The bounds that come from the uncertainty of the standard deviation."""
    high: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePanel:
    """One summary of the curves, such as the area under them."""

    name: str
    precision: Sequence[PrecisionPoint]
    """By n, from the standard deviation and the mean of all runs."""
    rule: Sequence[tuple[int, float]]
    """The coefficient of variation of the first n runs, as a share, by n."""
    rule_n: int | None
    """The first n at which it is below the threshold; None: at none."""
    needed: int | None
    """The n at which the standard error is below the threshold; None: not known."""
    needed_low: int | None = None
    needed_high: int | None = None


@in_style()
def variance_panels(
    panels: Sequence[VariancePanel],
    *,
    threshold: float,
    runs: int,
    metric: str = "",
) -> Drawing:
    """A panel per summary: what more runs do to the error of the mean.

    Shares are drawn in percent. The y axis ends at four times the threshold or at the
    highest estimate, so that a wide band does not flatten the rest. An answer beyond the last
    n of the panel is in the legend only.

    Args:
        panels: As a rule two, for the area under the curve and for the slope.
        threshold: What the relative error is to stay below, as a share.
        runs: How many runs there are.
        metric: The metric of the curves.

    Raises:
        UsageError: There is no panel, or one has neither errors nor coefficients.
    """
    if not panels or any(not panel.precision and not panel.rule for panel in panels):
        raise UsageError(
            "there is nothing to draw: a summary has no error at any number of runs"
        )
    figure, axes = new_figure(3.35 * len(panels), len(panels))
    for ax, panel in zip(axes, panels, strict=True):
        _panel(ax, panel, threshold)
    axes[-1].set_xlabel("number of runs")
    counts = [n for panel in panels for n, *_ in (*panel.precision, *panel.rule)]
    axes[-1].set_xlim(min(counts) - 0.5, max(counts) + 0.5)
    axes[-1].xaxis.set_major_locator(MaxNLocator(10, integer=True))
    of = f" of {shortened(metric, 40)}" if metric else ""
    title = f"Precision{of} by number of runs"
    return Drawing(
        title,
        f"{title}, from {runs} runs, threshold {_percent(threshold)}."
        f" {listed(_said(panel, runs) for panel in panels)}.",
        f"Solid line: standard error of the mean in percent of the mean, from the spread of all"
        f" {runs} runs; band: its interval at about 95 %, as the spread itself is"
        " uncertain. Squares: coefficient of variation of the first n runs, which does not"
        " shrink with n.",
        figure,
        _table(panels),
    )


def _panel(ax: Axes, panel: VariancePanel, threshold: float) -> None:
    right, plain_rule = look(0), look(1)
    n, error, low, high = (np.array(column, float) for column in _columns(panel.precision))
    ax.fill_between(n, 100 * low, 100 * high, color=right.colour, alpha=0.18, lw=0)
    ax.plot(n, 100 * error, "-", color=right.colour, lw=2.2, label="relative standard error")
    places = [place for place, _ in panel.rule]
    shares = [100 * share if math.isfinite(share) else math.nan for _, share in panel.rule]
    ax.plot(
        places, shares, "--s", color=plain_rule.colour, ms=4, lw=1.1, label=_rule_words(panel)
    )
    ax.axhline(
        100 * threshold, color=GREY, ls=":", lw=1.6, label=f"threshold {_percent(threshold)}"
    )
    last = max([*n, *places])
    if panel.needed is not None and panel.needed <= last:
        ax.axvline(panel.needed, color=INK, ls="-.", lw=1.4, label=_needed_words(panel))
    else:
        ax.plot([], [], " ", label=_needed_words(panel))
    known = [value for value in (*(100 * error), *shares) if math.isfinite(value)]
    ax.set_ylim(0, 1.08 * max([400 * threshold, *known]))
    ax.set_ylabel(f"{isolated(shortened(panel.name))}:\nerror (% of the mean)")
    ax.tick_params(labelbottom=True)
    legend_above(ax, 2)


def _columns(points: Sequence[PrecisionPoint]) -> Sequence[Sequence[float]]:
    finite = [
        [value if math.isfinite(value) else math.nan for value in point] for point in points
    ]
    return list(zip(*finite, strict=True)) if finite else [[], [], [], []]


def _rule_words(panel: VariancePanel) -> str:
    first = "never below" if panel.rule_n is None else f"N = {panel.rule_n}"
    return f"plain rule: {first}"


def _needed_words(panel: VariancePanel) -> str:
    if panel.needed is None:
        return "N needed: not known"
    span = ""
    if panel.needed_low is not None or panel.needed_high is not None:
        ends = (
            "?" if end is None else str(end) for end in (panel.needed_low, panel.needed_high)
        )
        span = f" ({' to '.join(ends)})"
    return f"N needed = {panel.needed}{span}"


def _said(panel: VariancePanel, runs: int) -> str:
    last = next((point for point in panel.precision if point.n == runs), None)
    now = (
        ""
        if last is None
        else f"relative standard error {_percent(last.error)} at {last.n} runs; "
    )
    return f"{shortened(panel.name)}: {now}{_needed_words(panel)}, {_rule_words(panel)}"


def _percent(share: float) -> str:
    return "not known" if not math.isfinite(share) else f"{number(100 * share)} %"


def _table(panels: Sequence[VariancePanel]) -> ReportTable:
    cells = []
    for panel in panels:
        rule = dict(panel.rule)
        for point in panel.precision:
            shares = (point.error, point.low, point.high, rule.get(point.n, math.nan))
            cells.append((plain(panel.name), str(point.n), *map(_percent, shares)))
    head = (
        "summary",
        "runs",
        "relative standard error",
        "low",
        "high",
        "coefficient of variation",
    )
    return ReportTable("relative error by number of runs", head, cells)
