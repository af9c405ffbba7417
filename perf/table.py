"""The rows of a run as a table, as plain text, or as JSON."""

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .measure import Row, Topic

__all__ = ["as_json", "format_amount", "format_ratio_number", "format_verdict", "print_results"]

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
            table.add_row(*_format_cells(topic, row), style=style)
        table.add_section()
    console.print(table)


def _print_plain(results: Sequence[tuple[Topic, list[Row]]]) -> None:
    lines = [_HEADINGS, *(_format_cells(topic, row) for topic, rows in results for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def _format_cells(topic: Topic, row: Row) -> tuple[str, ...]:
    target = _format_target(row)
    peer_unit = row.peer_unit or ("step" if row.cost else topic.unit)
    if not row.ours_values:
        reason = f"failed: {row.problem}" if row.problem else str(row.skipped)
        return (row.what, "-", row.against, reason, "-", "0", target, "-")
    return (
        row.what,
        format_amount(topic, row.ours_values, topic.unit),
        f"{row.against}: {format_amount(topic, row.peer_values, peer_unit)}",
        _format_ratio(row.median, row.cost),
        f"{format_ratio_number(min(row.ratios))}-{format_ratio_number(max(row.ratios))}",
        str(len(row.ratios)),
        target,
        {True: "yes", False: "no", None: "-"}[row.met],
    )


def _format_target(row: Row) -> str:
    if row.most is not None:
        return f"<= {row.most:g}x"
    return f">= {format_ratio_number(row.target)}x" if row.target is not None else "-"


def _format_ratio(value: float, cost: str | None) -> str:
    return f"{format_ratio_number(value)} {cost}" if cost else f"{format_ratio_number(value)}x"


def format_ratio_number(value: float) -> str:
    """Format a ratio with significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_amount(topic: Topic, values: Sequence[float], unit: str) -> str:
    """Format the median of values in the unit of the topic."""
    median = statistics.median(values)
    if topic.counted is not None:
        return f"{median:,.0f} {topic.counted}/{unit}"
    if topic.in_bytes:
        for size, name in ((2**20, "MB"), (2**10, "KB")):
            if median >= size:
                return f"{median / size:.3g} {name}/{unit}"
        return f"{median:.3g} B/{unit}"
    return _format_duration(median, unit)


def _format_duration(median: float, unit: str) -> str:
    for scale, name in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if median * scale >= 1:
            return f"{median * scale:.3g} {name}/{unit}"
    return f"{median * 1e9:.3g} ns/{unit}"


def format_verdict(results: Sequence[tuple[Topic, list[Row]]]) -> str:
    """Summarize in one line how many targets are met and which rows failed."""
    aimed = [
        (topic, row)
        for topic, rows in results
        for row in rows
        if row.target is not None or row.most is not None
    ]
    rows = [row for _, row in aimed]
    judged = [row for row in rows if row.met is not None]
    line = f"targets met: {sum(row.met is True for row in judged)} of {len(judged)}"
    if any(
        row in judged and len(row.ratios) < _count_required_rounds(topic)
        for topic, row in aimed
    ):
        line += " (too few rounds: no verdict)"
    if len(judged) < len(rows):
        line += f"; not measured: {', '.join(row.name for row in rows if row.met is None)}"
    failed = [row.name for _, measured in results for row in measured if row.problem]
    return f"{line}; failed: {', '.join(failed)}" if failed else line


def _count_required_rounds(topic: Topic) -> int:
    """Return the number of rounds a verdict needs."""
    return min(10, topic.rounds_at_most or 10)


def as_json(topic: Topic, row: Row) -> dict[str, Any]:
    """Return a row for programs, with the values of every round."""
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
