"""A scripted player that plays above human level, from the local view alone."""

from .goals import Goal
from .policy import ExpertPolicy

__all__ = ["ExpertPolicy", "Goal"]
