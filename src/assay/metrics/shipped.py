"""The metrics that every episode of Crafter has, from 0, the worst, to 1, the best.

Definitions of our own. They follow from the record of an episode alone, so that the same
trace always gives the same numbers; `Tally` computes them while an episode is played.

In all of them, *actions asked for* counts what the answers of the model asked for, actions
that do not exist included. *Waste* has four kinds, by the rules of the world: a malformed
reply, an unknown action, an action without effect, an action ignored while asleep.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .custom import Metric, metric, metric_of
from .evidence import Episode

__all__ = [
    "SHIPPED",
    "achievement_rate",
    "efficiency_score",
    "rule_understanding",
    "time_efficiency",
    "time_management",
]


@metric
def achievement_rate(episode: Episode) -> float:
    """How much was reached: different achievements unlocked / 22."""
    return episode.tally.achievement_rate


@metric
def efficiency_score(episode: Episode) -> float:
    """How much was reached, less what was wasted: achievement_rate * time_efficiency.

    It is high only if both are. Half of the achievements with a fifth of the actions wasted
    come to 0.5 * 0.8 = 0.4.
    """
    return episode.tally.efficiency_score


@metric
def rule_understanding(episode: Episode) -> float:
    """How often what was asked for is possible: 1 - (unknown + without effect) / asked for.

    It is 1 - invalid_rate, but 0 if no action was asked for at all: then nothing was shown.
    What a sleeper does not carry out breaks no rule, and a reply that cannot be read says
    nothing about the rules of the world, so that neither counts here.
    """
    return episode.tally.rule_understanding


@metric
def time_efficiency(episode: Episode) -> float:
    """How little was wasted: 1 - waste / (actions asked for + malformed replies).

    All four kinds of waste count, a malformed reply like one action. 0 if there was neither
    an action nor a malformed reply.
    """
    return episode.tally.time_efficiency


@metric
def time_management(episode: Episode) -> float:
    """How early things were reached: the share of the 22 unlocked, averaged over all steps.

    With T steps and achievement a unlocked in step t(a), counted from 1:
    sum over a of (T - t(a) + 1) / (22 T), the area under the curve of unlocked achievements.
    It is at most achievement_rate, and equal to it if all came in the first step. Reaching
    more, or the same earlier, always raises it. T is the length of the episode itself:
    to go on playing after the last achievement raises it too, so compare episodes that were
    given the same limits. 0 if there was no step.
    """
    return episode.tally.time_management


SHIPPED: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        found.name: found
        for function in (
            achievement_rate,
            efficiency_score,
            rule_understanding,
            time_efficiency,
            time_management,
        )
        if (found := metric_of(function)) is not None
    }
)
"""By name. They are outcomes of every episode that assay played."""
