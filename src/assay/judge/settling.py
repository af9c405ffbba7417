"""What would settle a comparison that is undecided: trials, dollars and hours."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from assay.judge.facts import Contrast, Settle, Setup, SubjectFacts, Verdict
from assay.judge.matching import independent_values
from assay.stats.planning import minimum_detectable_effect, trials_needed

__all__ = ["POWER", "settled"]

POWER = 0.8
"""The chance to find a difference that a plan aims at."""


def settled(
    contrast: Contrast, facts: Mapping[str, SubjectFacts], setup: Setup, candidates: int
) -> Contrast:
    """The contrast with what it could find, and with a plan where it is undecided.

    With several candidates each is planned for at alpha divided by their number, which is
    what the strictest of Holm's steps asks for.
    """
    sd, n = _spread(contrast, facts)
    if not sd or n < 2:
        return contrast
    alpha = setup.alpha / candidates
    found = minimum_detectable_effect(n, sd, paired=contrast.paired, power=POWER, alpha=alpha)
    return replace(
        contrast,
        detectable=found,
        settle=_plan(contrast, facts, setup, sd, n, alpha),
    )


def _plan(
    contrast: Contrast,
    facts: Mapping[str, SubjectFacts],
    setup: Setup,
    sd: float,
    n: int,
    alpha: float,
) -> Settle | None:
    effect = setup.min_effect or abs(contrast.naive.point)
    if contrast.verdict is not Verdict.UNDECIDED or effect == 0:
        return None
    needed = trials_needed(
        effect,
        sd,
        pilot_n=n,
        paired=contrast.paired,
        power=POWER,
        alpha=alpha,
        level=setup.level,
    )
    both = (facts[contrast.baseline], facts[contrast.candidate])
    price = needed.cost(_each(both, "cost_usd"), _each(both, "duration_s"))
    return Settle(
        effect=effect,
        asked=setup.min_effect is not None,
        trials=needed.trials,
        low=needed.low,
        high=needed.high,
        dollars=price.dollars,
        hours=price.hours,
    )


def _each(both: tuple[SubjectFacts, SubjectFacts], metric: str) -> float | None:
    """What one trial takes on average over both subjects; None if one did not record it."""
    means = [one.metrics[metric].mean.point for one in both if metric in one.metrics]
    return sum(means) / 2 if len(means) == 2 and min(means) >= 0 else None


def _spread(contrast: Contrast, facts: Mapping[str, SubjectFacts]) -> tuple[float, int]:
    """The standard deviation that a plan needs, and how many values it comes from."""
    if contrast.paired:
        differences = [row.difference for row in contrast.pairs]
        return (float(np.std(differences, ddof=1)) if len(differences) > 1 else 0.0), len(
            differences
        )
    sides = [
        independent_values(facts[one].subject.trials, contrast.metric)
        for one in (contrast.baseline, contrast.candidate)
    ]
    n = min(map(len, sides))
    if n < 2:
        return 0.0, n
    # The two arms of a plan are equally large, so the mean of both variances counts.
    return math.sqrt(sum(float(side.var(ddof=1)) for side in sides) / 2), n
