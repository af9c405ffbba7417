"""What was found, for people to read: tables of runs."""

from assay.report.anchors import HUMAN, Anchor
from assay.report.ranking import ranking_json
from assay.report.summary import ModelSummary, Trouble, as_json, summarize
from assay.report.tables import RunReport, as_text

__all__ = [
    "HUMAN",
    "Anchor",
    "ModelSummary",
    "RunReport",
    "Trouble",
    "as_json",
    "as_text",
    "ranking_json",
    "summarize",
]
