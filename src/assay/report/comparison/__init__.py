"""Which of several subjects is better: the comparison, its words, and its formats.

matching ─► contrasts ─► verdicts ─► settling
                              └────► standings
all of it ─► facts ─► sections (words, tables) ─► text · markdown · html · tabular · values
"""

from assay.report.comparison.comparing import compare
from assay.report.comparison.document import Document
from assay.report.comparison.facts import Comparison, Contrast, Verdict
from assay.report.comparison.files import ENDINGS, check_endings, write_comparison
from assay.report.comparison.over_time import (
    OverTime,
    over_time,
    over_time_document,
    over_time_values,
    write_over_time,
)
from assay.report.comparison.sections import as_document
from assay.report.comparison.text import TerminalReport
from assay.report.comparison.values import as_values

__all__ = [
    "ENDINGS",
    "Comparison",
    "Contrast",
    "Document",
    "OverTime",
    "TerminalReport",
    "Verdict",
    "as_document",
    "as_values",
    "check_endings",
    "compare",
    "over_time",
    "over_time_document",
    "over_time_values",
    "write_comparison",
    "write_over_time",
]
