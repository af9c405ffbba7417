"""The report of an analysis, by its type."""

from collections.abc import Callable
from typing import Any

from assay.analyses.achievements import AchievementsAnalysis
from assay.analyses.actions import ActionsAnalysis
from assay.analyses.costs import CostsAnalysis
from assay.analyses.deaths import DeathsAnalysis
from assay.analyses.enhanced_hooks import EnhancedHooksAnalysis
from assay.analyses.hooks import HooksAnalysis
from assay.analyses.quality import QualityAnalysis
from assay.analyses.training import TrainingAnalysis
from assay.analyses.worlds import WorldsAnalysis
from assay.report.analyses.achievements import achievements_document
from assay.report.analyses.actions import actions_document
from assay.report.analyses.costs import costs_document
from assay.report.analyses.deaths import deaths_document
from assay.report.analyses.enhanced_hooks import enhanced_hooks_document
from assay.report.analyses.hooks import hooks_document
from assay.report.analyses.quality import quality_document
from assay.report.analyses.training import training_document
from assay.report.analyses.worlds import seeds_document
from assay.report.document import Document

__all__ = ["analysis_document"]

_DOCUMENTS: dict[type, Callable[[Any], Document]] = {
    AchievementsAnalysis: achievements_document,
    DeathsAnalysis: deaths_document,
    HooksAnalysis: hooks_document,
    ActionsAnalysis: actions_document,
    CostsAnalysis: costs_document,
    WorldsAnalysis: seeds_document,
    EnhancedHooksAnalysis: enhanced_hooks_document,
    QualityAnalysis: quality_document,
    TrainingAnalysis: training_document,
}


def analysis_document(found: Any) -> Document:
    """The report of an analysis, whichever it is."""
    return _DOCUMENTS[type(found)](found)
