"""A report before it is printed: sections of words and tables, the same for every format.

Texts in it are untrusted and plain; each format makes them safe in its own way. Figures are
not part of it: a format that can show them asks for those of a section by its key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from assay.report.cells import Cell
from assay.report.comparison.words import Answer

__all__ = ["Answers", "Block", "Document", "Fact", "Section", "Sheet", "Words"]


@dataclass(frozen=True, slots=True)
class Words:
    """One paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Answers:
    """Questions and their answers, in order; the first answer is the one to see first."""

    items: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: what it shows, the heads of its columns, and rows that begin with a name."""

    caption: str
    heads: Sequence[str]
    """The first stands above the names."""
    rows: Sequence[tuple[str, Sequence[Cell]]]
    note: str = ""


Block: TypeAlias = Words | Answers | Sheet


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report."""

    key: str
    """What its figures are asked for by."""
    title: str
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """One line about what made the report."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    summary: Sequence[str]
    """The answers in short, a sentence each."""
    sections: Sequence[Section]
    made: Sequence[Fact] = field(default=())
    """What made it: versions, configuration, sources."""
