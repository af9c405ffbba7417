"""Progress of an episode during play, and its result.

Plain values that are cheap to create each turn. Displays and other listeners read them; nothing
is stored from them. `TurnProgress` has totals since the start of the episode, so a listener
may miss some of them.
"""

from dataclasses import dataclass

from assay.runs.kind import TrialEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProgress:
    """Totals of an episode after a turn, counted from its start."""

    turn: int
    """Number of the last turn, counted from 1."""
    max_turns: int
    steps: int
    """Number of environment steps."""
    achievements: int | None
    """Number of different achievements; None if the environment has none."""
    reward: float
    asked: int
    """Number of requested actions, including unknown ones."""
    invalid: int
    """Number of requested actions that were unknown or had no effect."""
    tokens: int
    cost_usd: float | None
    """None if the price of a call is unknown."""
    note: str = ""
    """Short description of the turn; may contain text from a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEnd(TrialEnd):
    """Result of a finished episode; the value of its `TrialVerdict`."""

    achievements: int | None
    reward: float
    steps: int
    turns: int
    invalid_rate: float
    """Unknown actions and actions without effect, divided by requested actions; 0 if none."""
    tokens: int
    cost_usd: float | None
    """None if the price of a call is unknown."""
