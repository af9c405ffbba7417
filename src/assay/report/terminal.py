"""A report for a terminal, or as plain text; no text in it is markup or a control sequence.

A table never breaks a number. An interval is next to its value if there is room, else below it;
if that is still too wide, the columns continue in a second table. The first column takes the
remaining width and folds longer names.
"""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from assay.core.text import printable
from assay.report.document import (
    Answers,
    Block,
    Cell,
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    Tone,
    join_cell,
    shorten_name,
)

_GAP = 2
_NARROW_NAME, _NARROWEST_NAME = 20, 12
_MAX_ROWS = 24
_MIN_SCREEN_LINES = 24
"""Lines of the smallest terminal."""
_STYLES = {Tone.PLAIN: "", Tone.NOTE: "dim", Tone.WARNING: "yellow", Tone.CALLOUT: "bold"}


@dataclass(frozen=True, slots=True)
class TerminalReport:
    """A document that Rich can print; figures are only written to files."""

    document: Document
    title: bool = True
    """Whether to print the title."""
    detail: bool = True
    """Whether to print sections that are folded in a page."""
    answer_first: bool = False
    """Whether the summary follows the title."""
    brief: bool = False
    """Whether to omit tables and lists after the first table if they do not fit."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = list(self._render_parts(options.ascii_only))
        if self.brief:
            parts = _fit_screen(parts, console, options)
        for index, (part, _) in enumerate(parts):
            if index:
                yield Text()
            yield part

    def _render_parts(self, ascii_only: bool) -> Iterator[tuple[RenderableType, bool]]:
        """Yield each part, and whether it is required."""
        document = self.document
        if self.title:
            yield _make_text(document.title, "bold", ascii_only), True
        if self.answer_first:
            for line in document.summary:
                yield _make_text(line, "bold", ascii_only), True
        sections = [
            section
            for section in document.sections
            if section.in_terminal and (self.detail or not section.folded)
        ]
        first = True
        for section in sections:
            if section.closing:
                continue
            for block in section.blocks:
                required = first or isinstance(block, Paragraph)
                first = first and not isinstance(block, ReportTable)
                for part in self._render_block(block, ascii_only):
                    yield part, required
        if document.more:
            yield _make_text(document.more, "dim", ascii_only), True
        for section in sections:
            if section.closing:
                for block in section.blocks:
                    for part in self._render_block(block, ascii_only):
                        yield part, True
                lines = [_make_text(line, "bold", ascii_only) for line in document.summary]
                yield Text("\n").join(lines), True

    def _render_block(self, block: Block, ascii_only: bool) -> Iterator[RenderableType]:
        if isinstance(block, ReportTable) and not self.detail:
            block = replace(block, note="")
        yield from _render_block(block, ascii_only, cut=bool(self.document.more))


def _fit_screen(
    parts: Sequence[tuple[RenderableType, bool]], console: Console, options: ConsoleOptions
) -> list[tuple[RenderableType, bool]]:
    """Keep the required parts, and as many of the others, in order, as fit on the screen."""
    sizes = [len(console.render_lines(part, options, pad=False)) + 1 for part, _ in parts]
    # The last line is for the next command.
    room = max(_MIN_SCREEN_LINES, console.height) - 1
    room -= sum(size for (_, required), size in zip(parts, sizes, strict=True) if required)
    kept = []
    for (part, required), size in zip(parts, sizes, strict=True):
        if not required:
            if size > room:
                continue
            room -= size
        kept.append((part, required))
    return kept


class _EncodedBuffer(io.StringIO):
    """A text buffer with a declared encoding."""

    encoding = "utf-8"


def render_text(report: RenderableType, width: int = 100, encoding: str = "utf-8") -> str:
    """Render a report for a file or a pipe: no colours or codes, lines up to `width`."""
    buffer = _EncodedBuffer()
    buffer.encoding = encoding
    console = Console(
        file=buffer, width=width, color_system=None, force_terminal=False, record=False
    )
    with console.capture() as captured:
        console.print(report)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _make_text(text: str, style: str, ascii_only: bool) -> Text:
    return Text(_make_printable(text, ascii_only), style=style)


def _make_printable(text: str, ascii_only: bool) -> str:
    text = printable(text)
    if not ascii_only:
        return text
    plain = text.replace("±", "+-").replace("…", "...")
    return plain.encode("ascii", "backslashreplace").decode()


def _render_block(block: Block, ascii_only: bool, *, cut: bool) -> Iterator[RenderableType]:
    match block:
        case Paragraph(text, tone):
            yield _make_text(text, _STYLES[tone], ascii_only)
        case Items(items, title, tone):
            lines = [_make_text(title, "bold", ascii_only)] if title else []
            indent = "  " if title else ""
            lines += [_make_text(indent + item, _STYLES[tone], ascii_only) for item in items]
            yield Text("\n").join(lines)
        case Answers(items):
            for index, (question, answer) in enumerate(items):
                words = _make_text(answer, "" if index else "bold", ascii_only)
                yield Group(_make_text(question, "", ascii_only), Padding(words, (0, 0, 0, 2)))
        case ReportTable():
            rows = block.rows[:_MAX_ROWS] if cut else block.rows
            yield _TableLayout(block, rows)
            rest = len(block.rows) - len(rows)
            notes = [f"{rest:,} more rows; --output shows them."] if rest else []
            notes += [block.note] if block.note else []
            if notes:
                yield Text("\n").join(_make_text(note, "dim", ascii_only) for note in notes)
        case Figures():
            pass


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    texts: Sequence[str]

    @property
    def width(self) -> int:
        lines = "\n".join([self.head, *self.texts]).split("\n")
        return _GAP + max(map(cell_len, lines))


@dataclass(frozen=True, slots=True)
class _TableLayout:
    """A table laid out for the available width."""

    table: ReportTable
    rows: Sequence[Sequence[str | Cell]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, ascii_only = options.max_width, options.ascii_only
        corner, *heads = (_make_printable(head, ascii_only) for head in self.table.heads)
        labels = [
            _make_printable(shorten_name(join_cell(row[0])), ascii_only) for row in self.rows
        ]
        columns = [
            [_make_cell_printable(row[index], ascii_only) for row in self.rows]
            for index in range(1, len(self.table.heads))
        ]
        longest = max([cell_len(corner), *map(cell_len, labels)])
        laid_out = [
            _align_side_by_side(head, cells) for head, cells in zip(heads, columns, strict=True)
        ]
        if _total_width(laid_out) + min(_NARROW_NAME, longest) > width:
            laid_out = [
                _stack_below(head, cells) for head, cells in zip(heads, columns, strict=True)
            ]
        if self.table.caption:
            yield _make_text(self.table.caption, "bold", ascii_only)
        for part in _split_columns(laid_out, width - min(_NARROWEST_NAME, longest)):
            yield self._build_table(corner, labels, width, part)

    def _build_table(
        self, corner: str, labels: Sequence[str], width: int, columns: Sequence[_Column]
    ) -> RichTable:
        longest = max([cell_len(corner), *map(cell_len, labels)])
        least = min(_NARROWEST_NAME, longest)
        room = max(least, min(longest, width - _total_width(columns)))
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.collapse_padding = True
        table.add_column(Text(corner), width=room, overflow="fold", vertical="top")
        for column in columns:
            # Numbers always fit; longer words are folded.
            fits = column.width <= width - room
            table.add_column(Text(column.head), justify="right", no_wrap=fits, overflow="fold")
        for index, label in enumerate(labels):
            texts = [_fold_name(label, room), *(column.texts[index] for column in columns)]
            table.add_row(*map(Text, texts), style="dim" if index in self.table.dim else None)
        return table


def _make_cell_printable(cell: str | Cell, ascii_only: bool) -> Cell:
    value, detail = (cell, "") if isinstance(cell, str) else cell
    return Cell(*(_make_printable(shorten_name(text), ascii_only) for text in (value, detail)))


def _align_side_by_side(head: str, cells: Sequence[Cell]) -> _Column:
    """Return a column with values and intervals aligned side by side."""
    value = max((len(cell.value) for cell in cells if cell.detail), default=0)
    detail = max((len(cell.detail) for cell in cells), default=0)
    return _Column(
        head,
        [
            f"{cell.value:>{value}} {cell.detail:<{detail}}" if cell.detail else cell.value
            for cell in cells
        ],
    )


def _stack_below(head: str, cells: Sequence[Cell]) -> _Column:
    """Return a narrow column with intervals below their values."""
    return _Column(head.replace(" ", "\n"), ["\n".join(filter(None, cell)) for cell in cells])


def _total_width(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns)


def _split_columns(columns: Sequence[_Column], room: int) -> Iterator[list[_Column]]:
    part: list[_Column] = []
    for column in columns:
        if part and _total_width(part) + column.width > room:
            yield part
            part = []
        part.append(column)
    yield part


def _fold_name(name: str, width: int) -> str:
    """Fold a name to lines of `width`, preferably after a separator."""
    lines = [""]
    for piece in re.findall(r"[^-/_:. ]*[-/_:. ]?", name):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)
