"""A player that knows the first tools only, and sees one observation at a time."""

from .turn import ForagerTurn, forage

__all__ = ["ForagerTurn", "forage"]
