"""Report before rendering: text, tables and figures, independent of the format.

Texts in it are plain and untrusted; each renderer escapes them for its format. Figures are
drawn, and data for programs is built, when a renderer needs them: building a document imports
neither matplotlib nor Rich.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from assay.core.text import printable

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing


class Cell(NamedTuple):
    """A value, and the text next to it: its interval, or its n."""

    value: str
    detail: str = ""


Row: TypeAlias = Sequence[str | Cell]
"""The cells of a row; the first is its name."""


class Tone(StrEnum):
    """Purpose of a text."""

    PLAIN = "plain"
    """Ordinary text."""
    NOTE = "note"
    """Explanation of the block above."""
    WARNING = "warning"
    """A problem."""
    CALLOUT = "callout"
    """An important statement, such as a verdict."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Items:
    """Texts on one line each, below an optional title."""

    items: Sequence[str]
    title: str = ""
    tone: Tone = Tone.PLAIN


class Answer(NamedTuple):
    """One question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Answers:
    """Questions and answers, in order; the first answer is the most important."""

    items: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table with a caption, column heads, and rows of equal length."""

    caption: str
    heads: Sequence[str]
    """The first is above the names of the rows."""
    rows: Sequence[Row]
    note: str = ""
    dim: Collection[int] = ()
    """Indices of rows that are shown only for reference."""
    anchors: Mapping[int, str] = field(default_factory=dict)
    """Link targets, by row index."""
    links: Mapping[int, str] = field(default_factory=dict)
    """Anchors of rows elsewhere with more details, by row index."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures that are drawn on demand."""

    draw: "Callable[[], Iterable[Drawing]]"


Block: TypeAlias = Paragraph | Items | Answers | ReportTable | Figures
"""Any element of a section."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report."""

    title: str
    blocks: Sequence[Block]
    in_terminal: bool = True
    """Whether terminals show it, too, not only files."""
    folded: bool = False
    """Whether it has details that a page folds."""
    closing: bool = False
    """Whether a terminal shows it last, where it is seen first; a page shows it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report."""

    title: str
    sections: Sequence[Section]
    summary: Sequence[str] = ()
    """Short answers, one sentence each."""
    origin: Sequence[tuple[str, str]] = ()
    """Provenance: versions, configuration, sources, by name."""
    more: str = ""
    """How to see the rest; a terminal prints it last. If empty, long tables are not cut."""
    values: Callable[[], Mapping[str, Any]] = dict
    """All content for programs, as in the JSON output."""
    rows: Callable[[], Sequence[Mapping[str, Any]]] = list
    """Content as CSV rows, all with the same columns."""


def join_cell(cell: str | Cell) -> str:
    """Return a cell as one text."""
    return cell if isinstance(cell, str) else " ".join(filter(None, cell))


def shorten_name(text: str, longest: int = 80) -> str:
    """Return an external name in one printable line, cut if it is long."""
    shown = printable(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
