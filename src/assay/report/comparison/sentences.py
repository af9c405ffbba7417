"""Answers of a comparison in sentences: is it better, by how much, how certain, next step.

Names in these sentences are untrusted; the caller makes them safe before printing.
"""

import math
from collections.abc import Sequence

from assay.core.text import counted
from assay.judge.outcomes import Direction, outcome_of
from assay.judge.results import Comparison, Contrast, DesignDifference, TaskRule, Tests
from assay.report.comparison.next_steps import answer_next_step
from assay.report.document import Answer
from assay.report.numbers import (
    format_bounds,
    format_difference,
    format_relative_change,
    format_value,
    level_text,
    p_text,
    rounding_reference,
    share_text,
)
from assay.stats.power import trials_needed
from assay.types import Verdict

VERDICTS = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.HIGHER: "higher",
    Verdict.LOWER: "lower",
    Verdict.NO_DIFFERENCE: "no difference that matters",
    Verdict.UNDECIDED: "undecided",
    Verdict.UNKNOWN: "unknown",
}
"""Verdicts in words."""


def verdict_word(contrast: Contrast) -> str:
    """Return the verdict of a contrast in one or a few words."""
    if contrast.confounds:
        return "not comparable"
    if contrast.same is not None:
        return "the same"
    if contrast.withheld:
        return "could not be judged"
    if contrast.fewest is not None:
        return f"too few {contrast.unit_counts[3]}s"
    return VERDICTS[contrast.verdict]


def answer_questions(comparison: Comparison, contrast: Contrast) -> tuple[Answer, ...]:
    """Return the four answers about a candidate, in the primary metric."""
    a, b = (comparison.of(side).name for side in (contrast.baseline, contrast.candidate))
    question = f"Is {b} better than {a}?"
    if contrast.outcome.direction is Direction.NEITHER:
        question = f"Does {b} differ from {a} in {contrast.metric}?"
    return (
        Answer(question, answer_better(comparison, contrast)),
        Answer("By how much?", _answer_how_much(contrast)),
        Answer("How sure is that?", _answer_how_certain(comparison, contrast)),
        Answer("What would settle it?", answer_next_step(comparison, contrast)),
    )


def answer_better(comparison: Comparison, contrast: Contrast) -> str:
    """Return the first answer: yes, no or unknown. Obstacles to a verdict come first."""
    metric, n, where = contrast.metric, describe_sample(contrast), task_restriction(contrast)
    if contrast.confounds:
        return (
            f"Not comparable: {_describe_values(comparison, contrast, contrast.confounds)}. The"
            f" difference may come from that alone ({n})."
        )
    if contrast.same is not None:
        return f"The same: {contrast.same} ({n})."
    if contrast.withheld:
        return f"Could not be judged: {_lost(comparison, contrast)}"
    if contrast.verdict is not Verdict.UNDECIDED:
        yes = {
            Verdict.BETTER: f"Yes, it has {_describe_direction(contrast)}",
            Verdict.WORSE: f"No, it is worse: it has {_describe_direction(contrast)}",
            Verdict.HIGHER: f"Yes, it has {_describe_direction(contrast)}",
            Verdict.LOWER: f"Yes, it has {_describe_direction(contrast)}",
            Verdict.NO_DIFFERENCE: f"No, nor worse: no difference in {metric} that matters",
        }[contrast.verdict]
        allowed = [one for one in contrast.design if one.allowed]
        but = f", where {_describe_values(comparison, contrast, allowed)}" if allowed else ""
        return f"{yes}{where} ({n}){but}.{_lost_too(comparison, contrast)}"
    if contrast.too_few is not None:
        return f"{contrast.too_few}.{_lost_too(comparison, contrast)}"
    if contrast.paired and not any(row.difference for row in contrast.pairs):
        return (
            f"No difference seen: {metric} is equal in all pairs{where} ({n})."
            f"{_lost_too(comparison, contrast)}"
        )
    return (
        f"Undecided: a difference in {metric} like this one can be chance{where} ({n})."
        f"{_lost_too(comparison, contrast)}"
    )


