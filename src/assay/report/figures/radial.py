"""Radial plots: several metrics of several groups around a circle.

The areas have no meaning: only the distance from the centre along each axis is a number.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    FigureStyle,
    clean_text,
    draw_legend_above,
    format_number,
    group_style,
    join_texts,
    shorten_names,
    shorten_text,
    use_figure_style,
)

MIN_AXES: Final = 3
"""With fewer axes, a forest plot is clearer."""

_MAX_LABEL_GROUPS: Final = 3


@use_figure_style()
def draw_radial(
    axes: Sequence[str],
    groups: Mapping[str, Sequence[float | None]],
    *,
    raw: Mapping[str, Sequence[float | None]] | None = None,
    scale: str = "each axis is scaled to the best of the groups",
    title: str | None = None,
) -> Drawing:
    """Draw each group as a line around a circle, one metric per axis.

    Args:
        axes: The names of the metrics, three or more.
        groups: A value per axis, scaled from 0 at the centre to 1 at the rim (see
            `scale_to_best`). None or NaN leaves a gap in the line.
        raw: The unscaled values for the table; with up to three groups they are also written
            at the axes.
        scale: Description of the scaling.
        title: Title above the figure.

    Raises:
        UsageError: There are too few axes, a group has a wrong number of values, a value is
            not between 0 and 1, or all values are missing.
    """
    values = {name: _check_values(name, group, axes) for name, group in groups.items()}
    if len(axes) < MIN_AXES:
        raise UsageError(f"a radial plot needs at least {MIN_AXES} axes, got {len(axes)}")
    if not any(np.isfinite(shares).any() for shares in values.values()):
        raise UsageError("nothing to draw: no group has a value on any axis")
    figure, ax = _new_polar_figure(len(groups))
    angles = np.linspace(0, 2 * np.pi, len(axes), endpoint=False)
    names = shorten_names(values)
    for index, (name, shares) in enumerate(zip(names, values.values(), strict=True)):
        _draw_group(ax, angles, shares, group_style(index), name)
    shown = raw if raw is not None else {name: list(group) for name, group in values.items()}
    _label_axes(ax, angles, _format_axis_labels(axes, shown))
    draw_legend_above(ax, at=(-0.35, 1.18))
    few = len(shown) <= _MAX_LABEL_GROUPS
    numbers = " Numbers at the axes: in the order of the legend." if few else ""
    title = clean_text(title) if title else "Metrics side by side"
    cells = [
        (clean_text(axis), *(_format_value(group[i], 4) for group in shown.values()))
        for i, axis in enumerate(axes)
    ]
    return Drawing(
        title,
        f"{title}. {join_texts(_describe_group(axes, *item) for item in shown.items())}.",
        f"Outward is better; {clean_text(scale)}.{numbers} A gap is a missing value."
        " The area has no meaning.",
        figure,
        ReportTable("values by metric", ("metric", *map(clean_text, shown)), cells),
    )


def scale_to_best(
    axes: Sequence[str],
    raw: Mapping[str, Sequence[float | None]],
    *,
    lower_is_better: Collection[str] = (),
) -> dict[str, list[float]]:
    """Scale values for the axes of `radial`: 1 is the best of the groups.

    If no value of an axis is negative, values are divided by the best, so that half the
    distance is half as good; if lower is better, the best is divided by the value. With
    negative values a ratio is undefined: the worst is put at 0 and the best at 1. An axis
    with equal values is 1 for all. A missing value is NaN.
    """
    table_G_A = np.array(
        [[math.nan if x is None else x for x in values] for values in raw.values()], np.float64
    )
    for i, axis in enumerate(axes):
        table_G_A[:, i] = _scale_axis(table_G_A[:, i], axis in lower_is_better)
    return {name: table_G_A[g].tolist() for g, name in enumerate(raw)}


def _scale_axis(values: NDArray[np.float64], lower_is_better: bool) -> NDArray[np.float64]:
    finite = values[np.isfinite(values)]
    result = np.full(len(values), np.nan)
    is_finite = np.isfinite(values)
    if not len(finite):
        return result
    low, high = finite.min(), finite.max()
    if low == high:
        result[is_finite] = 1.0
    elif low < 0 or (lower_is_better and low == 0):
        result[is_finite] = (finite - low) / (high - low)
        if lower_is_better:
            result[is_finite] = 1 - result[is_finite]
    else:
        result[is_finite] = low / finite if lower_is_better else finite / high
    return result


def _check_values(
    name: str, group: Sequence[float | None], axes: Sequence[str]
) -> NDArray[np.float64]:
    values = np.array([math.nan if x is None else x for x in group], np.float64)
    if len(values) != len(axes):
        raise UsageError(
            f"{name!r} has {len(values)} values for {len(axes)} axes; give one value per axis"
        )
    outside = values[np.isfinite(values) & ((values < 0) | (values > 1))]
    if len(outside) or np.isinf(values).any():
        raise UsageError(f"{name!r} has values outside 0 to 1; scale them with scale_to_best")
    return values


def _new_polar_figure(groups: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.0, 4.6 + 0.2 * groups))
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08)
    ax = figure.add_subplot(projection="polar")
    ax.set_theta_zero_location("N")  # type: ignore[attr-defined]
    ax.set_theta_direction(-1)  # type: ignore[attr-defined]
    ax.set_ylim(0, 1.05)
    ax.set_yticks([0.25, 0.5, 0.75, 1], ["", "0.5", "", "1"])
    ax.spines["polar"].set_visible(False)
    ax.tick_params(axis="x", pad=6)
    return figure, ax


def _draw_group(
    ax: Axes,
    angles: NDArray[np.float64],
    values: NDArray[np.float64],
    style: FigureStyle,
    name: str,
) -> None:
    around, closed = np.append(angles, angles[0]), np.append(values, values[0])
    ax.plot(
        around, closed, style.line, color=style.colour, marker=style.marker, ms=6, label=name
    )
    if np.isfinite(values).all():
        ax.fill(around, closed, color=style.colour, alpha=0.08)


def _label_axes(ax: Axes, angles: NDArray[np.float64], names: Sequence[str]) -> None:
    ax.set_xticks(angles, names)
    for angle, tick in zip(angles, ax.get_xticklabels(), strict=True):
        side = math.sin(angle)
        tick.set_horizontalalignment(
            "center" if abs(side) < 0.1 else "left" if side > 0 else "right"
        )


def _describe_group(axes: Sequence[str], name: str, values: Sequence[float | None]) -> str:
    values_text = (
        f"{shorten_text(axis)} {_format_value(x)}" for axis, x in zip(axes, values, strict=True)
    )
    return f"{shorten_text(name)}: {', '.join(values_text)}"


def _format_axis_labels(
    axes: Sequence[str], shown: Mapping[str, Sequence[float | None]]
) -> list[str]:
    names = shorten_names(axes, 24)
    if len(shown) > _MAX_LABEL_GROUPS:
        return names
    return [
        f"{name}\n" + " | ".join(_format_value(values[i]) for values in shown.values())
        for i, name in enumerate(names)
    ]


def _format_value(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else format_number(float(value), digits)
