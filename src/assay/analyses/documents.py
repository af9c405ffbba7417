"""The report of an analysis, by its type."""

from collections.abc import Callable
from typing import Any

from assay.analyses.achievements import AchievementsAnalysis, achievements_document
from assay.analyses.actions import ActionsAnalysis, actions_document
from assay.analyses.costs import CostsAnalysis, costs_document
from assay.analyses.deaths import DeathsAnalysis, deaths_document
from assay.analyses.enhanced_hooks import EnhancedHooksAnalysis, enhanced_hooks_document
from assay.analyses.hooks import HooksAnalysis, hooks_document
from assay.analyses.quality import QualityAnalysis, quality_document
from assay.analyses.training import TrainingAnalysis, training_document
from assay.analyses.worlds import WorldsAnalysis, seeds_document
from assay.report.document import Document

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
