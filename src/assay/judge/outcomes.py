"""The metrics of episodes: what each means, and which direction is better. Opens nothing.

What values a metric can have: its ends, its steps, and whether it is a share.

It goes by the name of the metric. A metric of somebody's own is a share if all its values are
0 or 1, a truth value among them; else nothing is known of its ends.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.crafter.rules import ACHIEVEMENTS

OUTCOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "achievements": "how many of the 22 achievements were unlocked",
        "reward": "the sum of all rewards",
        "steps": "steps of the environment",
        "turns": "decisions, each with no, one or several calls of a model",
        "invalid_rate": "actions that do not exist or had no effect, over actions asked for",
        "tokens": "prompt and completion tokens of all calls",
        "cost_usd": "what all calls cost; missing where a price is not known",
        "duration_s": "seconds played, without waiting for a turn",
        "achievement_rate": "achievements, as a share of the 22",
        "efficiency_score": "achievement_rate times time_efficiency",
        "rule_understanding": "share of the actions asked for that exist and had an effect",
        "time_efficiency": "share of actions and malformed replies that was no waste",
        "time_management": "share of the 22 that was unlocked, averaged over all steps",
        **{f"unlocked/{name}": f"1 if {name} was unlocked, else 0" for name in ACHIEVEMENTS},
    }
)
"""What an episode earns, by public name, with its meaning.

Those that judge play are defined in `assay.episodes.metrics`.
"""

LOWER_IS_BETTER: Final = frozenset({"cost_usd", "duration_s", "invalid_rate", "tokens"})
"""Outcomes of which less is better; of every other one, more is."""

COUNTS: Final = frozenset({"achievements", "steps", "turns", "tokens"})
"""Metrics that are whole numbers of things."""

NEITHER_IS_BETTER: Final = frozenset({"steps", "turns"})
"""Metrics that are only described: a verdict calls them higher or lower."""

_RATES = frozenset(
    {
        *("invalid_rate", "achievement_rate", "efficiency_score", "rule_understanding"),
        *("time_efficiency", "time_management", "score"),
    }
)
_POSITIVE = frozenset({*COUNTS, "cost_usd", "duration_s"})
_UNLOCKED = "unlocked/"


class Scale(NamedTuple):
    """The values that one trial can have."""

    low: float = -math.inf
    high: float = math.inf
    step: float = 0.0
    """By how much values differ at least if they differ; 0: not known."""
    share: bool = False
    """Whether a trial has it or not: 1 or 0."""

    @property
    def known_ends(self) -> bool:
        """Whether it is known how little and how much a trial can have."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def scale_of(metric: str, values: Sequence[float] | NDArray[np.float64]) -> Scale:
    """The scale of a metric, given the values of trials."""
    found = np.asarray(values, np.float64)
    if ((found == 0) | (found == 1)).all() and (
        metric == "success" or metric.startswith(_UNLOCKED) or metric not in OUTCOMES
    ):
        return Scale(0.0, 1.0, 1.0, share=True)
    if metric in _RATES and ((found >= 0) & (found <= 1)).all():
        return Scale(0.0, 1.0)
    low = 0.0 if metric in _POSITIVE and (found >= 0).all() else -math.inf
    whole = metric in COUNTS and (found == np.rint(found)).all()
    few = metric == "achievements" and (found <= len(ACHIEVEMENTS)).all()
    return Scale(low, float(len(ACHIEVEMENTS)) if few else math.inf, float(whole))
