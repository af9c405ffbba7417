"""The metrics of episodes: what each means, and which direction is better. Opens nothing."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from assay.crafter.rules import ACHIEVEMENTS

__all__ = ["COUNTS", "LOWER_IS_BETTER", "NEITHER_IS_BETTER", "OUTCOMES"]

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

Those that judge play are defined in `assay.metrics.shipped`.
"""

LOWER_IS_BETTER: Final = frozenset({"cost_usd", "duration_s", "invalid_rate", "tokens"})
"""Outcomes of which less is better; of every other one, more is."""

COUNTS: Final = frozenset({"achievements", "steps", "turns", "tokens"})
"""Metrics that are whole numbers of things."""

NEITHER_IS_BETTER: Final = frozenset({"steps", "turns"})
"""Metrics that are only described: a verdict calls them higher or lower."""
