"""Figures of two subjects on the same seeds: pairs and their differences."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.lines import Line2D

from assay.errors import UsageError
from assay.judge.results import PairRow
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing, link_to
from assay.report.figures.style import (
    GREY,
    INK,
    FigureStyle,
    capitalize,
    clean_text,
    draw_legend_above,
    format_interval,
    format_number,
    group_style,
    isolate_direction,
    new_figure,
    shorten_names,
    shorten_text,
    use_figure_style,
)
from assay.stats.intervals import Interval

_MAX_NAMED: Final = 30
_MAX_ROWS: Final = 200
_DOWN, _SAME, _UP = group_style(1), FigureStyle(GREY, "D", ":", ""), group_style(0)


@use_figure_style()
def draw_pair_lines(rows: Sequence[PairRow], a_name: str, b_name: str, label: str) -> Drawing:
    """Draw a line per pair of finite values, from the baseline on the left to the candidate."""
    kept, label = _finite_pairs(rows, label), shorten_text(label, 48)
    a, b = shorten_names([a_name, b_name])
    figure, [ax] = new_figure(4.0)
    for row in _select_evenly(kept):
        style = _direction_style(row)
        [line] = ax.plot(
            [0, 1],
            [row.baseline, row.candidate],
            style.line,
            marker=style.marker,
            color=style.colour,
            lw=1.1,
            ms=4,
            alpha=0.7,
        )
        link_to(line, pair=row.pair)
    columns = zip(*((row.baseline, row.candidate) for row in kept), strict=True)
    means = [float(np.mean(column)) for column in columns]
    ax.plot([0, 1], means, "-", color=INK, lw=3, marker="o", ms=7)
    for place, mean, side in ((-0.04, means[0], "right"), (1.04, means[1], "left")):
        ax.text(place, mean, f"mean {format_number(mean)}", ha=side, va="center", weight="bold")
    ax.set_xlim(-0.32, 1.32)
    ax.set_xticks([0, 1], [a, b])
    ax.grid(axis="x", visible=False)
    ax.set_ylabel(shorten_text(label, 26))
    up, same, down = _count_directions(kept)
    ax.legend(
        handles=[
            Line2D([], [], color=s.colour, ls=s.line, marker=s.marker, ms=4, label=text)
            for s, text in (
                (_UP, f"{up} higher"),
                (_SAME, f"{same} equal"),
                (_DOWN, f"{down} lower"),
            )
        ]
        + [Line2D([], [], color=INK, lw=3, marker="o", label="mean")],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=4,
        borderpad=0,
    )
    title = f"{capitalize(label)}, pair by pair"
    return Drawing(
        title,
        f"{title}: {_describe_pairs(kept, b, a)}; means"
        f" {' and '.join(map(format_number, means))}.",
        f"A line per pair with the same seed; {len(kept)} pairs.{_note_omitted(rows, kept)}",
        figure,
        _build_table(kept, a_name, b_name, label),
    )


@use_figure_style()
def draw_pair_differences(
    rows: Sequence[PairRow],
    a_name: str,
    b_name: str,
    label: str,
    *,
    interval: Interval | None = None,
    meaning: str = "about 95 % interval of the mean difference",
) -> Drawing:
    """Draw the difference of each pair of finite values, from the lowest to the highest.

    `interval` is the interval of the mean difference, drawn as a band; `meaning` describes it.
    """
    kept, label = _finite_pairs(rows, label), shorten_text(label, 48)
    a, b = shorten_names([a_name, b_name])
    ordered = _select_evenly(sorted(kept, key=lambda row: row.difference))
    named = len(ordered) <= _MAX_NAMED
    figure, [ax] = new_figure(
        1.1 + (0.24 * len(ordered) if named else min(6, 0.03 * len(ordered) + 2))
    )
    if interval is not None and interval.known:
        low, high = interval.low, interval.high
        ax.axvspan(low, high, color="#cfcfcf", alpha=0.6, lw=0, label=clean_text(meaning))
    mean = float(np.mean([row.difference for row in kept]))
    ax.axvline(0, color=GREY, lw=1.2, ls="--")
    ax.axvline(mean, color=INK, label=f"mean difference {format_number(mean)}")
    for place, row in enumerate(ordered):
        style, gap = _direction_style(row), row.difference
        if named:
            ax.plot([0, gap], [place, place], style.line, color=style.colour, lw=1.3)
        [dot] = ax.plot([gap], [place], style.marker, color=style.colour, ms=5 if named else 3)
        link_to(dot, pair=row.pair)
    if named:
        ax.set_yticks(range(len(ordered)), shorten_names((row.pair for row in ordered), 22))
    else:
        ax.set_yticks([])
        ax.set_ylabel("pairs")
    ax.set_ylim(-0.7, len(ordered) - 0.3)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"{shorten_text(label, 40)}:\n{b}\nminus {isolate_direction(a)}")
    draw_legend_above(ax)
    title = f"Differences in {label}, pair by pair"
    shown = "" if interval is None else f" {meaning}: {format_interval(interval)}."
    return Drawing(
        title,
        f"{title}: {_describe_pairs(kept, b, a)}; mean difference {format_number(mean)}."
        f"{shown}",
        f"{b} minus {a} with the same seed, lowest first; {len(kept)} pairs; dashed line: no"
        f" difference.{_note_omitted(rows, kept)}",
        figure,
        _build_table(kept, a_name, b_name, label),
    )


def _finite_pairs(rows: Sequence[PairRow], label: str) -> list[PairRow]:
    kept = [row for row in rows if np.isfinite([row.baseline, row.candidate]).all()]
    if not kept:
        raise UsageError(f"nothing to draw: no pair has two finite values of {label}")
    return kept


def _select_evenly(rows: list[PairRow]) -> list[PairRow]:
    """Return the rows to draw: if there are many, evenly spaced by rank, with both ends."""
    if len(rows) <= _MAX_ROWS:
        return rows
    places = np.linspace(0, len(rows) - 1, _MAX_ROWS).round().astype(int)
    return [rows[place] for place in places]


def _direction_style(row: PairRow) -> FigureStyle:
    return _UP if row.difference > 0 else _DOWN if row.difference < 0 else _SAME


def _count_directions(rows: Sequence[PairRow]) -> tuple[int, int, int]:
    up, down = (sum(_direction_style(row) is style for row in rows) for style in (_UP, _DOWN))
    return up, len(rows) - up - down, down


def _describe_pairs(rows: Sequence[PairRow], b: str, a: str) -> str:
    up, same, down = _count_directions(rows)
    return (
        f"in {len(rows)} pairs, {b} is higher than {a} in {up}, equal in {same}, lower in"
        f" {down}"
    )


def _note_omitted(rows: Sequence[PairRow], kept: Sequence[PairRow]) -> str:
    omitted = len(rows) - len(kept)
    text = f" {omitted} pairs with a missing value are omitted." if omitted else ""
    if len(kept) > _MAX_ROWS:
        text += f" {_MAX_ROWS} of the others are drawn."
    return text


def _build_table(rows: Sequence[PairRow], a_name: str, b_name: str, label: str) -> ReportTable:
    cells = [
        (
            clean_text(row.pair),
            *(format_number(value, 4) for value in (*row[1:], row.difference)),
        )
        for row in rows
    ]
    return ReportTable(
        f"{label}, pair by pair",
        ("pair", clean_text(a_name), clean_text(b_name), "difference"),
        cells,
    )
