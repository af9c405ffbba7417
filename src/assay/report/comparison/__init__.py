"""The report of a comparison that `judge` made: words, tables, figures, and data."""

from assay.report.comparison.document import comparison_document

__all__ = ["comparison_document"]
