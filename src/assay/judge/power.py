"""How many trials would settle a comparison, and what they would cost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from assay.judge.matching import Matched, match
from assay.judge.results import Contrast, PowerPlan, Setup, SubjectFacts, TaskRule
from assay.stats.estimates import Floats, deviation_of, pair_differences
from assay.stats.intervals import Side
from assay.stats.multiplicity import plan_effect
from assay.stats.power import Needed, minimum_detectable_effect, power_of, trials_needed
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlan:
    """How many trials would find a difference that was named before."""

    target: float
    """The difference worth finding, in the unit of the values."""
    power: float
    sd: float
    """Of the paired differences, or within an arm."""
    needed: Needed
    """Pairs, or trials of each arm."""
    achieved: float
    """The power that the trials at hand have for the target."""
    detectable: float
    """The smallest difference that they find with that power."""


def plan_for_target(
    a: Floats, b: Floats, *, paired: bool, target: float, power: float, alpha: float, side: Side
) -> TargetPlan:
    """Plan for a target by the spread of these values."""
    if paired:
        sd, n, pilot = deviation_of(pair_differences(a, b)), float(len(a)), len(a)
    else:
        # Arms of unequal size have the precision of two arms of their harmonic mean.
        sd = math.sqrt((deviation_of(a) ** 2 + deviation_of(b) ** 2) / 2)
        n, pilot = 2 / (1 / len(a) + 1 / len(b)), (len(a) + len(b)) // 2
    # The functions are two-sided, so one side has twice the alpha.
    alpha = min(alpha * (1 if side is Side.TWO_SIDED else 2), 0.999)
    return TargetPlan(
        target=target,
        power=power,
        sd=sd,
        needed=trials_needed(
            target, sd, pilot_n=pilot, paired=paired, power=power, alpha=alpha
        ),
        achieved=power_of(n, target, sd, paired=paired, alpha=alpha),
        detectable=minimum_detectable_effect(n, sd, paired=paired, power=power, alpha=alpha),
    )
