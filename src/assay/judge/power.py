"""What would settle a comparison that is undecided: trials, dollars and hours."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from assay.judge.matching import Matched, match
from assay.judge.results import Contrast, PowerPlan, Setup, SubjectFacts, TaskRule
from assay.stats.multiplicity import plan_effect
from assay.stats.power import minimum_detectable_effect, trials_needed
from assay.types import Verdict

POWER = 0.8
"""The chance to find a difference that a plan aims at."""


def planned(
    contrast: Contrast, facts: Mapping[str, SubjectFacts], setup: Setup, family: int
) -> Contrast:
    """The contrast with what it could find, and with a plan where it is undecided.

    With a family of several comparisons each is planned for at alpha divided by their number,
    which is what the strictest of Holm's steps asks for. Where tasks are a sample, more trials
    of the same tasks would not do: the plan counts tasks, each with as many worlds as now. It
    aims at the difference asked for, or at a part of the one seen: planned by all of it, more
    than half of the studies would have less than the power they are told.
    """
    both = (facts[contrast.baseline], facts[contrast.candidate])
    matched = match(both[0].subject, both[1].subject, contrast.metric, setup.tasks)
    sd, n, pilot, paired = _spread(matched)
    if not sd or n < 2:
        return contrast
    alpha = setup.alpha / family
    detectable = minimum_detectable_effect(n, sd, paired=paired, power=POWER, alpha=alpha)
    contrast = replace(contrast, detectable=detectable)
    effect = setup.min_effect or plan_effect(abs(contrast.naive.point), n)
    if contrast.verdict is not Verdict.UNDECIDED or effect == 0 or contrast.same:
        return contrast
    needed = trials_needed(
        effect,
        sd,
        pilot_n=pilot,
        paired=paired,
        power=POWER,
        alpha=alpha,
        level=setup.level,
    )
    if matched.units.rule is TaskRule.SAMPLE:
        worlds = matched.units.worlds_per_task
        needed = replace(
            needed,
            trials=worlds * needed.trials,
            low=needed.low and worlds * needed.low,
            high=needed.high and worlds * needed.high,
        )
    price = needed.cost(_each(both, "cost_usd"), _each(both, "duration_s"))
    plan = PowerPlan(
        effect=effect,
        asked=setup.min_effect is not None,
        trials=needed.trials,
        low=needed.low,
        high=needed.high,
        dollars=price.dollars,
        hours=price.hours,
    )
    return replace(contrast, settle=plan)


def _each(both: tuple[SubjectFacts, SubjectFacts], metric: str) -> float | None:
    """What one trial takes on average over both subjects; None if one did not record it."""
    means = [facts.metrics[metric].mean.point for facts in both if metric in facts.metrics]
    return sum(means) / 2 if len(means) == 2 and min(means) >= 0 else None


def _spread(matched: Matched) -> tuple[float, int, int, bool]:
    """The standard deviation of a unit, the number of units, how many it is known from.

    And whether units are paired. They are worlds, or tasks where those are a sample.
    """
    a, b, paired = matched.independent()
    n = min(len(a), len(b))
    if n < 2:
        return 0.0, n, n, paired
    if matched.grouped:
        estimate = matched.estimate()
        sd = estimate.error * math.sqrt(n if paired else n / 2)
        pilot = estimate.freedom + 1 if paired else estimate.freedom / 2 + 1
        return sd, n, max(2, math.floor(pilot)), paired
    if paired:
        return float(np.std(b - a, ddof=1)), n, n, True
    # The two arms of a plan are equally large, so the mean of both variances counts.
    return math.sqrt((float(a.var(ddof=1)) + float(b.var(ddof=1))) / 2), n, n, False
