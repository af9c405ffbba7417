"""A report before it is printed: words, tables and figures, the same for every format.

Texts in it are plain and untrusted; each renderer makes them safe in its own way. Figures are
drawn, and data for programs is made, when a renderer asks for it: building a document loads
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
    """A value, and what stands beside it: its interval, or its n."""

    value: str
    beside: str = ""


Row: TypeAlias = Sequence[str | Cell]
"""The cells of a row; the first names it."""


class Tone(StrEnum):
    """How words are meant."""

    PLAIN = "plain"
    """As any other."""
    NOTE = "note"
    """How to read what stands above."""
    WARNING = "warning"
    """Something went wrong."""
    CALLOUT = "callout"
    """Not to be missed, such as a verdict."""


@dataclass(frozen=True, slots=True)
class Words:
    """One paragraph."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Items:
    """Texts on a line each, below a title if there is one."""

    items: Sequence[str]
    title: str = ""
    tone: Tone = Tone.PLAIN


class Answer(NamedTuple):
    """One question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Answers:
    """Questions and their answers, in order; the first answer is the one to see first."""

    items: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """What it shows, the heads of its columns, and rows of the same length."""

    caption: str
    heads: Sequence[str]
    """The first stands above the names of the rows."""
    rows: Sequence[Row]
    note: str = ""
    dim: Collection[int] = ()
    """The places of rows that are there to compare with."""
    anchors: Mapping[int, str] = field(default_factory=dict)
    """What links call rows by, by their places."""
    links: Mapping[int, str] = field(default_factory=dict)
    """The anchors of rows elsewhere that say more of a row, by its place."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures that are drawn when somebody looks."""

    draw: "Callable[[], Iterable[Drawing]]"


Block: TypeAlias = Words | Items | Answers | ReportTable | Figures
"""Whatever a section is made of."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report."""

    title: str
    blocks: Sequence[Block]
    in_terminal: bool = True
    """Whether a terminal shows it too, and not files alone."""
    folded: bool = False
    """Whether it is for those who want to know more: a page folds it."""
    closing: bool = False
    """Whether a terminal shows it last, where everybody looks; a page shows it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report."""

    title: str
    sections: Sequence[Section]
    summary: Sequence[str] = ()
    """The answers in short, a sentence each, for a page and for those who read only that."""
    origin: Sequence[tuple[str, str]] = ()
    """What made it: versions, configuration, sources, by name."""
    more: str = ""
    """How to see the rest, which a terminal shows last; without it, long tables are whole."""
    values: Callable[[], Mapping[str, Any]] = dict
    """Everything in it for a program to read, as JSON has it."""
    rows: Callable[[], Sequence[Mapping[str, Any]]] = list
    """The same as rows for CSV, all with the same columns."""


def joined(cell: str | Cell) -> str:
    """A cell as one text."""
    return cell if isinstance(cell, str) else " ".join(filter(None, cell))


def short_name(text: str, longest: int = 80) -> str:
    """A name from outside in one line, cut where it is long, with nothing to obey in it."""
    shown = printable(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
