"""What would settle a comparison, and what a verdict that is clear counts on.

*Settled* is only what was set down before its trials. Names in these sentences are untrusted:
whoever prints them makes them safe.
"""

import math
from collections.abc import Callable, Iterator

from assay.judge import Comparison, Contrast, TaskRule, Verdict
from assay.judge.facts import PowerPlan
from assay.judge.looks import looked_before
from assay.report.comparison.next_trials import play_new_worlds
from assay.report.numbers import dollars, hours, level_text, value
from assay.stats.intervals import Interval

__all__ = ["fewest_exact", "independent", "settle_words"]


def settle_words(comparison: Comparison, contrast: Contrast) -> str:
    """What would settle a contrast, or what its verdict counts on."""
    plan = contrast.settle
    if contrast.confounds:
        names = " ".join(f"--allow-different {one.name}" for one in contrast.confounds)
        return f"Let both do the same task; or say that this is what you compare: {names}."
    if contrast.same is not None:
        return "Other trials: these tell nothing about a difference."
    if contrast.verdict is not Verdict.UNDECIDED:
        return _settled(comparison, contrast)
    if contrast.look is not None and contrast.look.decision is None:
        return "Its run has not ended: resume it."
    if plan is None:
        if contrast.tests is None:
            return "Two trials of each at the least, better 5 or more: on the same seeds."
        if contrast.naive.point and not contrast.tests.spread_known:
            least = fewest_exact(comparison.setup.alpha)
            return (
                "All differences are equal, so nothing tells how many more it takes;"
                f" {least} pairs at the least."
            )
        return (
            "No difference was seen, so there is none to plan for; say which one would matter"
            " with --min-effect."
        )
    what = "new pairs" if contrast.paired else "new trials of each"
    units = contrast.units
    if units.rule is TaskRule.SAMPLE:
        tasks = plan.trials // units.worlds_per_task
        what += f" on {tasks:,} new tasks, of {units.worlds_per_task} worlds each,"
    size = "the one asked for" if plan.asked else "the one seen, less luck"
    text = (
        f"About {plan.trials:,} {what} ({_range(plan)}) would find a difference of"
        f" {value(contrast.metric, plan.effect)} ({size}) with a power of 80 %"
    )
    price = _price(plan)
    text += f": {price}." if price else "."
    return f"{text} {play_new_worlds(comparison, contrast, plan.trials)}"


def _settled(comparison: Comparison, contrast: Contrast) -> str:
    """What a clear verdict is worth, and what it counts on."""
    level, alpha = level_text(comparison.setup.level), comparison.setup.alpha
    against = [*_reservations(comparison, contrast)]
    before = contrast.look is not None or comparison.planned
    if before and not against:
        how = "the run was set up to stop here" if contrast.look else "it was planned before"
        return f"Settled at the {level} level: {how}, and nothing was chosen by its result."
    chosen = "" if before else _chosen(comparison)
    about = "" if contrast.promised or contrast.look else "about "
    text = f"It is decided at {about}the {level} level{chosen}."
    if not before:
        share = f"{about}1 in {1 / alpha:.3g}"
        text += f" Where there is no real difference, {share} comparisons still finds one."
    again = play_new_worlds(comparison, contrast, contrast.n_baseline)
    return " ".join([text, *against, f"To confirm it: {again[0].lower()}{again[1:]}"])


def _chosen(comparison: Comparison) -> str:
    """On what a verdict counts that nobody set down before."""
    setup = comparison.setup
    many = len(setup.known_metrics)
    one_of = f" (one of {many} metrics here)" if many > 1 else ""
    return (
        f", provided that {setup.primary}{one_of} and these trials were chosen before anybody"
        " saw a result"
    )


def _reservations(comparison: Comparison, contrast: Contrast) -> Iterator[str]:
    """Why a clear verdict does not settle it."""
    lost, least = contrast.losses, fewest_exact(comparison.setup.alpha)
    n, unit = independent(contrast)
    if lost is not None and not lost.holds:
        yield "It would not hold with the lost trials at their worst."
    pair = [comparison.of(side).subject for side in (contrast.baseline, contrast.candidate)]
    if looked_before(contrast, *pair):
        yield "A run stopped by looks at another comparison, which nothing here corrects for."
    settings = ["max_turns" in subject.facts for subject in pair]
    if any(settings) and not all(settings):
        yield "Nothing says that both were given the same task."
    if contrast.look is None and n < least:
        what = "trials of each" if unit == "trial" else f"{unit}s"
        yield (
            f"With so few it counts on values close to normal; from {least} {what} on, a test"
            " without that condition can confirm it."
        )


def _range(plan: PowerPlan) -> str:
    if plan.low is None:
        return "a guess from too few trials"
    if plan.high is None:
        return f"{plan.low:,} or more: so few trials tell little of the spread"
    return f"{plan.low:,} to {plan.high:,}: so few trials tell little of the spread"


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


def independent(contrast: Contrast) -> tuple[int, str]:
    """How many independent units a side has at the least, and what they are."""
    if contrast.units.rule is TaskRule.SAMPLE:
        return contrast.units.tasks, "task"
    n = min(contrast.n_baseline, contrast.n_candidate)
    return n, "pair" if contrast.paired else "trial"


def fewest_exact(alpha: float) -> int:
    """The number of pairs from which on the exact test can go below alpha."""
    return math.floor(1 - math.log2(alpha)) + 1
