"""Lines over turns or steps in panels, tables of proportions, and bars of counts."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.instances import draw_cells, name_cells
from assay.report.figures.style import (
    INK,
    compact,
    in_style,
    interval_text,
    isolated,
    legend_in,
    listed,
    look,
    new_figure,
    new_grid,
    number,
    plain,
    shortened,
)
from assay.stats.intervals import Interval

_MOST_PANELS: Final = 8
_MOST_LINES: Final = 6


class PanelLine(NamedTuple):
    """One model's line in a panel."""

    name: str
    points: Sequence[tuple[float, Interval]]
    """Positions on the x axis, and the values there."""
    n: int


@in_style()
def line_panels(
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
        raise UsageError(f"there is nothing to draw for {title!r}")
    drawn = dict(list(panels.items())[:_MOST_PANELS])
    every = {line.name: line for lines in drawn.values() for line in lines}
    names = list(every)[:_MOST_LINES]
    head = 0.24 * -(-len(names) // 2)
    figure, top, axes = new_grid(len(drawn), 1.75, head=head, sharey=False)
    for ax, (what, lines) in zip(axes, drawn.items(), strict=True):
        for line in lines:
            if line.name not in names or not line.points:
                continue
            style = look(names.index(line.name))
            xs = [x for x, _ in line.points]
            ys = [scale * value.point for _, value in line.points]
            ax.plot(xs, ys, style.line, color=style.colour, marker=style.marker, ms=3.5, lw=1.4)
            for x, value in line.points:
                if value.known:
                    ends = [scale * value.low, scale * value.high]
                    ax.plot([x, x], ends, "-", color=style.colour, lw=1, alpha=0.5)
        ax.set_title(plain(what))
        values = [at for line in lines for _, at in line.points]
        highest = max((at.point for at in values), default=0.0)
        longest = max((at.high for at in values if at.known), default=highest)
        # The interval of a few episodes may be very long, and would flatten the rest.
        ax.set_ylim(0, max(1.06 * scale * min(2 * highest, max(highest, longest)), 1e-9))
        ax.xaxis.set_major_formatter(compact)
        ax.yaxis.set_major_formatter(compact)
    for ax in axes[-2:]:
        ax.set_xlabel(xlabel)
    for ax in axes[::2]:
        ax.set_ylabel(ylabel)
    handles = []
    for place, name in enumerate(names):
        style, label = look(place), f"{isolated(shortened(name))}  (n = {every[name].n})"
        handles += top.plot(
            [], [], style.line, color=style.colour, marker=style.marker, ms=4, label=label
        )
    legend_in(top, handles)
    said = [
        f"{what}, {shortened(line.name)}: {number(scale * line.points[0][1].point)} at the"
        f" start, {number(scale * line.points[-1][1].point)} at the end"
        for what, lines in drawn.items()
        for line in lines
        if line.points
    ]
    cut = f" The first {len(names)} of {len(every)} models." if len(every) > len(names) else ""
    return Drawing(
        plain(title),
        f"{title}. {listed(said)}.",
        f"{note}{cut}",
        figure,
        ReportTable(
            f"{ylabel}, by {xlabel}",
            ("panel", "model", "n", xlabel, ylabel),
            [
                (
                    plain(what),
                    plain(line.name),
                    str(line.n),
                    number(x),
                    interval_text(at, scale),
                )
                for what, lines in panels.items()
                for line in lines
                for x, at in line.points
            ],
        ),
    )


@in_style()
def share_matrix(
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
        raise UsageError(f"there is nothing to draw for {title!r}")
    table = np.array(shares, np.float64)
    figure, [ax] = new_figure(1.35 + 0.3 * len(lines))
    draw_cells(ax, table)
    name_cells(ax, lines, columns)
    ax.set_ylabel(names[0])
    ax.set_xlabel(names[1])
    order = np.argsort(-np.nan_to_num(table, nan=-1.0), axis=None)[:6]
    said = [
        f"{lines[place // len(columns)]} and {columns[place % len(columns)]}:"
        f" {100 * table.flat[place]:.0f} percent"
        for place in order.tolist()
    ]
    return Drawing(
        title,
        f"{title}. The highest: {listed(said)}.",
        note,
        figure,
        ReportTable(
            title,
            (names[0], *map(plain, columns)),
            [
                (plain(line), *("-" if np.isnan(x) else f"{100 * x:.0f} %" for x in row))
                for line, row in zip(lines, table, strict=True)
            ],
        ),
    )


_MOST: Final = 16


@in_style()
def turns_left(steps: Sequence[tuple[str, int]]) -> Drawing:
    """Draw the number of turns left after each filter, one bar per step."""
    if not steps or not steps[0][1]:
        raise UsageError("there is nothing to draw: there were no turns")
    return _bars(
        steps,
        title="Turns left after each filter",
        label="turns",
        head="step",
        note=f"From {steps[0][1]:,} turns in the store to {steps[-1][1]:,}.",
        total=steps[0][1],
    )


@in_style()
def first_actions(counts: Mapping[str, int], held_out: int = 0) -> Drawing:
    """Draw the number of rows whose response begins with each action."""
    if not counts:
        raise UsageError("there is nothing to draw: there are no rows")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = "" if len(ranked) <= _MOST else f"; {len(ranked) - _MOST} rarer ones are not drawn"
    held = f", {held_out:,} of them held out" if held_out else ""
    total = sum(counts.values())
    return _bars(
        [(name or "(none)", count) for name, count in ranked[:_MOST]],
        title="First action of the answers",
        label="rows",
        head="action",
        note=f"Of {total:,} rows{held}{more}.",
        total=total,
    )


def _bars(
    rows: Sequence[tuple[str, int]], *, title: str, label: str, head: str, note: str, total: int
) -> Drawing:
    figure, [ax] = new_figure(0.9 + 0.33 * len(rows))
    style, places = look(0), range(len(rows))
    counts = [count for _, count in rows]
    ax.barh(places, counts, 0.66, color=style.colour, alpha=0.75, edgecolor=INK, linewidth=0.5)
    for place, count in zip(places, counts, strict=True):
        part = count / total
        share = "<1%" if 0 < part < 0.005 else f"{part:.0%}"
        ax.text(count, place, f" {count:,} ({share})", va="center", fontsize=9)
    ax.set_yticks(places, [plain(shortened(name)) for name, _ in rows])
    ax.invert_yaxis()
    # The numbers are next to the bars, and grid lines would cross them.
    ax.grid(visible=False)
    ax.xaxis.set_major_formatter(compact)
    ax.set_xlim(0, max(counts) * 1.3)
    ax.set_xlabel(label)
    said = listed((f"{name} {count:,}" for name, count in rows), _MOST)
    table = ReportTable(title, (head, label), [(name, f"{n:,}") for name, n in rows])
    return Drawing(title, f"{title}: {said}.", note, figure, table)
