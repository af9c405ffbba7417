"""Estimates with their intervals: one below the other, or by version."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from matplotlib.axes import Axes

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    GREY,
    FigureStyle,
    axis_limits,
    capitalize,
    clean_text,
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


class ForestRow(NamedTuple):
    """One line of a forest plot."""

    name: str
    interval: Interval
    note: str = ""
    """Text next to the numbers, as in "12 pairs"."""


@use_figure_style()
def draw_forest(
    rows: Sequence[ForestRow],
    label: str,
    *,
    zero_line: float | None = 0.0,
    meaning: str = "about 95 % confidence interval",
    title: str | None = None,
) -> Drawing:
    """Draw a forest plot: estimates with their intervals, and a reference line.

    Args:
        rows: Rows from top to bottom. An unknown interval is drawn as an open point, an
            infinite bound as an arrow.
        label: The estimated quantity, with its unit.
        zero_line: Position of "no difference"; None draws no line.
        meaning: Description of the bars.
        title: Title above the figure; derived from `label` by default.
    """
    label = shorten_text(label, 48)
    if not any(math.isfinite(row.interval.point) for row in rows):
        raise UsageError(f"nothing to draw: no finite estimate of {label}")
    figure, [ax] = new_figure(0.9 + 0.42 * len(rows))
    if zero_line is not None:
        ax.axvline(zero_line, color=GREY, linestyle="--", linewidth=1.2)
    bounds = [bound for row in rows for bound in row.interval]
    span = axis_limits(bounds if zero_line is None else [*bounds, zero_line])
    for place, row in enumerate(rows):
        draw_interval(ax, row.interval, place, group_style(0), span=span)
    _label_rows(ax, rows)
    ax.set_xlim(*span)
    ax.set_xlabel(shorten_text(label, 40))
    title = clean_text(title) if title else capitalize(label)
    descriptions = [
        f"{shorten_text(row.name)}: {format_interval(row.interval)}" for row in rows
    ]
    line = "" if zero_line is None else f" Dashed line: {format_number(zero_line)}."
    known = all(row.interval.known for row in rows)
    unknown = "" if known else " An open point has no interval."
    return Drawing(
        title,
        f"{title}; bars: {meaning}. {join_texts(descriptions)}.",
        f"Points: estimates; bars: {meaning}.{unknown}{line}",
        figure,
        _build_table(rows, label),
    )


def draw_interval(
    ax: Axes,
    interval: Interval,
    place: float,
    style: FigureStyle,
    *,
    span: tuple[float, float],
    upright: bool = False,
) -> None:
    """Draw a point with its interval as a bar.

    Args:
        ax: The axes to draw on.
        interval: An infinite bound ends in an arrow at the end of `span`; unknown bounds
            leave an open point.
        place: Position on the other axis.
        style: Colour and marker.
        span: The limits of the value axis.
        upright: Whether the values are on the y axis.
    """
    if not math.isfinite(interval.point):
        return

    def plot(values: Sequence[float], form: str, **options: object) -> None:
        places = [place] * len(values)
        x, y = (places, values) if upright else (values, places)
        ax.plot(x, y, form, color=style.colour, **options)  # type: ignore[arg-type]

    if interval.known:
        low, high = max(interval.low, span[0]), min(interval.high, span[1])
        plot([low, high], "-", linewidth=2, solid_capstyle="butt")
        arrows, cap = (("v", "^"), "_") if upright else (("<", ">"), "|")
        for bound, end, arrow in zip(interval[1:], (low, high), arrows, strict=True):
            plot([end], arrow if math.isinf(bound) else cap, ms=7, clip_on=False)
    fill = style.colour if interval.known else "white"
    plot([interval.point], style.marker, ms=7, mfc=fill, zorder=4)


def _label_rows(ax: Axes, rows: Sequence[ForestRow]) -> None:
    ax.set_yticks(range(len(rows)), shorten_names(row.name for row in rows))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    right = ax.twinx()
    texts = [
        format_interval(row.interval) + (f"\n{shorten_text(row.note)}" if row.note else "")
        for row in rows
    ]
    right.set_yticks(range(len(rows)), texts)
    right.set_ylim(ax.get_ylim())
    right.tick_params(axis="y", length=0)
    right.grid(visible=False)


def _build_table(rows: Sequence[ForestRow], label: str) -> ReportTable:
    cells = [
        (
            clean_text(row.name),
            *(format_number(value, 4) for value in row.interval),
            clean_text(row.note),
        )
        for row in rows
    ]
    return ReportTable(label, ("name", "estimate", "low", "high", "note"), cells)


_MAX_NAMED: Final = 24


class VersionRow(NamedTuple):
    """Result of one version."""

    version: str
    interval: Interval
    n: int
    note: str = ""
    """Note for the table, such as the changes."""


@use_figure_style()
def draw_versions_over_time(
    rows: Sequence[VersionRow],
    label: str,
    *,
    meaning: str = "about 95 % confidence interval",
) -> Drawing:
    """Draw the metric of each version with its interval, oldest first.

    A version without an estimate leaves a gap.
    """
    label = shorten_text(label, 48)
    points = [row.interval.point for row in rows]
    if not any(map(math.isfinite, points)):
        raise UsageError(f"nothing to draw: no version has a finite {label}")
    crowded = len(rows) > 6 or any(len(row.version) > 10 for row in rows)
    figure, [ax] = new_figure(4.2 if crowded else 3.4)
    ax.plot(range(len(rows)), points, "-", color=GREY, lw=1, zorder=1)
    span = axis_limits(bound for row in rows for bound in row.interval)
    for place, row in enumerate(rows):
        draw_interval(ax, row.interval, place, group_style(0), span=span, upright=True)
    _label_versions(ax, rows, crowded)
    ax.set_xlim(-0.5, len(rows) - 0.5)
    ax.set_ylim(*span)
    ax.grid(axis="x", visible=False)
    ax.set_xlabel("version")
    ax.set_ylabel(shorten_text(label, 26))
    title = f"{capitalize(label)} by version"
    descriptions = [
        f"{shorten_text(row.version)}: {format_interval(row.interval)}, n = {row.n}"
        for row in rows
    ]
    cells = [
        (
            clean_text(row.version),
            str(row.n),
            *(format_number(x, 4) for x in row.interval),
            clean_text(row.note),
        )
        for row in rows
    ]
    return Drawing(
        title,
        f"{title}; bars: {meaning}. {join_texts(descriptions)}.",
        f"Points: estimates; bars: {meaning}; n: trials. An open point has no interval.",
        figure,
        ReportTable(
            f"{label} by version", ("version", "n", "mean", "low", "high", "note"), cells
        ),
    )


def _label_versions(ax: Axes, rows: Sequence[VersionRow], crowded: bool) -> None:
    names = shorten_names((row.version for row in rows), 18)
    ticks = [
        f"{isolate_direction(name)}{'  ' if crowded else chr(10)}n = {row.n}"
        for name, row in zip(names, rows, strict=True)
    ]
    # More names would overlap; the table has all of them.
    every = math.ceil(len(rows) / _MAX_NAMED)
    ax.set_xticks(range(0, len(rows), every), ticks[::every])
    if crowded:
        for tick in ax.get_xticklabels():
            tick.set(rotation=40, ha="right", rotation_mode="anchor")
