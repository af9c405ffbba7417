"""A report for a terminal. Names and notes reach it as text, never as markup or commands."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from assay._util.text import printable
from assay.report import cells
from assay.report.cells import Cell
from assay.report.comparison.document import Answers, Block, Document, Sheet, Words
from assay.report.grid import Grid, Row

__all__ = ["TerminalReport"]

_MOST_ROWS = 24
_LEFT_TO_FILES = ("metrics", "origins")
"""Sections that say nothing about who is better."""


@dataclass(frozen=True, slots=True)
class TerminalReport:
    """A document as Rich prints it: long tables are cut, and say so."""

    document: Document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Everything in order, an empty line between the parts."""
        for at, part in enumerate(self._parts()):
            if at:
                yield Text()
            if isinstance(part, Text) and options.ascii_only:
                part = Text(cells.only_ascii(part.plain))
            yield part

    def _parts(self) -> Iterator[RenderableType]:
        yield Text(printable(self.document.title), style="bold")
        for section in self.document.sections:
            if section.key not in _LEFT_TO_FILES:
                for block in section.blocks:
                    yield from _block(block)
        made = {fact.name: fact.value for fact in self.document.made}
        yield Text(
            printable(
                f"assay {made.get('assay', '?')}, commit {made.get('commit', '?')}, generator"
                f" seed {made.get('generator seed', '?')}. --output report.html writes figures,"
                " versions and sources too."
            ),
            style="dim",
        )


def _block(block: Block) -> Iterator[RenderableType]:
    match block:
        case Words(text):
            yield Text(printable(text), style="dim")
        case Answers(items):
            for at, (question, answer) in enumerate(items):
                words = Text(printable(answer), style="bold" if at == 0 else "")
                yield Group(Text(printable(question)), Padding(words, (0, 0, 0, 2)))
        case Sheet():
            yield from _sheet(block)


def _sheet(sheet: Sheet) -> Iterator[RenderableType]:
    rows = [
        Row(cells.name(name), [_safe(cell) for cell in values])
        for name, values in sheet.rows[:_MOST_ROWS]
    ]
    corner, *heads = map(printable, sheet.heads)
    yield Grid(printable(sheet.caption), heads, rows, corner)
    rest = len(sheet.rows) - _MOST_ROWS
    notes = [f"{rest:,} more rows; --output shows them."] if rest > 0 else []
    notes += [printable(sheet.note)] if sheet.note else []
    if notes:
        yield Text("\n".join(notes), style="dim")


def _safe(cell: Cell) -> Cell:
    return Cell(cells.name(cell.value), cells.name(cell.beside))
