"""Figure of quality against cost."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.intervals import draw_interval
from assay.report.figures.style import (
    GREY,
    FigureStyle,
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
from assay.stats.intervals import Interval

_COMPACT_FROM = 10_000
"""From this value on, costs (then in tokens) are written as 10k."""


class CostPoint(NamedTuple):
    """Mean cost of a trial and quality of one subject."""

    name: str
    cost: Interval | None
    """None if not recorded: the subject is then listed below the figure."""
    quality: Interval
    n: int | None = None


@use_figure_style()
def draw_cost_quality(
    points: Sequence[CostPoint],
    quality_label: str,
    *,
    cost_label: str = "cost per trial ($)",
    higher_is_better: bool = True,
    meaning: str = "about 95 % confidence intervals",
    title: str | None = None,
) -> Drawing:
    """Draw quality against cost, with a line through the Pareto front.

    The cost axis is logarithmic if all costs are positive and differ by a factor above 20.
    `meaning` describes the bars.
    """
    quality_label, cost_label = shorten_text(quality_label, 48), shorten_text(cost_label, 48)
    drawn = [
        (point, point.cost)
        for point in points
        if point.cost is not None
        and math.isfinite(point.cost.point)
        and math.isfinite(point.quality.point)
    ]
    if not drawn:
        raise UsageError(f"nothing to draw: no entry has both a cost and a {quality_label}")
    figure, [ax] = new_figure(3.4 + 0.2 * len(drawn))
    logarithmic = _scale_cost_axis(ax, [cost.point for _, cost in drawn])
    best = _find_pareto_front(
        [(cost.point, point.quality.point) for point, cost in drawn], higher_is_better
    )
    if len(best) > 1:
        ax.plot(
            *zip(*best, strict=True),
            ":",
            color=GREY,
            lw=1.4,
            label="Pareto front",
        )
    names = shorten_names((point.name for point, _ in drawn), 40)
    for (point, cost), name in zip(drawn, names, strict=True):
        # Styled by position among all points, so that a model looks the same in every figure.
        style = group_style(points.index(point))
        _draw_cross(ax, cost, point.quality, style, logarithmic)
        n = "" if point.n is None else f"  (n = {point.n})"
        ax.plot([], [], style.marker, color=style.colour, label=f"{isolate_direction(name)}{n}")
    ax.set_xlabel(shorten_text(cost_label, 40))
    ax.set_ylabel(shorten_text(quality_label, 26))
    draw_legend_above(ax)
    title = clean_text(title) if title else f"{capitalize(quality_label)} against cost"
    return Drawing(
        title,
        f"{title}. {join_texts(map(_describe_point, points))}.",
        f"Bars: {meaning}.{' The cost axis is logarithmic.' if logarithmic else ''}"
        f"{_list_unpriced(points)}",
        figure,
        _build_table(points, quality_label, cost_label),
    )


def _scale_cost_axis(ax: Axes, costs: Sequence[float]) -> bool:
    logarithmic = min(costs) > 0 and max(costs) > 20 * min(costs)
    if logarithmic:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(10, (1, 3)))
        ax.xaxis.set_major_formatter(FuncFormatter(_format_tick))
        ax.xaxis.set_minor_formatter(NullFormatter())
    elif max(costs) == min(costs) == 0:
        ax.set_xlim(-0.05, 1)
    elif max(costs) >= _COMPACT_FROM:
        ax.xaxis.set_major_formatter(format_compact)
    return logarithmic


def _format_tick(value: float, _position: object) -> str:
    return f"{value:g}"


def _draw_cross(
    ax: Axes, cost: Interval, quality: Interval, style: FigureStyle, logarithmic: bool
) -> None:
    everywhere = (-math.inf, math.inf)
    x, y = cost.point, quality.point
    if quality.known and all(map(math.isfinite, quality)):
        draw_interval(ax, quality, x, style, span=everywhere, upright=True)
    low = cost.point if logarithmic and cost.low <= 0 else cost.low
    if cost.known and all(map(math.isfinite, cost)):
        draw_interval(ax, Interval(x, low, cost.high), y, style, span=everywhere)
    known = quality.known
    ax.plot(
        [x], [y], style.marker, ms=9, color=style.colour, mfc=style.colour if known else "white"
    )


def _find_pareto_front(
    points: Sequence[tuple[float, float]], higher_is_better: bool
) -> list[tuple[float, float]]:
    sign = 1 if higher_is_better else -1
    front: list[tuple[float, float]] = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if not front or sign * quality > sign * front[-1][1]:
            front.append((cost, quality))
    return front


def _describe_point(point: CostPoint) -> str:
    cost = "not recorded" if point.cost is None else format_interval(point.cost)
    return f"{shorten_text(point.name)}: quality {format_interval(point.quality)}, cost {cost}"


def _list_unpriced(points: Sequence[CostPoint]) -> str:
    names = [
        name
        for name, point in zip(shorten_names(p.name for p in points), points, strict=True)
        if point.cost is None
    ]
    return f" Without a recorded cost: {join_texts(names)}." if names else ""


def _build_table(
    points: Sequence[CostPoint], quality_label: str, cost_label: str
) -> ReportTable:
    unknown = Interval(math.nan, math.nan, math.nan)
    cells = [
        (
            clean_text(point.name),
            "-" if point.n is None else str(point.n),
            *(format_number(value, 4) for value in (*(point.cost or unknown), *point.quality)),
        )
        for point in points
    ]
    head = ("name", "n", cost_label, "low", "high", quality_label, "low", "high")
    return ReportTable(f"{quality_label} and {cost_label}", head, cells)
