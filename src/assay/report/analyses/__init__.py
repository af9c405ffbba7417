"""How each analysis becomes a report."""

from assay.report.analyses.documents import analysis_document

__all__ = ["analysis_document"]
