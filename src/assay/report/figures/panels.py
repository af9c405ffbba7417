"""Lines over turns or steps in panels, tables of proportions, and bars of counts."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.instances import draw_cells, label_cells
from assay.report.figures.style import (
    INK,
    clean_text,
    draw_grid_legend,
    format_compact,
    format_interval,
    format_number,
    group_style,
    isolate_direction,
    join_texts,
    new_figure,
    new_grid,
    shorten_text,
    use_figure_style,
)
from assay.stats.intervals import Interval

_MAX_PANELS: Final = 8
_MAX_LINES: Final = 6


class PanelLine(NamedTuple):
    """One model's line in a panel."""

    name: str
    points: Sequence[tuple[float, Interval]]
    """Positions on the x axis, and the values there."""
    n: int


@use_figure_style()
def draw_line_panels(
    panels: Mapping[str, Sequence[PanelLine]],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    note: str,
    scale: float = 1.0,
) -> Drawing:
    """Draw a panel per key with a line for each model and bars for intervals.

    At most eight panels are drawn. Values are multiplied by `scale`, 100 for percent.
    """
    if not any(panels.values()):
        raise UsageError(f"nothing to draw for {title!r}: there are no lines")
    drawn = dict(list(panels.items())[:_MAX_PANELS])
    lines_by_name = {line.name: line for lines in drawn.values() for line in lines}
    names = list(lines_by_name)[:_MAX_LINES]
    head = 0.24 * -(-len(names) // 2)
    figure, top, axes = new_grid(len(drawn), 1.75, head=head, sharey=False)
    for ax, (panel, lines) in zip(axes, drawn.items(), strict=True):
        for line in lines:
            if line.name not in names or not line.points:
                continue
            style = group_style(names.index(line.name))
            xs = [x for x, _ in line.points]
            ys = [scale * value.point for _, value in line.points]
            ax.plot(xs, ys, style.line, color=style.colour, marker=style.marker, ms=3.5, lw=1.4)
            for x, value in line.points:
                if value.known:
                    ends = [scale * value.low, scale * value.high]
                    ax.plot([x, x], ends, "-", color=style.colour, lw=1, alpha=0.5)
        ax.set_title(clean_text(panel))
        values = [at for line in lines for _, at in line.points]
        highest = max((at.point for at in values), default=0.0)
        longest = max((at.high for at in values if at.known), default=highest)
        # The interval of a few episodes may be very long, and would flatten the rest.
        ax.set_ylim(0, max(1.06 * scale * min(2 * highest, max(highest, longest)), 1e-9))
        ax.xaxis.set_major_formatter(format_compact)
        ax.yaxis.set_major_formatter(format_compact)
    for ax in axes[-2:]:
        ax.set_xlabel(xlabel)
    for ax in axes[::2]:
        ax.set_ylabel(ylabel)
    handles = []
    for place, name in enumerate(names):
        style, label = (
            group_style(place),
            f"{isolate_direction(shorten_text(name))}  (n = {lines_by_name[name].n})",
        )
        handles += top.plot(
            [], [], style.line, color=style.colour, marker=style.marker, ms=4, label=label
        )
    draw_grid_legend(top, handles)
    descriptions = [
        f"{panel}, {shorten_text(line.name)}:"
        f" {format_number(scale * line.points[0][1].point)} at the start,"
        f" {format_number(scale * line.points[-1][1].point)} at the end"
        for panel, lines in drawn.items()
        for line in lines
        if line.points
    ]
    cut = (
        f" The first {len(names)} of {len(lines_by_name)} models."
        if len(lines_by_name) > len(names)
        else ""
    )
    return Drawing(
        clean_text(title),
        f"{title}. {join_texts(descriptions)}.",
        f"{note}{cut}",
        figure,
        ReportTable(
            f"{ylabel}, by {xlabel}",
            ("panel", "model", "n", xlabel, ylabel),
            [
                (
                    clean_text(panel),
                    clean_text(line.name),
                    str(line.n),
                    format_number(x),
                    format_interval(at, scale),
                )
                for panel, lines in panels.items()
                for line in lines
                for x, at in line.points
            ],
        ),
    )


@use_figure_style()
def draw_share_matrix(
    lines: Sequence[str],
    columns: Sequence[str],
    shares: Sequence[Sequence[float]],
    *,
    title: str,
    note: str,
    names: tuple[str, str],
) -> Drawing:
    """Draw proportions as a table of lines and columns, darker where higher.

    Values are between 0 and 1, or NaN if missing; `names` are the names of the axes.
    """
    if not lines or not columns:
        raise UsageError(f"nothing to draw for {title!r}: the table is empty")
    table = np.array(shares, np.float64)
    figure, [ax] = new_figure(1.35 + 0.3 * len(lines))
    draw_cells(ax, table)
    label_cells(ax, lines, columns)
    ax.set_ylabel(names[0])
    ax.set_xlabel(names[1])
    order = np.argsort(-np.nan_to_num(table, nan=-1.0), axis=None)[:6]
    descriptions = [
        f"{lines[place // len(columns)]} and {columns[place % len(columns)]}:"
        f" {100 * table.flat[place]:.0f} percent"
        for place in order.tolist()
    ]
    return Drawing(
        title,
        f"{title}. The highest: {join_texts(descriptions)}.",
        note,
        figure,
        ReportTable(
            title,
            (names[0], *map(clean_text, columns)),
            [
                (clean_text(line), *("-" if np.isnan(x) else f"{100 * x:.0f} %" for x in row))
                for line, row in zip(lines, table, strict=True)
            ],
        ),
    )


_MAX_BARS: Final = 16


@use_figure_style()
def draw_turns_left(steps: Sequence[tuple[str, int]]) -> Drawing:
    """Draw the number of turns left after each filter, one bar per step."""
    if not steps or not steps[0][1]:
        raise UsageError("nothing to draw: no turns")
    return _draw_bars(
        steps,
        title="Turns left after each filter",
        label="turns",
        head="step",
        note=f"From {steps[0][1]:,} turns in the database to {steps[-1][1]:,}.",
        total=steps[0][1],
    )


@use_figure_style()
def draw_first_actions(counts: Mapping[str, int], held_out: int = 0) -> Drawing:
    """Draw the number of rows whose response begins with each action."""
    if not counts:
        raise UsageError("nothing to draw: no rows")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = (
        ""
        if len(ranked) <= _MAX_BARS
        else f"; {len(ranked) - _MAX_BARS} rarer actions are not drawn"
    )
    held = f", {held_out:,} of them held out" if held_out else ""
    total = sum(counts.values())
    return _draw_bars(
        [(name or "(none)", count) for name, count in ranked[:_MAX_BARS]],
        title="First action of each response",
        label="rows",
        head="action",
        note=f"Of {total:,} rows{held}{more}.",
        total=total,
    )


def _draw_bars(
    rows: Sequence[tuple[str, int]], *, title: str, label: str, head: str, note: str, total: int
) -> Drawing:
    figure, [ax] = new_figure(0.9 + 0.33 * len(rows))
    style, places = group_style(0), range(len(rows))
    counts = [count for _, count in rows]
    ax.barh(places, counts, 0.66, color=style.colour, alpha=0.75, edgecolor=INK, linewidth=0.5)
    for place, count in zip(places, counts, strict=True):
        part = count / total
        share = "<1%" if 0 < part < 0.005 else f"{part:.0%}"
        ax.text(count, place, f" {count:,} ({share})", va="center", fontsize=9)
    ax.set_yticks(places, [clean_text(shorten_text(name)) for name, _ in rows])
    ax.invert_yaxis()
    # The numbers are next to the bars, and grid lines would cross them.
    ax.grid(visible=False)
    ax.xaxis.set_major_formatter(format_compact)
    ax.set_xlim(0, max(counts) * 1.3)
    ax.set_xlabel(label)
    descriptions = join_texts((f"{name} {count:,}" for name, count in rows), _MAX_BARS)
    table = ReportTable(title, (head, label), [(name, f"{n:,}") for name, n in rows])
    return Drawing(title, f"{title}: {descriptions}.", note, figure, table)
