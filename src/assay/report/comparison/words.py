"""The answers of a comparison in plain words, in the order in which people ask.

Is it better, by how much, how sure is that, and what would settle it. Names in these
sentences are untrusted: whoever prints them makes them safe.
"""

import math
from collections.abc import Callable

from assay.judge import Comparison, Contrast, TaskRule, Verdict
from assay.judge.facts import NEITHER_IS_BETTER, PowerPlan
from assay.judge.notes import counted
from assay.report.document import Answer
from assay.report.numbers import (
    bounds,
    change,
    digits_like,
    dollars,
    hours,
    level_text,
    p_text,
    percent,
    value,
)
from assay.stats.intervals import Interval

__all__ = [
    "VERDICTS",
    "answers",
    "headline",
    "on_these_tasks",
    "sample_words",
    "verdict_word",
]

VERDICTS = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.HIGHER: "higher",
    Verdict.LOWER: "lower",
    Verdict.NO_DIFFERENCE: "no difference that matters",
    Verdict.UNDECIDED: "undecided",
    Verdict.UNKNOWN: "unknown",
}
"""The verdicts as a person would say them."""
_CLEAR = (Verdict.BETTER, Verdict.WORSE)


def verdict_word(contrast: Contrast) -> str:
    """The verdict of a contrast in one or a few words."""
    if contrast.metric in NEITHER_IS_BETTER:
        more = contrast.difference.point > 0
        word = "higher" if more else "lower"
        return word if contrast.verdict in _CLEAR else VERDICTS[contrast.verdict]
    return VERDICTS[contrast.verdict]


def answers(comparison: Comparison, contrast: Contrast) -> tuple[Answer, ...]:
    """The four answers about a candidate, in the metric that decides."""
    a, b = (comparison.of(side).name for side in (contrast.baseline, contrast.candidate))
    return (
        Answer(f"Is {b} better than {a}?", headline(comparison, contrast)),
        Answer("By how much?", _how_much(contrast)),
        Answer("How sure is that?", _how_sure(comparison, contrast)),
        Answer("What would settle it?", _settle(comparison, contrast)),
    )


def headline(comparison: Comparison, contrast: Contrast) -> str:
    """The first answer: yes, no, or not known."""
    metric, n, where = contrast.metric, sample_words(contrast), on_these_tasks(contrast)
    match contrast.verdict:
        case Verdict.BETTER:
            return f"Yes, it has {_direction(contrast)} {metric}{where} ({n})."
        case Verdict.WORSE:
            return f"No, it is worse: it has {_direction(contrast)} {metric}{where} ({n})."
        case Verdict.NO_DIFFERENCE:
            return f"No, nor worse: no difference in {metric} that matters{where} ({n})."
    if contrast.tests is None:
        return f"Nobody can say: one value on a side tells nothing about the spread ({n})."
    if contrast.difference.point == 0 and not contrast.tests.spread_known:
        return f"Undecided: both have the same {metric} throughout{where} ({n})."
    return f"Undecided: {metric} can differ as much by chance{where} ({n})."


def sample_words(contrast: Contrast) -> str:
    """How much data a contrast rests on."""
    if contrast.look is not None:
        return f"{counted(contrast.look.pairs, 'pair')}, looked at as they came"
    units = contrast.units
    tasks = f" of {units.tasks:,} tasks" if units.rule is not TaskRule.WORLDS else ""
    if contrast.paired:
        return counted(contrast.n_baseline, "pair") + tasks
    return f"not paired: {contrast.n_candidate:,} against {contrast.n_baseline:,} trials{tasks}"


def on_these_tasks(contrast: Contrast) -> str:
    """Where a verdict holds, if it holds for no other tasks."""
    fixed = contrast.look is None and contrast.units.rule is TaskRule.FIXED
    return " on these tasks" if fixed else ""


def _direction(contrast: Contrast) -> str:
    return "more" if contrast.difference.point > 0 else "less"


