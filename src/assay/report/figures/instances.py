"""Figures of results by task: success rates as bars or cells, and times to success."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    GREY,
    INK,
    FigureStyle,
    clean_text,
    draw_legend_above,
    format_interval,
    format_number,
    group_style,
    isolate_direction,
    join_texts,
    new_figure,
    shorten_names,
    shorten_text,
    thin_values,
    use_figure_style,
)
from assay.stats.intervals import Interval

_LABEL_CHARACTERS: Final = 54
"""Number of characters that fit side by side below the columns."""
_MAX_UPRIGHT_NAMES: Final = 3


def draw_cells(
    ax: Axes, shares: NDArray[np.float64], counts: NDArray[np.int64] | None = None
) -> None:
    """Draw proportions between 0 and 1 as cells, with counts below them.

    Both arrays have the shape (lines, columns). NaN is an empty, hatched cell.
    """
    lines, columns = shares.shape
    for line in range(lines):
        for column in range(columns):
            n = None if counts is None else int(counts[line, column])
            _draw_cell(ax, line, column, float(shares[line, column]), n)
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_ylim(lines - 0.5, -0.5)
    ax.grid(visible=False)
    ax.tick_params(length=0)


def label_cells(ax: Axes, lines: Sequence[str], columns: Sequence[str]) -> None:
    """Write the names of lines and columns; with many columns, their names are rotated."""
    turned = len(columns) > _MAX_UPRIGHT_NAMES
    longest = 16 if turned else _LABEL_CHARACTERS // len(columns) - 1
    ax.set_xticks(range(len(columns)), shorten_names(columns, min(28, longest)))
    ax.set_yticks(range(len(lines)), shorten_names(lines))
    if turned:
        for tick in ax.get_xticklabels():
            tick.set(rotation=35, ha="right", rotation_mode="anchor")


def _draw_cell(ax: Axes, line: int, column: int, share: float, n: int | None) -> None:
    known = not math.isnan(share)
    colour = colormaps["Blues"](0.05 + 0.85 * share) if known else (1.0, 1.0, 1.0, 1.0)
    ax.add_patch(
        Rectangle(
            (column - 0.5, line - 0.5),
            1,
            1,
            facecolor=colour,
            edgecolor="white" if known else GREY,
            hatch="" if known else "//",
            linewidth=1,
        )
    )
    text = f"{100 * share:.0f}" if known else "-"
    if known and n is not None:
        text += f"\nn = {n}"
    ink = "black" if _relative_luminance(colour[:3]) > 0.18 else "white"
    ax.text(column, line, text, ha="center", va="center", color=ink, fontsize=9.5)


def _relative_luminance(colour: Sequence[float]) -> float:
    """Return the relative luminance of a colour, as WCAG 2.2 defines it.

    Above 0.18 black text has more contrast, below it white text.
    """
    linear = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour)
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


_MAX_LINES: Final = 40
_MAX_COLUMNS: Final = 12


class SuccessRow(NamedTuple):
    """Success rate of one subject at one task."""

    task: str
    subject: str
    share: Interval
    """Between 0 and 1."""
    n: int


class CompletionRow(NamedTuple):
    """Time of one trial."""

    subject: str
    task: str
    time: float
    without: bool
    """Whether the trial ended without success."""


@use_figure_style()
def draw_success_bars(
    rows: Sequence[SuccessRow], *, meaning: str = "about 95 % interval"
) -> Drawing:
    """Draw success rates as bars, grouped by task.

    Tasks and subjects are drawn in order of first occurrence.
    """
    _require_rows(rows, "success rate")
    tasks = list(dict.fromkeys(row.task for row in rows))
    subjects = list(dict.fromkeys(row.subject for row in rows))
    drawn = tasks[: max(1, _MAX_LINES // len(subjects))]
    thick = 0.8 / len(subjects)
    height = 1.0 + 0.22 * len(subjects) + len(drawn) * (0.2 + 0.24 * len(subjects))
    figure, [ax] = new_figure(height)
    for index, (subject, name) in enumerate(
        zip(subjects, shorten_names(subjects), strict=True)
    ):
        first = (index - (len(subjects) - 1) / 2) * thick
        places = {task: first + i for i, task in enumerate(drawn)}
        subject_rows = [row for row in rows if row.subject == subject and row.task in places]
        _draw_share_bars(
            ax,
            subject_rows,
            [places[row.task] for row in subject_rows],
            thick * 0.9,
            group_style(index),
            name,
        )
    ax.set_yticks(range(len(drawn)), shorten_names(drawn))
    ax.set_ylim(len(drawn) - 0.45, -0.55)
    ax.set_xlim(0, 100)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("success rate (%)")
    draw_legend_above(ax)
    title = "Success by task"
    return Drawing(
        title,
        f"{title}. {join_texts(map(_describe_share, rows))}.",
        f"Bars: proportions of trials; thin lines: {clean_text(meaning)}; n: trials."
        f"{_note_cut(len(drawn), len(tasks), 'tasks')}",
        figure,
        _build_share_table(rows),
    )


@use_figure_style()
def draw_success_heat_map(
    tasks: Sequence[str],
    subjects: Sequence[str],
    values: Sequence[Sequence[float]] | NDArray[np.float64],
    *,
    counts: Sequence[Sequence[int]] | NDArray[np.int64] | None = None,
) -> Drawing:
    """Draw success rates as a table of tasks and subjects, darker where higher.

    A line is a task, NaN means no trial. `counts` are written below the rates.
    """
    shares_T_S = _check_shape(values, tasks, subjects)
    counts_T_S = (
        None if counts is None else _check_shape(counts, tasks, subjects).astype(np.int64)
    )
    lines, columns = min(len(tasks), _MAX_LINES), min(len(subjects), _MAX_COLUMNS)
    figure, [ax] = new_figure(1.2 + (0.32 if counts is None else 0.45) * lines)
    draw_cells(
        ax,
        shares_T_S[:lines, :columns],
        None if counts_T_S is None else counts_T_S[:lines, :columns],
    )
    label_cells(ax, tasks[:lines], subjects[:columns])
    title = "Success rate by task and entry"
    descriptions = [
        f"{shorten_text(task)}, {shorten_text(subject)}: {_format_percent(share)}"
        for task, shares in zip(tasks, shares_T_S.tolist(), strict=True)
        for subject, share in zip(subjects, shares, strict=True)
    ]
    cut = _note_cut(lines, len(tasks), "tasks") + _note_cut(columns, len(subjects), "subjects")
    cells = [
        (clean_text(task), *map(_format_percent, shares))
        for task, shares in zip(tasks, shares_T_S.tolist(), strict=True)
    ]
    return Drawing(
        title,
        f"{title}. {join_texts(descriptions)}.",
        "Success rate in percent, darker if higher; a dash if no trial was run."
        f"{'' if counts is None else ' n: trials.'}{cut}",
        figure,
        ReportTable("success rate by task", ("task", *map(clean_text, subjects)), cells),
    )


@use_figure_style()
def draw_completion_times(rows: Sequence[CompletionRow], *, unit: str = "s") -> Drawing:
    """Draw the time of every trial to success; open arrows mark ends without success."""
    rows = [row for row in rows if math.isfinite(row.time)]
    _require_rows(rows, "time")
    lines = _group_by_line(rows)
    drawn = list(lines.items())[:_MAX_LINES]
    subjects = list(dict.fromkeys(row.subject for row in rows))
    figure, [ax] = new_figure(1.2 + 0.42 * len(drawn))
    for place, ((_, subject), line_rows) in enumerate(drawn):
        _draw_times(ax, line_rows, place, group_style(subjects.index(subject)))
    ax.set_yticks(range(len(drawn)), [_format_line_label(line_rows) for _, line_rows in drawn])
    ax.set_ylim(len(drawn) - 0.4, -0.6)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"time to success ({unit})")
    ax.plot([], [], "o", color=INK, ms=5, label="success")
    ax.plot([], [], ">", color=INK, mfc="white", ms=6, label="ended without success")
    draw_legend_above(ax, 2)
    title = "Time to success"
    head = ("task", "name", "trials", "successes", f"shortest ({unit})", f"longest ({unit})")
    return Drawing(
        title,
        f"{title}. {join_texts(_describe_line(line, unit) for line in lines.values())}.",
        "Filled: successful trials; open arrows: ends of trials without success; numbers:"
        " successes of all trials."
        f"{_note_cut(len(drawn), len(lines), 'lines')}",
        figure,
        ReportTable(
            f"time to success ({unit})",
            head,
            [_build_line_cells(line_rows) for line_rows in lines.values()],
        ),
    )


def _require_rows(rows: Sequence[object], what: str) -> None:
    if not rows:
        raise UsageError(f"nothing to draw: no trial has a {what}")


def _note_cut(drawn: int, total: int, what: str) -> str:
    return f" The first {drawn} of {total} {what} are drawn." if drawn < total else ""


def _check_shape(
    values: Sequence[Sequence[float]] | NDArray[Any],
    tasks: Sequence[str],
    subjects: Sequence[str],
) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.shape != (len(tasks), len(subjects)) or not array.size:
        raise UsageError(
            f"values have shape {array.shape}, but the heat map has {len(tasks)} tasks and"
            f" {len(subjects)} subjects; give one value per task and subject"
        )
    return array


def _draw_share_bars(
    ax: Axes,
    rows: Sequence[SuccessRow],
    places: Sequence[float],
    thick: float,
    style: FigureStyle,
    name: str,
) -> None:
    ax.barh(
        places,
        [100 * row.share.point for row in rows],
        thick,
        color=style.colour,
        alpha=0.6,
        hatch=style.hatch,
        edgecolor=INK,
        linewidth=0.6,
        label=name,
    )
    for row, place in zip(rows, places, strict=True):
        if row.share.known:
            ends = [100 * row.share.low, 100 * row.share.high]
            ax.plot(ends, [place] * 2, "|-", color=INK, lw=1.1)
        ax.text(101.5, place, f"n = {row.n}", va="center", fontsize=9)


def _describe_share(row: SuccessRow) -> str:
    share = format_interval(row.share, 100)
    return (
        f"{shorten_text(row.task)}, {shorten_text(row.subject)}: {share} percent, n = {row.n}"
    )


def _build_share_table(rows: Sequence[SuccessRow]) -> ReportTable:
    cells = [
        (
            clean_text(row.task),
            clean_text(row.subject),
            *map(_format_percent, row.share),
            str(row.n),
        )
        for row in rows
    ]
    return ReportTable(
        "success rate by task", ("task", "name", "rate", "low", "high", "n"), cells
    )


def _format_percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{format_number(100 * share)} %"


def _group_by_line(
    rows: Sequence[CompletionRow],
) -> dict[tuple[str, str], list[CompletionRow]]:
    """Group the trials by task and subject; the lines of a task are adjacent."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    keys = dict.fromkeys((row.task, row.subject) for row in rows)
    lines: dict[tuple[str, str], list[CompletionRow]] = {
        key: [] for key in sorted(keys, key=lambda key: tasks.index(key[0]))
    }
    for row in rows:
        lines[row.task, row.subject].append(row)
    return lines


