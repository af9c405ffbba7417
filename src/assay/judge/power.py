"""Sample sizes: the number of trials that would decide a comparison, and their cost."""

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
from assay.stats.significance import Design, smallest_n
from assay.types import Verdict

POWER = 0.8
"""Probability of finding a difference that a plan aims at."""


def planned(
    contrast: Contrast, facts: Mapping[str, SubjectFacts], setup: Setup, family: int
) -> Contrast:
    """Return the contrast with its detectable effect, and with a plan if it is undecided.

    In a family of several comparisons each is planned at alpha divided by their number, as the
    strictest step of Holm's method requires. If tasks are a sample, more trials of the same
    tasks would not help: the plan counts tasks, each with as many worlds as now. It aims at the
    requested difference, or at a part of the observed one: planned for the whole observed
    difference, more than half of the studies would have less power than stated.
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
    # Whatever the power of a t test, fewer could not be judged.
    fewest = smallest_n(Design.PAIRS if paired else Design.GROUPS, 1 - alpha)
    needed = replace(needed, trials=max(needed.trials, fewest))
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
    """Return the mean per trial over both subjects; None if a subject did not record it."""
    means = [facts.metrics[metric].mean.point for facts in both if metric in facts.metrics]
    return sum(means) / 2 if len(means) == 2 and min(means) >= 0 else None


def _spread(matched: Matched) -> tuple[float, int, int, bool]:
    """Return a unit's standard deviation, the number of units, pilot size, and pairing.

    Units are worlds, or tasks if the tasks are a sample. The pilot size is the number of units
    that the deviation is known from.
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
    # A plan has two arms of equal size, so the mean of both variances applies.
    return math.sqrt((float(a.var(ddof=1)) + float(b.var(ddof=1))) / 2), n, n, False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlan:
    """Sample size that would find a difference named in advance."""

    target: float
    """The difference to find, in the unit of the values."""
    power: float
    sd: float
    """Standard deviation of the paired differences, or within an arm."""
    needed: Needed
    """Number of pairs, or of trials of each arm."""
    achieved: float
    """Power of the existing trials for the target."""
    detectable: float
    """The smallest difference that the existing trials find with the requested power."""


def plan_for_target(
    a: Floats, b: Floats, *, paired: bool, target: float, power: float, alpha: float, side: Side
) -> TargetPlan:
    """Plan for a target, based on the spread of these values."""
    if paired:
        sd, n, pilot = deviation_of(pair_differences(a, b)), float(len(a)), len(a)
    else:
        # Arms of unequal size are as precise as two arms of their harmonic mean.
        sd = math.sqrt((deviation_of(a) ** 2 + deviation_of(b) ** 2) / 2)
        n, pilot = 2 / (1 / len(a) + 1 / len(b)), (len(a) + len(b)) // 2
    # The functions are two-sided, so a one-sided test uses twice the alpha.
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