def _how_much(contrast: Contrast) -> str:
    metric, like = contrast.metric, digits_like(contrast.difference)
    text = change(metric, contrast.difference.point, like)
    if contrast.look is not None:
        text += f" at the last look; over all {counted(contrast.n_baseline, 'pair')}"
        text += f" {change(metric, contrast.naive.point, like)}"
    if contrast.relative is not None:
        text += f", or {percent(contrast.relative.point)}"
    means = (contrast.mean_candidate.point, contrast.mean_baseline.point)
    against = " against ".join(value(metric, mean, like) for mean in means)
    text += f": {against} on average"
    if contrast.effects is not None:
        chance = contrast.effects.improvement.point
        where = "pairs" if contrast.paired else "draws of one trial of each"
        text += f". It has the higher value in {100 * chance:.0f} % of {where}"
        if any(row.difference == 0 for row in contrast.pairs):
            text += ", a tie counting half"
    return f"{text}."


def _how_sure(comparison: Comparison, contrast: Contrast) -> str:
    level = level_text(comparison.setup.level)
    if contrast.look is not None:
        return _looked(contrast, level)
    if contrast.tests is None:
        return "Not at all: an interval takes two values or more on either side."
    said = [
        _tasks(contrast),
        _few(contrast, comparison.setup.alpha),
        f"The {level} interval of the difference is"
        f" {bounds(contrast.metric, contrast.difference)}.",
        _p_values(comparison, contrast),
        _equivalence(comparison, contrast),
        _exact_limit(contrast, comparison.setup.alpha),
        contrast.pairing.sentence if contrast.pairing is not None else None,
        contrast.skewness,
    ]
    return " ".join(filter(None, said))


def _tasks(contrast: Contrast) -> str | None:
    units = contrast.units
    if units.rule is TaskRule.WORLDS:
        return None
    averaged = ", trials of a world averaged" if units.replicates > 1 else ""
    said = f"{units.tasks:,} tasks, {counted(units.worlds, 'world')}{averaged}:"
    if units.rule is TaskRule.FIXED:
        return (
            f"{said} the tasks are taken as they are, and nothing is said of others"
            " (--tasks sample takes them as a sample)."
        )
    return (
        f"{said} the tasks are taken as a sample of many, and what trials of one task have in"
        " common counts once (--tasks fixed takes the tasks as they are)."
    )


def _independent(contrast: Contrast) -> tuple[int, str]:
    """How many independent units a side has at the least, and what they are."""
    if contrast.units.rule is TaskRule.SAMPLE:
        return contrast.units.tasks, "task"
    n = min(contrast.n_baseline, contrast.n_candidate)
    return n, "pair" if contrast.paired else "trial"


def _few(contrast: Contrast, alpha: float) -> str | None:
    n, what = _independent(contrast)
    if n >= _fewest_exact(alpha):
        return None
    return (
        f"{counted(n, what)}, which is very few: the interval holds if values are near normal."
    )


def _fewest_exact(alpha: float) -> int:
    """The number of pairs from which on the exact test can go below alpha."""
    return math.floor(1 - math.log2(alpha)) + 1


def _looked(contrast: Contrast, level: str) -> str:
    look = contrast.look
    assert look is not None
    kind = str(look.design.get("kind", "sequential"))
    alpha = look.design.get("alpha")
    if isinstance(alpha, float):
        level = level_text(1 - alpha)
    text = (
        f"The run went on until it was decided ({kind} boundary). At look {look.look}, after"
        f" {counted(look.pairs, 'pair')}, the interval that holds at every look ({level}) was"
        f" {bounds(contrast.metric, contrast.difference)}; the verdict is the one of that look."
    )
    if contrast.naive.known:
        text += (
            f" The plain interval over {counted(contrast.n_baseline, 'pair')},"
            f" {bounds(contrast.metric, contrast.naive)}, ignores the looks: do not go by it."
        )
    return text