def _describe_values(
    comparison: Comparison, contrast: Contrast, differing: Sequence[DesignDifference]
) -> str:
    a, b = (comparison.of(side).name for side in (contrast.baseline, contrast.candidate))
    return "; ".join(
        f"{difference.name} is {difference.baseline} for {a} and {difference.candidate} for {b}"
        for difference in differing
    )


def describe_differences(differing: Sequence[DesignDifference]) -> str:
    """Describe the differences between two subjects, the baseline's value first."""
    return "; ".join(
        f"{difference.name}: {difference.baseline} -> {difference.candidate}"
        for difference in differing
    )


def describe_most_sensitive(comparison: Comparison, contrasts: Sequence[Contrast]) -> str:
    """Name the metric that needs the fewest trials, if it is not the primary one."""
    sizes = {
        contrast.metric: abs(contrast.standardised.point)
        for contrast in contrasts
        if contrast.standardised is not None and not outcome_of(contrast.metric).is_cost
    }
    first = comparison.setup.primary
    best = max(sizes, key=lambda metric: sizes[metric], default=first)
    if not sizes.get(first):
        return ""
    paired, pilot = contrasts[0].paired, min(contrasts[0].n_baseline, contrasts[0].n_candidate)
    needed = [
        trials_needed(sizes[metric], 1.0, pilot_n=max(2, pilot), paired=paired).trials
        for metric in (best, first)
    ]
    if needed[0] >= needed[1]:
        return ""
    what = "pairs" if paired else "trials of each"
    return (
        f" The most sensitive here is {best}: about {needed[0]:,} {what} where {first} takes"
        f" {needed[1]:,}. Choose it before the next trials, not for these."
    )


def lost_counts(comparison: Comparison, contrast: Contrast) -> str:
    """Return how many trials each side lost."""
    lost = contrast.losses
    assert lost is not None
    a, b = (comparison.of(side).name for side in (contrast.baseline, contrast.candidate))
    return (
        f"{lost.candidate:,} of {lost.of_candidate:,} trials of {b} and {lost.baseline:,} of"
        f" {lost.of_baseline:,} of {a} have no {contrast.metric}"
    )


def _lost(comparison: Comparison, contrast: Contrast) -> str:
    """Return why lost trials forbid a verdict."""
    lost, metric = contrast.losses, contrast.outcome
    assert lost is not None
    counts = lost_counts(comparison, contrast)
    if lost.known_ends:
        low, high = contrast.difference.low, contrast.difference.high
        ends = f"{format_difference(metric, low)} to {format_difference(metric, high)}"
        return f"{counts}. Depending on their values, the difference is {ends}."
    tipping = ""
    if lost.tipping is not None and math.isfinite(lost.tipping):
        tipping = f" (about {format_value(metric, lost.tipping)})"
    return (
        f"{counts}. The others differ by {format_difference(metric, contrast.naive.point)}, but"
        f" the lost trials could reverse that if they lie far enough from them{tipping}."
    )


def _lost_too(comparison: Comparison, contrast: Contrast) -> str:
    """Return the lost trials of a verdict that does not depend on them."""
    lost = contrast.losses
    if lost is None:
        return ""
    counts = f" {lost_counts(comparison, contrast)}"
    if contrast.verdict is Verdict.UNDECIDED:
        return f"{counts}."
    if lost.known_ends:
        return f"{counts}; the answer holds whatever their values."
    if lost.tipping is None or math.isinf(lost.tipping):
        return f"{counts}."
    by = format_value(contrast.outcome, lost.tipping)
    return f"{counts}; the answer holds unless these are off by {by} on average."


