"""Training data: what filters left of the turns, and which actions its answers begin with."""

from collections.abc import Mapping, Sequence
from typing import Final

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    INK,
    compact,
    in_style,
    listed,
    look,
    new_figure,
    plain,
    shortened,
)

__all__ = ["first_actions", "turns_left"]

_MOST: Final = 16


@in_style()
def turns_left(steps: Sequence[tuple[str, int]]) -> Drawing:
    """How many turns are left after each filter, one bar per step.

    Args:
        steps: The name of each step and the turns after it, the first before all filters.

    Raises:
        UsageError: There were no turns.
    """
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
    """How many rows have an answer that begins with each action.

    Args:
        counts: Rows by their action.
        held_out: How many of them are held out.

    Raises:
        UsageError: There are no rows.
    """
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
    # The numbers stand at the bars, and lines would run through them.
    ax.grid(visible=False)
    ax.xaxis.set_major_formatter(compact)
    ax.set_xlim(0, max(counts) * 1.3)
    ax.set_xlabel(label)
    said = listed((f"{name} {count:,}" for name, count in rows), _MOST)
    table = ReportTable(title, (head, label), [(name, f"{n:,}") for name, n in rows])
    return Drawing(title, f"{title}: {said}.", note, figure, table)
