"""What an episode tells while it is played, and what it came to.

Plain values, cheap to make once per turn: displays and other listeners read them, nothing
is stored from them. `TurnProgress` counts from the start of the episode, so a listener that
misses some of them loses nothing.
"""

from dataclasses import dataclass

from assay.runs.kind import TrialEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProgress:
    """Where an episode stands after a turn; all numbers count from its start."""

    turn: int
    """The turn that was just played, counted from 1."""
    max_turns: int
    steps: int
    """Environment steps made."""
    achievements: int | None
    """Different ones unlocked; None in worlds that have none."""
    reward: float
    asked: int
    """Actions asked for, unknown ones included."""
    invalid: int
    """Those of them that were unknown or had no effect."""
    tokens: int
    cost_usd: float | None
    """None if the price of a call is not known."""
    note: str = ""
    """What the turn was about, in a few words; may hold text of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEnd(TrialEnd):
    """What an episode that ended came to; the value of its verdict."""

    achievements: int | None
    reward: float
    steps: int
    turns: int
    invalid_rate: float
    """Actions unknown or without effect over actions asked for; 0 if none was asked for."""
    tokens: int
    cost_usd: float | None
    """None if the price of a call is not known."""
