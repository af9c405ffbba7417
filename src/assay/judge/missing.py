"""Lost trials: one rule for everything that is missing from a comparison.

A trial is lost if it has no value of the metric: absent, null, failed, ungraded, without this
metric, or ended by an infrastructure error. Trials that never started are not lost. In a file
without a plan, the worlds of the other side were planned; the key `planned` (a number of
trials) overrides this.

If the range of the metric is known, lost trials are set to its ends, pair by pair. The interval
of the difference is the union of the intervals at both ends (Horowitz & Manski, 2000), and a
verdict stands only if it holds at both. Without a range, the tipping point is the distance from
the mean of their side at which the lost trials change the verdict. There is then no verdict if
5 % of the trials of a side were lost, or if one side loses more often.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from assay.judge.contrasts import contrast, decided
from assay.judge.matching import trial_values
from assay.judge.outcomes import Scale, scale_of
from assay.judge.results import Contrast, Losses, Setup
from assay.judge.subjects import Subject, TrialOutcome, Trials
from assay.stats.intervals import Interval
from assay.stats.missing import losses_matter
from assay.stats.shares import fisher_exact
from assay.types import TrialState, Verdict

_NOT_FILES = ("store", "benchmark")
"""Sources that list every trial that was started."""


def judged(
    pairs: Iterable[tuple[Subject, Subject]], metric: str, setup: Setup
) -> tuple[Contrast, ...]:
    """Compare pairs of subjects in one metric, with verdicts that take account of losses."""
    pairs = list(pairs)
    found = decided([contrast(*pair, metric, setup) for pair in pairs], setup)
    return tuple(
        with_losses(one, *pair, setup, len(pairs))
        for one, pair in zip(found, pairs, strict=True)
    )


def with_losses(
    found: Contrast, baseline: Subject, candidate: Subject, setup: Setup, family: int = 1
) -> Contrast:
    """Return the contrast with its interval and verdict if trials were lost.

    Args:
        found: The contrast, with its verdict.
        baseline: The subject that is the baseline of the contrast.
        candidate: The subject that is the candidate of the contrast.
        setup: Settings of the comparison.
        family: Number of comparisons that share the error rate; the bounds use alpha divided
            by this number.
    """
    sides = (baseline, candidate)
    lost = [lost_trials(own, other, found.metric) for own, other in (sides, sides[::-1])]
    if not any(lost) or found.same is not None or found.confounds:
        return found
    metric = found.metric
    values = [trial_values(side.trials, metric) for side in sides]
    counts = [len(own) for own in lost]
    of = [count + len(own) for count, own in zip(counts, values, strict=True)]
    scale = scale_of(found.outcome, np.concatenate(values))
    strict = replace(setup, level=1 - setup.alpha / family)

    def filled(*fill: float) -> Contrast:
        first = _filled(baseline, lost[0], metric, fill[0])
        second = _filled(candidate, lost[1], metric, fill[1])
        return decided([contrast(first, second, metric, strict)], strict)[0]

    losses = Losses(
        baseline=counts[0],
        of_baseline=of[0],
        candidate=counts[1],
        of_candidate=of[1],
        p_value=fisher_exact(counts[0], of[0], counts[1], of[1]),
        lowest=found.naive,
        highest=found.naive,
        known_ends=scale.known_ends,
        holds=False,
    )
    if scale.known_ends and found.look is None:
        low, high = filled(scale.high, scale.low), filled(scale.low, scale.high)
        losses = losses._replace(
            lowest=low.naive,
            highest=high.naive,
            holds=low.verdict is found.verdict is high.verdict,
        )
        union = Interval(found.difference.point, low.naive.low, high.naive.high)
        found = replace(found, difference=union)
    elif scale.known_ends:
        union = _look_bounds(found.difference, sum(counts), len(values[1]), scale)
        apart = union.low > 0 or union.high < 0
        losses = losses._replace(
            lowest=union, highest=union, holds=apart or not found.shows_difference
        )
        found = replace(found, difference=union)
    else:
        holds = not losses_matter(counts[0], of[0], counts[1], of[1])
        losses = losses._replace(holds=holds)
        if found.shows_difference and found.look is None:
            means = [float(np.mean(own)) for own in values]
            down = -1.0 if found.difference.point > 0 else 1.0
            losses = losses._replace(
                tipping=_tipping(
                    lambda by: (
                        filled(means[0] - down * by, means[1] + down * by).verdict
                        is found.verdict
                    ),
                    float(np.std(np.concatenate(values))),
                )
            )
    withheld = not losses.holds and found.verdict not in (Verdict.UNDECIDED, Verdict.UNKNOWN)
    verdict = Verdict.UNKNOWN if withheld else found.verdict
    shrunken = None if withheld else found.shrunken
    return replace(found, losses=losses, verdict=verdict, shrunken=shrunken)


def lost_trials(subject: Subject, other: Subject, metric: str) -> list[TrialOutcome]:
    """Return the trials of a subject without a value, absent ones as placeholders."""
    missing_T = np.isnan(Trials.of(subject.trials).column(metric))
    lost = [t for t, missing in zip(subject.trials, missing_T.tolist(), strict=True) if missing]
    planned, unlisted = (subject.facts.get(key) for key in ("planned", "without_result"))
    if isinstance(planned, int) and not isinstance(planned, bool):
        absent, count = [], planned - len(subject.trials)
    else:
        absent = _absent_worlds(subject, other)
        count = max(len(absent), unlisted if isinstance(unlisted, int) else 0)
    placeholders = absent[: max(0, count)]
    placeholders += [
        TrialOutcome(trial_id="", pair=None) for _ in range(count - len(placeholders))
    ]
    return lost + [
        replace(trial, trial_id=f"{subject.id} absent {at}", replicate=0)
        for at, trial in enumerate(placeholders)
    ]


def _absent_worlds(subject: Subject, other: Subject) -> list[TrialOutcome]:
    """Return a trial of the other side for each world that a file without a plan lacks.

    A file that has as many worlds as the other, but different ones, lacks none.
    """
    if subject.source in _NOT_FILES or "episodes" in subject.facts:
        return []
    own, theirs = (
        {trial.pair: trial for trial in reversed(side.trials) if trial.pair is not None}
        for side in (subject, other)
    )
    if not own.keys() & theirs.keys():
        return []
    absent = [trial for pair, trial in reversed(theirs.items()) if pair not in own]
    return absent[: max(0, len(theirs) - len(own))]


def _filled(
    subject: Subject, lost: Sequence[TrialOutcome], metric: str, value: float
) -> Subject:
    """Return the subject with this value as the result of all lost trials."""
    gone = {trial.trial_id for trial in lost}
    results = [
        replace(trial, state=TrialState.RESULT, values={metric: value}) for trial in lost
    ]
    kept = [trial for trial in subject.trials if trial.trial_id not in gone]
    facts = {key: own for key, own in subject.facts.items() if key != "until_decided"}
    return replace(subject, trials=(*kept, *results), looks=(), facts=facts)


def _look_bounds(interval: Interval, lost: int, pairs: int, scale: Scale) -> Interval:
    """Return the interval of a look, widened for pairs that were left out."""
    most, all_pairs = scale.high - scale.low, pairs + lost
    return Interval(
        interval.point,
        (pairs * interval.low - lost * most) / all_pairs,
        (pairs * interval.high + lost * most) / all_pairs,
    )


def _tipping(holds: Callable[[float], bool], scale: float) -> float:
    """Return the distance from the mean at which lost trials change a verdict; or infinity."""
    low, high = 0.0, scale
    if not holds(low):
        return low
    while holds(high):
        low, high = high, 4 * high
        if high > 1e4 * scale or not high:
            return math.inf
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