def _draw_times(
    ax: Axes, rows: Sequence[CompletionRow], place: int, style: FigureStyle
) -> None:
    for without, mark, fill in ((False, style.marker, style.colour), (True, ">", "white")):
        times = thin_values(np.array([row.time for row in rows if row.without == without]))
        # Spread by the golden ratio: even and reproducible.
        heights = place + 0.4 * (((np.arange(len(times)) + without / 2) * 0.618034) % 1 - 0.5)
        ax.plot(times, heights, mark, ms=5.5, color=style.colour, mfc=fill)


def _format_line_label(rows: Sequence[CompletionRow]) -> str:
    reached = sum(not row.without for row in rows)
    subject = isolate_direction(shorten_text(rows[0].subject, 24))
    return f"{shorten_text(rows[0].task, 28)}\n{subject}: {reached} of {len(rows)}"


def _describe_line(rows: Sequence[CompletionRow], unit: str) -> str:
    times = [row.time for row in rows if not row.without]
    span = (
        f", in {format_number(min(times))} to {format_number(max(times))} {unit}"
        if times
        else ""
    )
    names = f"{shorten_text(rows[0].task)}, {shorten_text(rows[0].subject)}"
    return f"{names}: {len(times)} of {len(rows)} succeeded{span}"


def _build_line_cells(rows: Sequence[CompletionRow]) -> tuple[str, ...]:
    times = [row.time for row in rows if not row.without]
    ends = (format_number(min(times)), format_number(max(times))) if times else ("-", "-")
    counts = (str(len(rows)), str(len(times)))
    return (clean_text(rows[0].task), clean_text(rows[0].subject), *counts, *ends)
