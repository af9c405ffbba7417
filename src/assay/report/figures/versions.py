"""A metric from version to version of a series."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from matplotlib.axes import Axes

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.intervals import draw_interval
from assay.report.figures.style import (
    GREY,
    capital,
    in_style,
    interval_text,
    isolated,
    listed,
    look,
    new_figure,
    number,
    plain,
    short_names,
    shortened,
    span_of,
)
from assay.stats.intervals import Interval

__all__ = ["VersionRow", "versions_over_time"]

_MOST_NAMED: Final = 24


class VersionRow(NamedTuple):
    """What one version earned."""

    version: str
    interval: Interval
    n: int
    note: str = ""
    """For the table, as what changed."""


@in_style()
def versions_over_time(
    rows: Sequence[VersionRow],
    label: str,
    *,
    meaning: str = "about 95 % confidence interval",
) -> Drawing:
    """The metric of each version with its interval, oldest first.

    Args:
        rows: In the order of time; a version without an estimate has a gap.
        label: The metric, with its unit.
        meaning: What the bars are.

    Raises:
        UsageError: No version has a finite estimate.
    """
    label = shortened(label, 48)
    points = [row.interval.point for row in rows]
    if not any(map(math.isfinite, points)):
        raise UsageError(f"there is nothing to draw: no version has a finite {label}")
    crowded = len(rows) > 6 or any(len(row.version) > 10 for row in rows)
    figure, [ax] = new_figure(4.2 if crowded else 3.4)
    ax.plot(range(len(rows)), points, "-", color=GREY, lw=1, zorder=1)
    span = span_of(bound for row in rows for bound in row.interval)
    for place, row in enumerate(rows):
        draw_interval(ax, row.interval, place, look(0), span=span, upright=True)
    _name_versions(ax, rows, crowded)
    ax.set_xlim(-0.5, len(rows) - 0.5)
    ax.set_ylim(*span)
    ax.grid(axis="x", visible=False)
    ax.set_xlabel("version")
    ax.set_ylabel(shortened(label, 26))
    title = f"{capital(label)} by version"
    said = [
        f"{shortened(row.version)}: {interval_text(row.interval)}, n = {row.n}" for row in rows
    ]
    cells = [
        (plain(row.version), str(row.n), *(number(x, 4) for x in row.interval), plain(row.note))
        for row in rows
    ]
    return Drawing(
        title,
        f"{title}; bars: {meaning}. {listed(said)}.",
        f"Points: estimates; bars: {meaning}; n: trials. An open point has no interval.",
        figure,
        ReportTable(
            f"{label} by version", ("version", "n", "mean", "low", "high", "note"), cells
        ),
    )


def _name_versions(ax: Axes, rows: Sequence[VersionRow], crowded: bool) -> None:
    names = short_names((row.version for row in rows), 18)
    ticks = [
        f"{isolated(name)}{'  ' if crowded else chr(10)}n = {row.n}"
        for name, row in zip(names, rows, strict=True)
    ]
    # More would run into each other; the table has all.
    every = math.ceil(len(rows) / _MOST_NAMED)
    ax.set_xticks(range(0, len(rows), every), ticks[::every])
    if crowded:
        for tick in ax.get_xticklabels():
            tick.set(rotation=40, ha="right", rotation_mode="anchor")
