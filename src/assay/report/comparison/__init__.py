"""A comparison that `judge` made, in words and tables, and its formats.

facts ─► sections (words, tables) ─► text · markdown · html · tabular · values
"""

from assay.report.comparison.document import Document
from assay.report.comparison.files import ENDINGS, check_endings, write_comparison
from assay.report.comparison.over_time import (
    over_time_document,
    over_time_values,
    write_over_time,
)
from assay.report.comparison.sections import as_document
from assay.report.comparison.text import TerminalReport
from assay.report.comparison.values import as_values

__all__ = [
    "ENDINGS",
    "Document",
    "TerminalReport",
    "as_document",
    "as_values",
    "check_endings",
    "over_time_document",
    "over_time_values",
    "write_comparison",
    "write_over_time",
]
