"""A scripted player that plays above human level, from the local view alone."""

from assay.players.expert.goals import Goal
from assay.players.expert.policy import ExpertPolicy

__all__ = ["ExpertPolicy", "Goal"]
