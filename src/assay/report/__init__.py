"""What was found, for people and programs to read.

runs · comparison · over_time · variance · analysis ─► document
document ─► terminal · html · markdown · data (JSON, CSV), as `files` by their ending
"""

from assay.report.document import Document
from assay.report.files import check_endings, write_document
from assay.report.runs import ranking_json, run_document
from assay.report.summary import ErrorGroup, ModelSummary, summaries_json, summarize

__all__ = [
    "Document",
    "ErrorGroup",
    "ModelSummary",
    "check_endings",
    "ranking_json",
    "run_document",
    "summaries_json",
    "summarize",
    "write_document",
]
