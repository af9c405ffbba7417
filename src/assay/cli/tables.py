"""Tables whose columns wrap in narrow terminals, and text that wraps between words.

In a pipe or a file a row is always one line, for programs that read lines.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from textwrap import wrap
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from cyclopts import Parameter, Token

from assay.cli.output import say, width_there_is
from assay.core.text import printable

_GAP: Final = "  "
_NARROW: Final = 12
"""Minimum width of a wrapped text column."""
_PIECES: Final = re.compile(r"[^-/]*[-/]|[^-/]+$")
"""Parts of a name; a name that is too long for its column is broken after any of them."""


def say_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str]
) -> None:
    """Print a table that is at most as wide as the terminal.

    Args:
        heads: Column names.
        rows: Cells of each row; untrusted text.
        left: Text columns, which may be wrapped; the others contain numbers.
    """
    for line in table_lines(heads, rows, left, width_there_is()):
        say(line)


def say_prose(text: str, indent: int = 2) -> None:
    """Print a line; if it is too long, wrap it and indent the rest by `indent`."""
    width, shown = width_there_is(), printable(text)
    if width is None or len(shown) <= width:
        say(shown)
        return
    start = len(shown) - len(shown.lstrip())
    for line in wrap(
        shown.lstrip(),
        max(width, 20),
        initial_indent=" " * start,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        say(line)


def table_lines(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[str],
    width: int | None = None,
) -> list[str]:
    """Format a table as lines of at most `width`, if that is possible without cutting words."""
    table = [
        _ListColumn([printable(cell) for cell in (head, *cells)], head in left)
        for head, *cells in zip(heads, *rows, strict=True)
    ]
    lines: list[str] = []
    for part in _parts(table, width):
        lines += ["", *_laid_out(part)] if lines else _laid_out(part)
    return lines


class _ListColumn(NamedTuple):
    cells: list[str]
    """Cells, with the head first; a cell may have several lines."""
    words: bool

    @property
    def width(self) -> int:
        return max(len(line) for cell in self.cells for line in cell.split("\n"))

    def folded(self, width: int) -> "_ListColumn":
        """Return the column wrapped to a width; of a number column, only the head wraps."""
        head, *cells = self.cells
        if self.words:
            cells = [_broken(cell, width) for cell in cells]
        return _ListColumn([_broken(head, width), *cells], self.words)


def _parts(table: Sequence[_ListColumn], width: int | None) -> Iterator[list[_ListColumn]]:
    """Split a table into parts that fit the width; each part starts with the first column."""
    first, *rest = table
    part = [first]
    for column in rest:
        if (
            width is not None
            and len(part) > 1
            and _total(_fitted([*part, column], width)) > width
        ):
            yield _fitted(part, width)
            part = [first]
        part.append(column)
    yield part if width is None else _fitted(part, width)


def _fitted(table: Sequence[_ListColumn], width: int) -> list[_ListColumn]:
    """Wrap the widest column, then the next one, until all fit or none can be wrapped."""
    fitted = [*table]
    while (over := _total(fitted) - width) > 0:
        narrower = {
            place: column.folded(max(_NARROW, now.width - over) if column.words else 1)
            for place, (column, now) in enumerate(zip(table, fitted, strict=True))
        }
        gains = [place for place in narrower if narrower[place].width < fitted[place].width]
        if not gains:
            break
        widest = max(gains, key=lambda place: fitted[place].width)
        fitted[widest] = narrower[widest]
    return fitted


def _broken(text: str, width: int) -> str:
    lines = [""]
    for word in text.split(" "):
        pieces = [word] if len(word) <= width else _PIECES.findall(word) or [word]
        for place, piece in enumerate(pieces):
            space = " " if lines[-1] and not place else ""
            if lines[-1] and len(lines[-1] + space + piece) > width:
                lines.append(piece)
            else:
                lines[-1] += space + piece
    return "\n".join(lines)


def _total(table: Sequence[_ListColumn]) -> int:
    return sum(column.width for column in table) + len(_GAP) * (len(table) - 1)


def _laid_out(table: Sequence[_ListColumn]) -> Iterator[str]:
    for row in zip(*(column.cells for column in table), strict=True):
        cells = [cell.split("\n") for cell in row]
        for at in range(max(map(len, cells))):
            texts = [cell[at] if at < len(cell) else "" for cell in cells]
            yield _GAP.join(
                text.ljust(column.width) if column.words else text.rjust(column.width)
                for text, column in zip(texts, table, strict=True)
            ).rstrip()


def _whole(kind: Any, tokens: Sequence[Token]) -> int:
    # By default, Cyclopts would round 1.5 to 2.
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number; give one such as 10") from None


Whole: TypeAlias = Annotated[int, Parameter(converter=_whole)]
"""Type of an option with an integer value."""
