"""The cells of a heat map: shares as colours, with their numbers written in."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from assay.report.figures.style import GREY, short_names

__all__ = ["draw_cells", "name_cells"]

_LETTERS: Final = 54
"""How many letters fit beside each other below the columns."""
_MOST_UPRIGHT: Final = 3


def draw_cells(
    ax: Axes, shares: NDArray[np.float64], counts: NDArray[np.int64] | None = None
) -> None:
    """Draw shares between 0 and 1, a line per row; NaN is an empty, hatched cell.

    Args:
        ax: Where to draw.
        shares: Of shape (lines, columns).
        counts: Of the same shape, written below the shares.
    """
    lines, columns = shares.shape
    for line in range(lines):
        for column in range(columns):
            n = None if counts is None else int(counts[line, column])
            _cell(ax, line, column, float(shares[line, column]), n)
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_ylim(lines - 0.5, -0.5)
    ax.grid(visible=False)
    ax.tick_params(length=0)


def name_cells(ax: Axes, lines: Sequence[str], columns: Sequence[str]) -> None:
    """Write the names of lines and columns; those of many columns are turned."""
    turned = len(columns) > _MOST_UPRIGHT
    longest = 16 if turned else _LETTERS // len(columns) - 1
    ax.set_xticks(range(len(columns)), short_names(columns, min(28, longest)))
    ax.set_yticks(range(len(lines)), short_names(lines))
    if turned:
        for tick in ax.get_xticklabels():
            tick.set(rotation=35, ha="right", rotation_mode="anchor")


def _cell(ax: Axes, line: int, column: int, share: float, n: int | None) -> None:
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
    ink = "black" if _luminance(colour[:3]) > 0.18 else "white"
    ax.text(column, line, text, ha="center", va="center", color=ink, fontsize=9.5)


def _luminance(colour: Sequence[float]) -> float:
    """How light a colour is: WCAG 2.2, "relative luminance".

    Above 0.18 black has more contrast than white, below it white has.
    """
    linear = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour)
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