def describe_sample(contrast: Contrast) -> str:
    """Describe the sample of a contrast."""
    if contrast.look is not None:
        return f"{counted(contrast.look.pairs, 'pair')}, looked at as they came"
    units = contrast.units
    tasks = f" of {units.tasks:,} tasks" if units.rule is not TaskRule.WORLDS else ""
    if contrast.paired:
        return counted(contrast.n_baseline, "pair") + tasks
    if units.partly_shared:
        shared = counted(units.partly_shared, "world")
        return (
            f"{contrast.n_candidate:,} against {contrast.n_baseline:,} worlds, {shared} in"
            " common"
        )
    return f"not paired: {contrast.n_candidate:,} against {contrast.n_baseline:,} trials{tasks}"


def task_restriction(contrast: Contrast) -> str:
    """Return the words that limit a verdict to these tasks, if it does not hold for others."""
    fixed = contrast.look is None and contrast.units.rule is TaskRule.FIXED
    return " on these tasks" if fixed else ""


def _describe_direction(contrast: Contrast) -> str:
    more, metric = contrast.difference.point > 0, contrast.metric
    if outcome_of(metric).whole:
        return f"{'more' if more else 'fewer'} {metric}"
    return f"a {'higher' if more else 'lower'} {metric}"


def _answer_how_much(contrast: Contrast) -> str:
    metric, like = contrast.outcome, rounding_reference(contrast.difference)
    text = format_difference(metric, contrast.difference.point, like)
    if contrast.look is not None:
        every = counted(contrast.n_baseline, "pair") if contrast.paired else "trials"
        text += f" at the last look; over all {every}"
        text += f" {format_difference(metric, contrast.naive.point, like)}"
    if contrast.relative is not None:
        text += f", or {format_relative_change(contrast.relative.point)}"
    means = (contrast.mean_candidate.point, contrast.mean_baseline.point)
    against = " against ".join(format_value(metric, mean, like) for mean in means)
    text += f": {against} on average"
    if contrast.effects is not None:
        chance = share_text(contrast.effects.improvement.point)
        where = "pairs" if contrast.paired else "draws of one trial of each"
        text += f". It is higher in {chance} % of {where}"
        if any(row.difference == 0 for row in contrast.pairs):
            text += ", ties counting half"
    if (
        contrast.fewest is not None
        and contrast.standardised is not None
        and min(contrast.unit_counts[:2]) > 2
    ):
        text += f". Effect size: {contrast.standardised.point:+.2f} standard deviations"
    if contrast.shrunken is not None and contrast.look is None:
        less = format_difference(metric, contrast.shrunken, like)
        text += f". Corrected for the luck in a clear verdict (winner's curse): {less}"
    return f"{text}."


def _answer_how_certain(comparison: Comparison, contrast: Contrast) -> str:
    level = level_text(comparison.setup.level)
    if contrast.look is not None:
        return _describe_looks(contrast, level)
    if contrast.tests is None:
        return "Not at all: an interval takes two values or more on either side."
    if contrast.fewest is not None:
        if not contrast.difference.known:
            return "There is no interval: the differences do not vary."
        ends = format_bounds(contrast.outcome, contrast.difference)
        normal = "The" if contrast.tests.t.exact else "Assuming normal differences, the"
        return f"{normal} {level} interval of the difference is {ends}."
    sentences = [
        _describe_interval(contrast, level) if contrast.difference.known else None,
        _describe_p_value(comparison, contrast),
        _describe_equivalence(comparison, contrast),
        _describe_tasks(contrast),
        _warn_skewness(contrast),
    ]
    return " ".join(filter(None, sentences))


def _describe_interval(contrast: Contrast, level: str) -> str:
    ends = format_bounds(contrast.outcome, contrast.difference)
    if contrast.promised:
        return f"The {level} interval of the difference is {ends}."
    return f"The interval of the difference is {ends}, at a level of about {level}."


def describe_details(comparison: Comparison, contrast: Contrast) -> str:
    """Describe the secondary tests and the gain from pairing, for `--detail`."""
    tests = contrast.tests
    if tests is None or contrast.look is not None:
        return ""
    sentences = [
        f"Other tests of {contrast.metric}:",
        f"{_describe_resampling(tests)}; {tests.rank.name}: {p_text(tests.rank.p_value)}.",
        contrast.pairing.sentence if contrast.pairing is not None else None,
    ]
    return " ".join(filter(None, sentences))