def _p_values(comparison: Comparison, contrast: Contrast) -> str:
    tests = contrast.tests
    assert tests is not None
    rank = f"{tests.rank.name}: {p_text(tests.rank.p_value)}"
    resampling = f"{'exact ' if tests.resampling.exact else ''}{tests.resampling.name}"
    resampled = f"{resampling}: {p_text(tests.resampling.p_value)}"
    if not tests.spread_known:
        return (
            f"All differences are equal, so nothing tells how they spread, and a t test would"
            f" be sure of anything; the verdict goes by the {resampled}."
        )
    others = len(comparison.decisive)
    adjusted = ""
    if others > 1:
        adjusted = f", {p_text(tests.p_adjusted)} adjusted for {others} candidates"
        if tests.p_value < comparison.setup.alpha <= tests.p_adjusted:
            adjusted += ", which is why it stays undecided"
    name = tests.t.name[:1].upper() + tests.t.name[1:]
    return f"{name}: {p_text(tests.t.p_value)}{adjusted} ({resampled}; {rank})."


def _equivalence(comparison: Comparison, contrast: Contrast) -> str | None:
    tests, margin = contrast.tests, comparison.setup.min_effect
    if tests is None or tests.equivalence_p is None or margin is None:
        return None
    size = value(contrast.metric, margin)
    if contrast.verdict is Verdict.NO_DIFFERENCE:
        return (
            f"It differs by less than {size} either way, the smallest difference that matters"
            f" (two one-sided tests, {p_text(tests.equivalence_p)})."
        )
    return (
        f"That it differs by less than {size} either way is not shown"
        f" ({p_text(tests.equivalence_p)})."
    )


def _exact_limit(contrast: Contrast, alpha: float) -> str | None:
    """With few pairs the exact test cannot be small, whatever the data say."""
    n, what = _independent(contrast)
    if not contrast.paired or n >= _fewest_exact(alpha):
        return None
    return (
        f"With {counted(n, what)} the exact test cannot go below {p_text(2.0 ** (1 - n))},"
        " whatever the data."
    )


def _settle(comparison: Comparison, contrast: Contrast) -> str:
    plan = contrast.settle
    if contrast.verdict is not Verdict.UNDECIDED:
        return _settled(comparison, contrast)
    if contrast.look is not None and contrast.look.decision is None:
        return "Its run has not ended: go on with it."
    if plan is None:
        if contrast.tests is None:
            return "Two trials of each at the least, better 5 or more: on the same seeds."
        return (
            "There is no difference to plan for; say which one would matter with --min-effect."
        )
    what = "pairs" if contrast.paired else "trials of each"
    units = contrast.units
    if units.rule is TaskRule.SAMPLE:
        tasks = plan.trials // units.worlds_per_task
        what += f" on {tasks:,} tasks, of {units.worlds_per_task} worlds each,"
    size = "difference asked for" if plan.asked else "difference seen here"
    text = (
        f"About {plan.trials:,} {what} in all ({_range(plan)}) would find the {size},"
        f" {value(contrast.metric, plan.effect)}, with a power of 80 %"
    )
    price = _price(plan)
    return f"{text}: {price}." if price else f"{text}."


def _settled(comparison: Comparison, contrast: Contrast) -> str:
    level, least = level_text(comparison.setup.level), _fewest_exact(comparison.setup.alpha)
    n, unit = _independent(contrast)
    if contrast.look is None and n < least:
        what = "trials of each" if unit == "trial" else f"{unit}s"
        return (
            f"It is settled at the {level} level if values are near normal. From {least} {what}"
            " on, a test that needs no such condition can say so too."
        )
    return f"Nothing more is needed: it is settled at the {level} level."


def _range(plan: PowerPlan) -> str:
    if plan.low is None:
        return "a guess from too few trials"
    if plan.high is None:
        return f"{plan.low:,} or more, as far as so few trials can tell"
    return f"{plan.low:,} to {plan.high:,}, as the spread is known from few trials only"


def _price(plan: PowerPlan) -> str:
    said = []
    if plan.dollars is not None:
        said.append(_spread(plan.dollars, dollars))
    if plan.hours is not None:
        said.append(f"{_spread(plan.hours, hours)} one after the other")
    return f"at the price of the trials so far {' and '.join(said)} for both" if said else ""


def _spread(amount: Interval, shown: Callable[[float], str]) -> str:
    middle = shown(amount.point)
    if not (math.isfinite(amount.low) and math.isfinite(amount.high)) or amount.point == 0:
        return middle
    return f"{middle} ({shown(amount.low)} to {shown(amount.high)})"
