"""Numbers of others that a table may stand beside, with what they are numbers of."""

from dataclasses import dataclass

__all__ = ["HUMAN", "HUMAN_DIFFICULTY", "Anchor"]

HUMAN_DIFFICULTY = "classic"
"""The difficulty under which the people played; beside any other their row means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """What was published about somebody who played whole episodes of the reference game."""

    name: str
    episodes: int
    achievements: float
    """Mean of different achievements per episode."""
    achievements_sd: float
    steps: float
    score: float
    note: str
    """What the numbers are and are not."""


HUMAN = Anchor(
    name="human, full episodes",
    episodes=100,
    achievements=13.90,
    achievements_sd=3.38,
    steps=619,
    score=50.5,
    note=(
        "human: 5 people, 20 full episodes each (n = 100), with no limit on turns; SD is the"
        " standard deviation over episodes, the score is the mean of the five people's. From"
        " the data published with Crafter (Hafner 2021)."
    ),
)
"""Recomputed from `scores/crafter_reward-human.json` of the Crafter repository."""
