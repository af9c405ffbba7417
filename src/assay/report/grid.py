"""A table of models and numbers that never breaks a number.

Where there is room, an interval stands beside its value; where there is less, below it; and
where that is not enough, the columns go on in a second table. The first column takes what is
left and folds names that are longer.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from assay.report.cells import Cell, only_ascii

__all__ = ["Grid", "Row"]

_GAP = 2
_NARROW_NAME, _NARROWEST_NAME = 20, 12


@dataclass(frozen=True, slots=True)
class Row:
    """One model's line."""

    name: str
    cells: Sequence[Cell]
    dim: bool = False


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    texts: Sequence[str]

    @property
    def width(self) -> int:
        lines = "\n".join([self.head, *self.texts]).split("\n")
        return _GAP + max(map(cell_len, lines))


@dataclass(frozen=True, slots=True)
class Grid:
    """A title, the heads of the columns after the first, and a row per model."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Row]
    corner: str = "Model"
    """The head of the first column."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the table out for the width there is."""
        width = options.max_width
        names = [row.name for row in self.rows]
        columns = [_beside(head, cells) for head, cells in self._by_column()]
        if options.ascii_only:
            names, columns = [only_ascii(one) for one in names], _ascii(columns)
        longest = max([cell_len(self.corner), *map(cell_len, names)])
        if _total(columns) + min(_NARROW_NAME, longest) > width:
            columns = [_below(head, cells) for head, cells in self._by_column()]
            columns = _ascii(columns) if options.ascii_only else columns
        yield Text(self.title, style="bold")
        for part in _parts(columns, width - min(_NARROWEST_NAME, longest)):
            room = max(min(_NARROWEST_NAME, longest), min(longest, width - _total(part)))
            yield self._table([_folded(name, room) for name in names], room, part)

    def _by_column(self) -> Iterator[tuple[str, list[Cell]]]:
        for at, head in enumerate(self.heads):
            yield head, [row.cells[at] for row in self.rows]

    def _table(self, names: Sequence[str], room: int, columns: Sequence[_Column]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.collapse_padding = True
        table.add_column(Text(self.corner), width=room, overflow="fold", vertical="top")
        for column in columns:
            table.add_column(Text(column.head), justify="right", no_wrap=True)
        for at, row in enumerate(self.rows):
            texts = [names[at], *(column.texts[at] for column in columns)]
            table.add_row(*map(Text, texts), style="dim" if row.dim else None)
        return table


def _beside(head: str, cells: Sequence[Cell]) -> _Column:
    """A column with values under values, and intervals under intervals."""
    value = max((len(cell.value) for cell in cells), default=0)
    beside = max((len(cell.beside) for cell in cells), default=0)
    if not beside:
        return _Column(head, [cell.value for cell in cells])
    return _Column(head, [f"{cell.value:>{value}} {cell.beside:<{beside}}" for cell in cells])


def _below(head: str, cells: Sequence[Cell]) -> _Column:
    """A narrow column with intervals under their values."""
    return _Column(head.replace(" ", "\n"), ["\n".join(filter(None, cell)) for cell in cells])


def _ascii(columns: Sequence[_Column]) -> list[_Column]:
    return [_Column(one.head, [only_ascii(text) for text in one.texts]) for one in columns]


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns)


def _parts(columns: Sequence[_Column], room: int) -> Iterator[list[_Column]]:
    part: list[_Column] = []
    for column in columns:
        if part and _total(part) + column.width > room:
            yield part
            part = []
        part.append(column)
    yield part


def _folded(name: str, width: int) -> str:
    """A name in lines of `width`, broken after a separator where there is one."""
    lines = [""]
    for piece in re.findall(r"[^-/_:. ]*[-/_:. ]?", name):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)
