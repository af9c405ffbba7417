"""Tables whose columns wrap in narrow terminals, and text that wraps between words.

In a pipe or a file a row is always one line, for programs that read lines.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from textwrap import wrap
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from cyclopts import Parameter, Token

from assay.cli.output import find_output_width, print_line
from assay.core.text import printable

_GAP: Final = "  "
_MIN_TEXT_WIDTH: Final = 12
"""Minimum width of a wrapped text column."""
_NAME_PARTS: Final = re.compile(r"[^-/]*[-/]|[^-/]+$")
"""Parts of a name; a name that is too long for its column is broken after any of them."""


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str]
) -> None:
    """Print a table that is at most as wide as the terminal.

    Args:
        heads: Column names.
        rows: Cells of each row; untrusted text.
        left: Text columns, which may be wrapped; the others contain numbers.
    """
    for line in format_table(heads, rows, left, find_output_width()):
        print_line(line)


def print_wrapped(text: str, indent: int = 2) -> None:
    """Print a line; if it is too long, wrap it and indent the rest by `indent`."""
    width, shown = find_output_width(), printable(text)
    if width is None or len(shown) <= width:
        print_line(shown)
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
        print_line(line)


def format_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[str],
    width: int | None = None,
) -> list[str]:
    """Format a table as lines of at most `width`, if that is possible without cutting words."""
    table = [
        _Column([printable(cell) for cell in (head, *cells)], head in left)
        for head, *cells in zip(heads, *rows, strict=True)
    ]
    lines: list[str] = []
    for part in _split_table(table, width):
        lines += ["", *_format_rows(part)] if lines else _format_rows(part)
    return lines


class _Column(NamedTuple):
    cells: list[str]
    """Cells, with the head first; a cell may have several lines."""
    is_text: bool

    @property
    def width(self) -> int:
        return max(len(line) for cell in self.cells for line in cell.split("\n"))

    def wrap_to(self, width: int) -> "_Column":
        """Return the column wrapped to a width; of a number column, only the head wraps."""
        head, *cells = self.cells
        if self.is_text:
            cells = [_wrap_cell(cell, width) for cell in cells]
        return _Column([_wrap_cell(head, width), *cells], self.is_text)


def _split_table(table: Sequence[_Column], width: int | None) -> Iterator[list[_Column]]:
    """Split a table into parts that fit the width; each part starts with the first column."""
    first, *rest = table
    part = [first]
    for column in rest:
        if (
            width is not None
            and len(part) > 1
            and _compute_width(_fit_columns([*part, column], width)) > width
        ):
            yield _fit_columns(part, width)
            part = [first]
        part.append(column)
    yield part if width is None else _fit_columns(part, width)


def _fit_columns(table: Sequence[_Column], width: int) -> list[_Column]:
    """Wrap the widest column, then the next one, until all fit or none can be wrapped."""
    fitted = [*table]
    while (over := _compute_width(fitted) - width) > 0:
        narrower = {
            place: column.wrap_to(
                max(_MIN_TEXT_WIDTH, now.width - over) if column.is_text else 1
            )
            for place, (column, now) in enumerate(zip(table, fitted, strict=True))
        }
        gains = [place for place in narrower if narrower[place].width < fitted[place].width]
        if not gains:
            break
        widest = max(gains, key=lambda place: fitted[place].width)
        fitted[widest] = narrower[widest]
    return fitted


def _wrap_cell(text: str, width: int) -> str:
    lines = [""]
    for word in text.split(" "):
        pieces = [word] if len(word) <= width else _NAME_PARTS.findall(word) or [word]
        for place, piece in enumerate(pieces):
            space = " " if lines[-1] and not place else ""
            if lines[-1] and len(lines[-1] + space + piece) > width:
                lines.append(piece)
            else:
                lines[-1] += space + piece
    return "\n".join(lines)


def _compute_width(table: Sequence[_Column]) -> int:
    return sum(column.width for column in table) + len(_GAP) * (len(table) - 1)


def _format_rows(table: Sequence[_Column]) -> Iterator[str]:
    for row in zip(*(column.cells for column in table), strict=True):
        cells = [cell.split("\n") for cell in row]
        for at in range(max(map(len, cells))):
            texts = [cell[at] if at < len(cell) else "" for cell in cells]
            yield _GAP.join(
                text.ljust(column.width) if column.is_text else text.rjust(column.width)
                for text, column in zip(texts, table, strict=True)
            ).rstrip()


def _parse_whole(kind: Any, tokens: Sequence[Token]) -> int:
    # By default, Cyclopts would round 1.5 to 2.
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number; give one such as 10") from None


Whole: TypeAlias = Annotated[int, Parameter(converter=_parse_whole)]
"""Type of an option with an integer value."""
