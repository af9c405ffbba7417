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
    MOST_GROUPS,
    MOST_POINTS,
    Values,
    finite,
    first_of,
    in_style,
    interval_text,
    isolated,
    legend_above,
    listed,
    look,
    new_figure,
    number,
    plain,
    short_names,
    shortened,
    thinned,
)
from assay.stats.intervals import Interval

LEAST_FOR_A_BOX: Final = 5
"""With fewer values, a box would show quartiles that the data do not have."""

_MOST_BINS: Final = 30


@in_style()
def histogram(groups: Mapping[str, Values], label: str) -> Drawing:
    """Draw a histogram of the finite values of each group, one panel per group."""
    label = shortened(label, 48)
    drawn = first_of(groups, label)
    edges = _edges(np.concatenate(list(drawn.values())))
    figure, axes = new_figure(0.6 + 1.15 * len(drawn), len(drawn))
    names = short_names(drawn)
    for index, (ax, name, values) in enumerate(zip(axes, names, drawn.values(), strict=True)):
        _bars(ax, values, edges, index)
        ax.set_title(f"{isolated(name)}  (n = {len(values)})")
        ax.set_ylabel("trials")
        ax.set_xlim(edges[0], edges[-1])
        ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes[-1].set_xlabel(shortened(label, 40))
    title = f"Distribution of {label}"
    return Drawing(
        title,
        f"{title}. {listed(_said(drawn))}.",
        f"Solid line: mean; dashed line: median.{_left_out(groups)}",
        figure,
        _summary_table(groups, label),
    )


@in_style()
def box_plot(groups: Mapping[str, Values], label: str) -> Drawing:
    """Draw the quartiles of each group, and every finite value as a point.

    A group with fewer than `LEAST_FOR_A_BOX` values gets points and a mean, but no box.
    """
    label = shortened(label, 48)
    drawn = first_of(groups, label)
    figure, [ax] = new_figure(0.9 + 0.55 * len(drawn))
    for index, values in enumerate(drawn.values()):
        _box(ax, values, index)
    names = short_names(drawn)
    ticks = [f"{name}\nn = {len(v)}" for name, v in zip(names, drawn.values(), strict=True)]
    ax.set_yticks(range(len(drawn)), ticks)
    ax.set_ylim(len(drawn) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(shortened(label, 40))
    title = f"Spread of {label}"
    return Drawing(
        title,
        f"{title}. {listed(_said(drawn))}.",
        "Points: trials; box: quartiles with the median, whiskers to 1.5 times the box; white"
        f" diamond: mean. No box below {LEAST_FOR_A_BOX} values."
        f"{_thin(groups)}{_left_out(groups)}",
        figure,
        _summary_table(groups, label),
    )


@in_style()
def bootstrap_distribution(
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
    label, values = shortened(label, 48), finite(estimates)
    if not len(values):
        raise UsageError(f"there is nothing to draw: no resample has an estimate of {label}")
    figure, [ax] = new_figure(3.0)
    edges = _even_edges(values, 50)
    ax.hist(values, edges.tolist(), color="#9ecae1", edgecolor="white", linewidth=0.4)
    bounds = [bound for bound in interval[1:] if math.isfinite(bound)]
    for bound in bounds:
        ax.axvline(bound, color="#D55E00", linestyle="--", label="_")
    ax.axvline(interval.point, color=INK, label=f"estimate {number(interval.point)}")
    name = f"{100 * level:.4g} % interval" + (f" ({plain(method)})" if method else "")
    if bounds:
        shown = f"{number(interval.low)} to {number(interval.high)}"
        ax.plot([], [], color="#D55E00", linestyle="--", label=f"{name}: {shown}")
    low, high = ax.get_xlim()
    if low < 0 < high:
        ax.axvline(0, color=GREY, linestyle=":", label="zero")
    ax.set_xlabel(shortened(label, 40))
    ax.set_ylabel("resamples")
    legend_above(ax)
    title = plain(title) if title else f"Bootstrap distribution of {label}"
    return Drawing(
        title,
        f"{title}: {len(values):,} resamples from {number(values.min())} to"
        f" {number(values.max())}; {name}: {interval_text(interval)}.",
        f"{len(values):,} resamples. Solid line: the estimate; dashed lines: the {name}.",
        figure,
    )


def _bars(ax: Axes, values: NDArray[np.float64], edges: NDArray[np.float64], i: int) -> None:
    style = look(i)
    if not len(values):
        ax.text(0.5, 0.5, "no values", transform=ax.transAxes, ha="center", va="center")
        return
    colour = style.colour
    ax.hist(values, edges.tolist(), color=colour, alpha=0.55, edgecolor=INK, hatch=style.hatch)
    ax.axvline(float(values.mean()), color=INK)
    ax.axvline(float(np.median(values)), color=INK, linestyle="--")


def _edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = float(values.min()), float(values.max())
    if high - low < _MOST_BINS and bool((values == np.round(values)).all()):
        # Counts: one bar per number, centred on it.
        return np.arange(low - 0.5, high + 1)
    sturges = math.ceil(math.log2(len(values)) + 1)
    return _even_edges(values, min(_MOST_BINS, max(5, sturges)))


def _even_edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    low, high = float(values.min()), float(values.max())
    # The values are too close together for edges between them.
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        room = max(0.5, 0.05 * abs(low))
        low, high = low - room, high + room
    return np.linspace(low, high, bins + 1)


def _box(ax: Axes, values: NDArray[np.float64], index: int) -> None:
    style = look(index)
    if len(values) >= LEAST_FOR_A_BOX:
        made = ax.boxplot(
            [values],
            positions=[index],
            widths=0.6,
            orientation="horizontal",
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
            medianprops={"color": INK, "linewidth": 1.8},
        )
        for box in made["boxes"]:
            box.set(facecolor=style.colour, alpha=0.3)
    points = thinned(values)
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


def _said(groups: Mapping[str, NDArray[np.float64]]) -> list[str]:
    return [
        f"{name}: no values"
        if not len(values)
        else f"{name}: n = {len(values)}, mean {number(float(values.mean()))}, median"
        f" {number(float(np.median(values)))}, from {number(values.min())} to"
        f" {number(values.max())}"
        for name, values in zip(short_names(groups), groups.values(), strict=True)
    ]


def _left_out(groups: Mapping[str, Values]) -> str:
    gone = sum(len(np.ravel(values)) - len(finite(values)) for values in groups.values())
    text = f" {gone} missing or infinite values are left out." if gone else ""
    if len(groups) > MOST_GROUPS:
        text += f" The first {MOST_GROUPS} of {len(groups)} groups are drawn."
    return text


def _thin(groups: Mapping[str, Values]) -> str:
    many = any(len(np.ravel(values)) > MOST_POINTS for values in groups.values())
    return f" Of a group {MOST_POINTS} points at most are drawn." if many else ""


def _summary_table(groups: Mapping[str, Values], label: str) -> ReportTable:
    rows: list[Sequence[str]] = []
    for name, given in groups.items():
        values = finite(given)
        if not len(values):
            rows.append((plain(name), "0", "-", "-", "-", "-", "-"))
            continue
        with np.errstate(over="ignore"):
            spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
        marks = (values.mean(), np.median(values), spread, values.min(), values.max())
        rows.append((plain(name), str(len(values)), *(number(float(x), 4) for x in marks)))
    head = ("name", "n", "mean", "median", "standard deviation", "lowest", "highest")
    return ReportTable(f"{label}, by group", head, rows)
