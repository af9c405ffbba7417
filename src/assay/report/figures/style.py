"""Style of all figures: size, fonts, colours, and formatting of names and numbers.

Groups differ in colour (Okabe and Ito, "Color Universal Design", 2008) and also in marker, line
and hatching, so that figures are readable without colour. No text is parsed as a formula: a
dollar sign is a dollar sign.
"""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from assay.core.text import printable
from assay.errors import UsageError
from assay.report.figures.palette import COLOURS
from assay.stats.intervals import Interval

Values: TypeAlias = Sequence[float] | NDArray[Any]
"""Numbers, one per trial or run."""

INK: Final = "#222222"
GREY: Final = "#767676"
MAX_GROUPS: Final = 20
"""Maximum number of groups in a figure; its table has all of them."""
MAX_POINTS: Final = 300
"""Maximum number of points drawn for one group."""

_WIDTH: Final = 6.0
_LEGEND_LETTERS: Final = 60
_MAX_LEGEND_ROWS: Final = 5
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES: Final = ("-", "--", "-.", ":")
_HATCHES: Final = ("", "///", "\\\\\\", "xxx", "---", "|||", "+++", "//--")
_STYLE: Final = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.formatter.use_mathtext": False,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.unicode_minus": True,
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.7,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "assay",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "xtick.labelsize": 9.5,
    "ytick.color": INK,
    "ytick.labelsize": 9.5,
}


class FigureStyle(NamedTuple):
    """Attributes that distinguish one group from the others."""

    colour: str
    marker: str
    line: str
    hatch: str


@contextmanager
def use_figure_style() -> Iterator[None]:
    """Draw with these settings alone, ignoring the user's matplotlib configuration."""
    settings: dict[Any, Any] = {
        name: value
        for name, value in matplotlib.rcParamsDefault.items()
        if name != "backend"  # Setting it would load a backend; figures here need none.
    }
    with matplotlib.rc_context(settings | _STYLE):
        yield


def group_style(index: int) -> FigureStyle:
    """Return the style of the group at this index; beyond eight, marker or line differs."""
    turn = index // len(COLOURS)
    return FigureStyle(
        COLOURS[index % len(COLOURS)],
        _MARKERS[(index + turn) % len(_MARKERS)],
        _LINES[(index + turn) % len(_LINES)],
        _HATCHES[(index + turn) % len(_HATCHES)],
    )


