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
    in_style,
    legend_above,
    listed,
    look,
    number,
    plain,
    short_names,
    shortened,
)

LEAST_AXES: Final = 3
"""With fewer axes, a forest plot is clearer."""

_MOST_IN_LABELS: Final = 3


@in_style()
def radial(
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
            `scaled_to_best`). None or NaN leaves a gap in the line.
        raw: The unscaled values for the table; with up to three groups they are also written
            at the axes.
        scale: Description of the scaling.
        title: Title above the figure.

    Raises:
        UsageError: There are too few axes, a group has a wrong number of values, a value is
            not between 0 and 1, or all values are missing.
    """
    values = {name: _checked(name, given, axes) for name, given in groups.items()}
    if len(axes) < LEAST_AXES:
        raise UsageError(f"a radial plot needs {LEAST_AXES} axes or more; it got {len(axes)}")
    if not any(np.isfinite(shares).any() for shares in values.values()):
        raise UsageError("there is nothing to draw: no group has a value on any axis")
    figure, ax = _circle(len(groups))
    angles = np.linspace(0, 2 * np.pi, len(axes), endpoint=False)
    names = short_names(values)
    for index, (name, shares) in enumerate(zip(names, values.values(), strict=True)):
        _draw(ax, angles, shares, look(index), name)
    shown = raw if raw is not None else {name: list(given) for name, given in values.items()}
    _name_axes(ax, angles, _axis_labels(axes, shown))
    legend_above(ax, at=(-0.35, 1.18))
    few = len(shown) <= _MOST_IN_LABELS
    numbers = " Numbers at the axes: in the order of the legend." if few else ""
    title = plain(title) if title else "Metrics side by side"
    cells = [
        (plain(axis), *(_text(given[i], 4) for given in shown.values()))
        for i, axis in enumerate(axes)
    ]
    return Drawing(
        title,
        f"{title}. {listed(_said(axes, name, given) for name, given in shown.items())}.",
        f"Outward is better; {plain(scale)}.{numbers} A gap: no value. The area has no"
        " meaning.",
        figure,
        ReportTable("values by metric", ("metric", *map(plain, shown)), cells),
    )


def scaled_to_best(
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
        table_G_A[:, i] = _scaled(table_G_A[:, i], axis in lower_is_better)
    return {name: table_G_A[g].tolist() for g, name in enumerate(raw)}


def _scaled(values: NDArray[np.float64], lower_is_better: bool) -> NDArray[np.float64]:
    there = values[np.isfinite(values)]
    result = np.full(len(values), np.nan)
    good = np.isfinite(values)
    if not len(there):
        return result
    low, high = there.min(), there.max()
    if low == high:
        result[good] = 1.0
    elif low < 0 or (lower_is_better and low == 0):
        result[good] = (there - low) / (high - low)
        if lower_is_better:
            result[good] = 1 - result[good]
    else:
        result[good] = low / there if lower_is_better else there / high
    return result


def _checked(
    name: str, given: Sequence[float | None], axes: Sequence[str]
) -> NDArray[np.float64]:
    values = np.array([math.nan if x is None else x for x in given], np.float64)
    if len(values) != len(axes):
        raise UsageError(
            f"{name!r} has {len(values)} values for {len(axes)} axes; give one each"
        )
    outside = values[np.isfinite(values) & ((values < 0) | (values > 1))]
    if len(outside) or np.isinf(values).any():
        raise UsageError(f"{name!r} has values outside 0 to 1; scale them with scaled_to_best")
    return values


def _circle(groups: int) -> tuple[Figure, Axes]:
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


def _draw(
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


def _name_axes(ax: Axes, angles: NDArray[np.float64], names: Sequence[str]) -> None:
    ax.set_xticks(angles, names)
    for angle, tick in zip(angles, ax.get_xticklabels(), strict=True):
        side = math.sin(angle)
        tick.set_horizontalalignment(
            "center" if abs(side) < 0.1 else "left" if side > 0 else "right"
        )


def _said(axes: Sequence[str], name: str, values: Sequence[float | None]) -> str:
    said = (f"{shortened(axis)} {_text(x)}" for axis, x in zip(axes, values, strict=True))
    return f"{shortened(name)}: {', '.join(said)}"


def _axis_labels(axes: Sequence[str], shown: Mapping[str, Sequence[float | None]]) -> list[str]:
    names = short_names(axes, 24)
    if len(shown) > _MOST_IN_LABELS:
        return names
    return [
        f"{name}\n" + " | ".join(_text(values[i]) for values in shown.values())
        for i, name in enumerate(names)
    ]


def _text(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else number(float(value), digits)