def _describe_tasks(contrast: Contrast) -> str | None:
    units = contrast.units
    if units.rule is TaskRule.WORLDS:
        return None
    averaged = ", trials of a world averaged" if units.replicates > 1 else ""
    sample = f"{units.tasks:,} tasks, {counted(units.worlds, 'world')}{averaged}:"
    if units.rule is TaskRule.FIXED:
        return (
            f"{sample} the answer is about these tasks and no others (--tasks sample takes them"
            " as a sample of many)."
        )
    return (
        f"{sample} the tasks are taken as a sample of many, so that what trials of a task have"
        " in common counts once (--tasks fixed judges these tasks alone)."
    )


def _warn_skewness(contrast: Contrast) -> str | None:
    if contrast.skewness is None:
        return None
    return (
        "The differences are skewed: in simulations with such data, intervals called 95 % held"
        " the truth in 82 to 93 % of cases."
    )


def _describe_looks(contrast: Contrast, level: str) -> str:
    look = contrast.look
    assert look is not None
    kind = str(look.design.get("kind", "sequential"))
    alpha = look.design.get("alpha")
    if isinstance(alpha, float):
        level = level_text(1 - alpha)
    text = (
        f"The run was looked at until it was decided ({kind} boundary). At look {look.look},"
        f" after {counted(look.pairs, 'pair')}, the interval that holds at every look ({level})"
        f" was {format_bounds(contrast.outcome, contrast.difference)}; the verdict is the one"
        " of that look."
    )
    if contrast.naive.known:
        text += (
            f" The plain interval of all trials,"
            f" {format_bounds(contrast.outcome, contrast.naive)}, ignores the looks: do not use"
            " it."
        )
    return text


def _rarer(contrast: Contrast) -> str:
    """Return the assumption of an equivalence without a range; other kinds need none."""
    assert contrast.tests is not None
    if contrast.outcome.ends or contrast.tests.t.exact:
        return ""
    return ", assuming no rarer, larger differences"


def _describe_resampling(tests: Tests) -> str:
    name = f"{'exact ' if tests.resampling.exact else ''}{tests.resampling.name}"
    return f"{name}: {p_text(tests.resampling.p_value)}"


def _describe_p_value(comparison: Comparison, contrast: Contrast) -> str:
    tests = contrast.tests
    assert tests is not None
    if not tests.spread_known:
        return (
            "All differences are equal, so their spread is not known and a t test cannot be"
            f" used; the verdict is that of the {_describe_resampling(tests)}."
        )
    others = comparison.family
    adjusted = ""
    if others > 1:
        adjusted = f", {p_text(tests.p_adjusted)} adjusted for {others} comparisons"
        if tests.p_value < comparison.setup.alpha <= tests.p_adjusted:
            adjusted += ", which is why it stays undecided"
    name = tests.t.name[:1].upper() + tests.t.name[1:]
    return f"{name}: {p_text(tests.t.p_value)}{adjusted}."


def _describe_equivalence(comparison: Comparison, contrast: Contrast) -> str | None:
    tests, margin = contrast.tests, comparison.setup.min_effect
    if tests is None or tests.equivalence_p is None or margin is None:
        return None
    size = format_value(contrast.outcome, margin)
    if contrast.verdict is Verdict.NO_DIFFERENCE:
        return (
            f"It differs by less than {size} either way, the smallest difference that matters"
            f" (two one-sided tests, {p_text(tests.equivalence_p)}){_rarer(contrast)}."
        )
    n, _, _, unit = contrast.unit_counts
    needs = tests.equivalence_needs or 0
    if n < needs:
        return (
            f"That it differs by less than {size} either way cannot be shown with"
            f" {counted(n, unit)}; about {needs:,} {unit}s would."
        )
    return (
        f"That it differs by less than {size} either way is not shown"
        f" ({p_text(tests.equivalence_p)})."
    )