def new_figure(height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Create a figure of the standard width, with stacked panels that share the x axis."""
    figure = Figure(figsize=(_WIDTH, height))
    # Text beyond an axis is measured with our font; the reader's may be wider.
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08)
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)
    return figure, list(axes[:, 0])


def new_grid(
    panels: int, height: float, *, head: float = 0.4, sharex: bool = True, sharey: bool = True
) -> tuple[Figure, Axes, list[Axes]]:
    """Create a figure with two columns of panels and room for a common legend above them.

    Args:
        panels: Number of panels.
        height: Height of a row of panels, in inches.
        head: Height of the room for the legend; see `draw_grid_legend`.
        sharex: Whether all panels share the x axis.
        sharey: Whether all panels share the y axis.
    """
    rows = -(-panels // 2)
    figure = Figure(figsize=(_WIDTH, head + height * rows))
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
    grid = figure.add_gridspec(rows + 1, 2, height_ratios=[head, *[height] * rows])
    top = figure.add_subplot(grid[0, :])
    top.set_axis_off()
    axes: list[Axes] = []
    for place in range(panels):
        shared = axes[0] if axes else None
        axes.append(
            figure.add_subplot(
                grid[1 + place // 2, place % 2],
                sharex=shared if sharex else None,
                sharey=shared if sharey else None,
            )
        )
    return figure, top, axes


def draw_grid_legend(top: Axes, handles: Sequence[Any], columns: int = 2) -> None:
    """Draw the common legend of a grid in the room above its panels."""
    top.legend(
        handles=handles,
        loc="upper left",
        borderaxespad=0,
        borderpad=0,
        columnspacing=1.4,
        ncols=columns,
    )


def draw_legend_above(
    ax: Axes,
    columns: int | None = None,
    at: tuple[float, float] = (0, 1),
    handles: Sequence[Any] | None = None,
) -> None:
    """Draw the legend above a panel, where it hides nothing.

    Args:
        ax: The panel.
        columns: Number of columns; by default more than one for many short names.
        at: Position of the lower left corner, with the panel from (0, 0) to (1, 1).
        handles: Artists to name, in this order; by default all that have a label.
    """
    _, names = ax.get_legend_handles_labels()
    if columns is None:
        fitting = _LEGEND_LETTERS // (8 + max(map(len, names), default=0))
        columns = max(1, min(4, fitting)) if len(names) > _MAX_LEGEND_ROWS else 1
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=at,
        borderaxespad=0.3,
        borderpad=0,
        columnspacing=1.4,
        ncols=columns,
    )


def axis_limits(values: Iterable[float]) -> tuple[float, float]:
    """Return axis limits with room for all finite values; there must be at least one."""
    marks = finite_values(list(values))
    low, high = float(marks.min()), float(marks.max())
    room = 0.08 * (high - low) or max(0.5, 0.1 * abs(low))
    return low - room, high + room


def finite_values(values: Values) -> NDArray[np.float64]:
    """Return the values that can be drawn, without missing and infinite ones."""
    array = np.asarray(values, np.float64).ravel()
    return array[np.isfinite(array)]


def thin_values(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values to draw as points: if there are many, evenly spaced by rank."""
    if len(values) <= MAX_POINTS:
        return values
    places = np.linspace(0, len(values) - 1, MAX_POINTS).round().astype(int)
    return np.asarray(np.sort(values)[places])


def first_groups(groups: Mapping[str, Values], what: str) -> dict[str, NDArray[np.float64]]:
    """Return the groups to draw, with their finite values.

    Raises:
        UsageError: No group has a finite value.
    """
    kept = {name: finite_values(values) for name, values in groups.items()}
    if not any(len(values) for values in kept.values()):
        raise UsageError(f"nothing to draw: no group has a finite value of {what}")
    return dict(list(kept.items())[:MAX_GROUPS])


def clean_text(text: str) -> str:
    """Return an external text in one line, with control characters made visible."""
    return printable(" ".join(text.split()))


def shorten_text(text: str, longest: int = 28) -> str:
    """Return a text that fits next to an axis: one line, cut in the middle."""
    text = clean_text(text)
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def shorten_names(names: Iterable[str], longest: int = 28) -> list[str]:
    """Return names that fit next to an axis and remain distinct."""
    short: list[str] = []
    for name in (shorten_text(name, longest) for name in names):
        same = sum(1 for other in short if other.partition(" (#")[0] == name)
        short.append(f"{name} (#{same + 1})" if same else name)
    return short


def format_number(value: float, digits: int = 3) -> str:
    """Format a number as short text; an unknown one is a dash."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    value += 0.0
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def format_interval(interval: Interval, scale: float = 1) -> str:
    """Format an estimate with its bounds in brackets."""
    point = format_number(interval.point * scale)
    if not interval.known:
        return f"{point} [no interval]"
    ends = (format_number(end * scale) for end in (interval.low, interval.high))
    return f"{point} [{', '.join(ends)}]"


def format_compact(value: float, _position: object = None) -> str:
    """Format a number of steps for an axis: 20k, 1.5M, 2B."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def capitalize(text: str) -> str:
    """Return the text with its first letter capitalised."""
    return text[:1].upper() + text[1:]


def isolate_direction(text: str) -> str:
    """Isolate a right-to-left name, so that other text can follow it."""
    turned = any(unicodedata.bidirectional(char) in {"R", "AL"} for char in text)
    return f"\u2068{text}\u2069" if turned else text


def join_texts(texts: Iterable[str], most: int = 12) -> str:
    """Join texts in one line: the first ones, and the number of the rest."""
    texts = list(texts)
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more
