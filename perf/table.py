"""The rows of a run as a table, as plain text, or as JSON."""

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .measure import Row, Topic

__all__ = ["amount", "as_json", "number", "print_results", "verdict"]

_HEADINGS = ("what", "ours", "peer", "ratio", "spread", "rounds", "target", "met")
_NOTE_WIDTH = 96


def print_results(results: Sequence[tuple[Topic, list[Row]]]) -> None:
    """Print one table and the notes below it; without a terminal, as plain text."""
    console = Console()
    if console.is_terminal:
        _print_table(console, results)
    else:
        _print_plain(results)
    for topic, _ in results:
        for note in topic.notes:
            print()
            print(textwrap.fill(f"{topic.name}: {note}", _NOTE_WIDTH))


def _print_table(console: Console, results: Sequence[tuple[Topic, list[Row]]]) -> None:
    table = Table(
        box=box.SIMPLE_HEAD,
        title="how many times quicker or smaller than the peer; medians of the rounds",
    )
    for heading in _HEADINGS:
        right = heading in ("ratio", "spread", "rounds", "target")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for topic, rows in results:
        for row in rows:
            style = "red" if row.met is False or row.problem else "dim" if row.skipped else None
            table.add_row(*_cells(topic, row), style=style)
        table.add_section()
    console.print(table)


def _print_plain(results: Sequence[tuple[Topic, list[Row]]]) -> None:
    lines = [_HEADINGS, *(_cells(topic, row) for topic, rows in results for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def _cells(topic: Topic, row: Row) -> tuple[str, ...]:
    target = _target(row)
    peer_unit = row.peer_unit or ("step" if row.cost else topic.unit)
    if not row.ours_values:
        reason = f"failed: {row.problem}" if row.problem else str(row.skipped)
        return (row.what, "-", row.against, reason, "-", "0", target, "-")
    return (
        row.what,
        amount(topic, row.ours_values, topic.unit),
        f"{row.against}: {amount(topic, row.peer_values, peer_unit)}",
        _ratio(row.median, row.cost),
        f"{number(min(row.ratios))}-{number(max(row.ratios))}",
        str(len(row.ratios)),
        target,
        {True: "yes", False: "no", None: "-"}[row.met],
    )


def _target(row: Row) -> str:
    if row.most is not None:
        return f"<= {row.most:g}x"
    return f">= {number(row.target)}x" if row.target is not None else "-"


def _ratio(value: float, cost: str | None) -> str:
    return f"{number(value)} {cost}" if cost else f"{number(value)}x"


def number(value: float) -> str:
    """A ratio with as many digits as it is worth."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def amount(topic: Topic, values: Sequence[float], unit: str) -> str:
    """The median of values, in the topic's unit."""
    median = statistics.median(values)
    if topic.counted is not None:
        return f"{median:,.0f} {topic.counted}/{unit}"
    if topic.in_bytes:
        for size, name in ((2**20, "MB"), (2**10, "KB")):
            if median >= size:
                return f"{median / size:.3g} {name}/{unit}"
        return f"{median:.3g} B/{unit}"
    return _duration(median, unit)


def _duration(median: float, unit: str) -> str:
    for scale, name in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if median * scale >= 1:
            return f"{median * scale:.3g} {name}/{unit}"
    return f"{median * 1e9:.3g} ns/{unit}"


def verdict(results: Sequence[tuple[Topic, list[Row]]]) -> str:
    """How many targets are met and which rows failed, in one line."""
    aimed = [
        (topic, row)
        for topic, rows in results
        for row in rows
        if row.target is not None or row.most is not None
    ]
    rows = [row for _, row in aimed]
    judged = [row for row in rows if row.met is not None]
    line = f"targets met: {sum(row.met is True for row in judged)} of {len(judged)}"
    if any(row in judged and len(row.ratios) < _enough(topic) for topic, row in aimed):
        line += " (too few rounds: no verdict)"
    if len(judged) < len(rows):
        line += f"; not measured: {', '.join(row.name for row in rows if row.met is None)}"
    failed = [row.name for _, measured in results for row in measured if row.problem]
    return f"{line}; failed: {', '.join(failed)}" if failed else line


def _enough(topic: Topic) -> int:
    """How many rounds a verdict takes."""
    return min(10, topic.rounds_at_most or 10)


def as_json(topic: Topic, row: Row) -> dict[str, Any]:
    """A row for a program to read, with the times of every round."""
    measured = bool(row.ours_values)
    return {
        "topic": topic.name,
        "name": row.name,
        "what": row.what,
        "unit": topic.unit,
        "peer": row.against,
        "values_are": topic.counted or ("bytes" if topic.in_bytes else "seconds"),
        "ratio_is": f"cost in {row.cost}" if row.cost else "peer over ours",
        "ratio_median": row.median if measured else None,
        "ratio_min": min(row.ratios) if measured else None,
        "ratio_max": max(row.ratios) if measured else None,
        "ratios": row.ratios,
        "ours_values": row.ours_values,
        "peer_values": row.peer_values,
        "target": row.target,
        "most": row.most,
        "met": row.met,
        "skipped": row.skipped,
        "problem": row.problem,
    }
