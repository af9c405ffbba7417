"""Distributions of values: histograms, box plots and bootstrap distributions."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    GREY,
    INK,
    MAX_GROUPS,
    MAX_POINTS,
    Values,
    clean_text,
    draw_legend_above,
    finite_values,
    first_groups,
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

MIN_BOX_VALUES: Final = 5
"""With fewer values, a box would show quartiles that the data do not have."""

_MAX_BINS: Final = 30


@use_figure_style()
def draw_histogram(groups: Mapping[str, Values], label: str) -> Drawing:
    """Draw a histogram of the finite values of each group, one panel per group."""
    label = shorten_text(label, 48)
    drawn = first_groups(groups, label)
    edges = _choose_bin_edges(np.concatenate(list(drawn.values())))
    figure, axes = new_figure(0.6 + 1.15 * len(drawn), len(drawn))
    names = shorten_names(drawn)
    for index, (ax, name, values) in enumerate(zip(axes, names, drawn.values(), strict=True)):
        _draw_bars(ax, values, edges, index)
        ax.set_title(f"{isolate_direction(name)}  (n = {len(values)})")
        ax.set_ylabel("trials")
        ax.set_xlim(edges[0], edges[-1])
        ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes[-1].set_xlabel(shorten_text(label, 40))
    title = f"Distribution of {label}"
    return Drawing(
        title,
        f"{title}. {join_texts(_describe_groups(drawn))}.",
        f"Solid line: mean; dashed line: median.{_note_omitted(groups)}",
        figure,
        _build_summary_table(groups, label),
    )


@use_figure_style()
def draw_box_plot(groups: Mapping[str, Values], label: str) -> Drawing:
    """Draw the quartiles of each group, and every finite value as a point.

    A group with fewer than `MIN_BOX_VALUES` values gets points and a mean, but no box.
    """
    label = shorten_text(label, 48)
    drawn = first_groups(groups, label)
    figure, [ax] = new_figure(0.9 + 0.55 * len(drawn))
    for index, values in enumerate(drawn.values()):
        _draw_box(ax, values, index)
    names = shorten_names(drawn)
    ticks = [f"{name}\nn = {len(v)}" for name, v in zip(names, drawn.values(), strict=True)]
    ax.set_yticks(range(len(drawn)), ticks)
    ax.set_ylim(len(drawn) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(shorten_text(label, 40))
    title = f"Spread of {label}"
    return Drawing(
        title,
        f"{title}. {join_texts(_describe_groups(drawn))}.",
        "Points: trials; box: quartiles with the median, whiskers to 1.5 times the box; white"
        f" diamond: mean. No box below {MIN_BOX_VALUES} values."
        f"{_note_thinning(groups)}{_note_omitted(groups)}",
        figure,
        _build_summary_table(groups, label),
    )


@use_figure_style()
def draw_bootstrap_distribution(
    estimates: Values,
    interval: Interval,
    label: str,
    *,
    level: float = 0.95,
    method: str = "",
    title: str = "",
) -> Drawing:
    """Draw the estimates of many resamples, with the reported interval.

    Args:
        estimates: One estimate per resample.
        interval: The reported interval; its bounds need not come from these resamples.
        label: The estimated quantity, with its unit.
        level: The level of the interval.
        method: The method of the interval, as in "Student t".
        title: Title above the figure; derived from `label` by default.
    """
    label, values = shorten_text(label, 48), finite_values(estimates)
    if not len(values):
        raise UsageError(f"nothing to draw: no resample has a finite estimate of {label}")
    figure, [ax] = new_figure(3.0)
    edges = _even_bin_edges(values, 50)
    ax.hist(values, edges.tolist(), color="#9ecae1", edgecolor="white", linewidth=0.4)
    bounds = [bound for bound in interval[1:] if math.isfinite(bound)]
    for bound in bounds:
        ax.axvline(bound, color="#D55E00", linestyle="--", label="_")
    ax.axvline(interval.point, color=INK, label=f"estimate {format_number(interval.point)}")
    name = f"{100 * level:.4g} % interval" + (f" ({clean_text(method)})" if method else "")
    if bounds:
        shown = f"{format_number(interval.low)} to {format_number(interval.high)}"
        ax.plot([], [], color="#D55E00", linestyle="--", label=f"{name}: {shown}")
    low, high = ax.get_xlim()
    if low < 0 < high:
        ax.axvline(0, color=GREY, linestyle=":", label="zero")
    ax.set_xlabel(shorten_text(label, 40))
    ax.set_ylabel("resamples")
    draw_legend_above(ax)
    title = clean_text(title) if title else f"Bootstrap distribution of {label}"
    return Drawing(
        title,
        f"{title}: {len(values):,} resamples from {format_number(values.min())} to"
        f" {format_number(values.max())}; {name}: {format_interval(interval)}.",
        f"{len(values):,} resamples. Solid line: the estimate; dashed lines: the {name}.",
        figure,
    )


def _draw_bars(
    ax: Axes, values: NDArray[np.float64], edges: NDArray[np.float64], i: int
) -> None:
    style = group_style(i)
    if not len(values):
        ax.text(0.5, 0.5, "no values", transform=ax.transAxes, ha="center", va="center")
        return
    colour = style.colour
    ax.hist(values, edges.tolist(), color=colour, alpha=0.55, edgecolor=INK, hatch=style.hatch)
    ax.axvline(float(values.mean()), color=INK)
    ax.axvline(float(np.median(values)), color=INK, linestyle="--")


def _choose_bin_edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = float(values.min()), float(values.max())
    if high - low < _MAX_BINS and bool((values == np.round(values)).all()):
        # Counts: one bar per number, centred on it.
        return np.arange(low - 0.5, high + 1)
    sturges = math.ceil(math.log2(len(values)) + 1)
    return _even_bin_edges(values, min(_MAX_BINS, max(5, sturges)))


def _even_bin_edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    low, high = float(values.min()), float(values.max())
    # The values are too close together for edges between them.
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        room = max(0.5, 0.05 * abs(low))
        low, high = low - room, high + room
    return np.linspace(low, high, bins + 1)


def _draw_box(ax: Axes, values: NDArray[np.float64], index: int) -> None:
    style = group_style(index)
    if len(values) >= MIN_BOX_VALUES:
        artists = ax.boxplot(
            [values],
            positions=[index],
            widths=0.6,
            orientation="horizontal",
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
            medianprops={"color": INK, "linewidth": 1.8},
        )
        for box in artists["boxes"]:
            box.set(facecolor=style.colour, alpha=0.3)
    points = thin_values(values)
    # Spread by the golden ratio: even and reproducible.
    heights = index + 0.4 * ((np.arange(len(points)) * 0.618034) % 1 - 0.5)
    ax.plot(
        points,
        heights,
        style.marker,
        color=style.colour,
        ms=5,
        alpha=0.8,
        mec="white",
        mew=0.4,
    )
    if len(values):
        mean = float(values.mean())
        ax.plot([mean], [index], "D", ms=6.5, mfc="white", mec=INK, zorder=5)


def _describe_groups(groups: Mapping[str, NDArray[np.float64]]) -> list[str]:
    return [
        f"{name}: no values"
        if not len(values)
        else f"{name}: n = {len(values)}, mean {format_number(float(values.mean()))}, median"
        f" {format_number(float(np.median(values)))}, from {format_number(values.min())} to"
        f" {format_number(values.max())}"
        for name, values in zip(shorten_names(groups), groups.values(), strict=True)
    ]


def _note_omitted(groups: Mapping[str, Values]) -> str:
    omitted = sum(
        len(np.ravel(values)) - len(finite_values(values)) for values in groups.values()
    )
    text = f" {omitted} missing or infinite values are omitted." if omitted else ""
    if len(groups) > MAX_GROUPS:
        text += f" The first {MAX_GROUPS} of {len(groups)} groups are drawn."
    return text


def _note_thinning(groups: Mapping[str, Values]) -> str:
    many = any(len(np.ravel(values)) > MAX_POINTS for values in groups.values())
    return f" At most {MAX_POINTS} points per group are drawn." if many else ""


def _build_summary_table(groups: Mapping[str, Values], label: str) -> ReportTable:
    rows: list[Sequence[str]] = []
    for name, group in groups.items():
        values = finite_values(group)
        if not len(values):
            rows.append((clean_text(name), "0", "-", "-", "-", "-", "-"))
            continue
        with np.errstate(over="ignore"):
            spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
        marks = (values.mean(), np.median(values), spread, values.min(), values.max())
        rows.append(
            (clean_text(name), str(len(values)), *(format_number(float(x), 4) for x in marks))
        )
    head = ("name", "n", "mean", "median", "standard deviation", "lowest", "highest")
    return ReportTable(f"{label}, by group", head, rows)
