"""Comparison of several subjects: from trial outcomes to everything a report contains.

The first metric is the primary one and decides the verdict; the others are shown next to it.
Reads no files and prints nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from assay.core.options import takes_options
from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.judge.caveats import empty_reason, notes
from assay.judge.describe import (
    describe,
    instances,
    metrics_of,
    passes,
    score_gaps,
    scores,
)
from assay.judge.design import allowed_names, without_copies
from assay.judge.missing import judged
from assay.judge.options import ComparisonOptions, MethodOptions
from assay.judge.outcomes import UNLOCKED, merge_declared
from assay.judge.power import planned
from assay.judge.ranking import standings
from assay.judge.results import (
    Comparison,
    Contrast,
    Setup,
    Standings,
    SubjectFacts,
    TaskRule,
)
from assay.judge.subjects import SUBJECT_METRICS, Subject
from assay.stats.intervals import Method
from assay.stats.multiplicity import Correction
from assay.types import TrialState

_FIRST = (
    *("achievements", "score", "reward", "success", "invalid_rate", "steps", "turns"),
    *("tokens", "cost_usd", "duration_s"),
)
"""Default order of metrics; others follow in the order in which they occur."""
_ALWAYS_DESCRIBED = ("achievements", "cost_usd", "duration_s", "tokens")
_CHOICES = (TaskRule.FIXED, TaskRule.SAMPLE)


@takes_options
def compare(
    subjects: Sequence[Subject],
    *,
    metrics: Sequence[str] | None = None,
    baseline: str | None = None,
    options: ComparisonOptions,
    methods: MethodOptions,
) -> Comparison:
    """Compare subjects with a baseline, and with each other if there are three or more.

    The unit is a world (one task with one seed); a subject's trials in a world are averaged.
    Worlds that two subjects have in common are paired. With fewer than two common worlds, the
    subjects are compared as independent samples.

    Args:
        subjects: Two or more. Reference entries (played only for comparison) are shown and not
            judged if there are at least two others.
        metrics: Metrics to compare; the first is the primary one. Default: all common ones.
        baseline: The id or name of the baseline. Default: the first subject that is not a
            reference entry; if there is only one such subject, the last reference entry.
        options: Level, smallest effect, tasks and seeds.
        methods: How intervals and p values are made.

    Raises:
        UsageError: Fewer than two subjects have results, or a chosen name does not exist.
    """
    level = 0.95 if options.level is None else options.level
    enough = options.success_achievements
    check_choices(level, options.min_effect, enough, options.seed)
    kept = [without_copies(subject) for subject in _of_seeds(subjects, options.seeds)]
    usable, left_out = _usable([subject for subject, _ in kept])
    usable, without = _having(usable, metrics)
    left_out |= without
    chosen, lacking = common_metrics(usable, metrics)
    declared = merge_declared(
        (subject.outcomes for subject in usable),
        options.higher_is_better,
        options.lower_is_better,
    )
    usable = [replace(subject, outcomes=declared) for subject in usable]
    first = _baseline(usable, baseline)
    setup = Setup(
        metrics=chosen,
        baseline=first.id,
        level=level,
        min_effect=options.min_effect,
        success_achievements=enough,
        seed=options.seed,
        method=_member(Method, "method", methods.method),
        correction=_member(Correction, "correction", methods.correction),
        outcomes=declared,
        tasks=task_rule(options.tasks),
        allow_different=allowed_names(options.allow_different),
        seeds=options.seeds,
        known_metrics=common_metrics(usable, None)[0] if metrics else chosen,
    )
    described = list(dict.fromkeys([*chosen, *_ALWAYS_DESCRIBED]))
    facts = tuple(
        describe(
            subject,
            described,
            level,
            judged=_judged(subject, first, usable),
            tasks=setup.tasks,
        )
        for subject in usable
    )
    ranked = standings([subject for subject in facts if subject.judged], setup)
    contrasts = _contrasts(first, facts, setup, ranked)
    seeds_played = [
        trial.seed for subject in subjects for trial in subject.trials if trial.seed is not None
    ]
    return Comparison(
        setup=setup,
        subjects=facts,
        contrasts=contrasts,
        standings=ranked
        and replace(ranked, pairs=tuple(replace(pair, pairs=()) for pair in ranked.pairs)),
        instances=instances(usable, enough, level),
        passes=passes(usable, enough, level),
        scores=scores(usable, level),
        score_gaps=score_gaps(first.id, usable, level),
        notes=(
            *(sentence for _, said in kept for sentence in said),
            *notes(facts, contrasts, setup, left_out, lacking),
        ),
        left_out=left_out,
        next_seed=max(seeds_played) + 1 if seeds_played else None,
    )


def _contrasts(
    baseline: Subject,
    facts: Sequence[SubjectFacts],
    setup: Setup,
    ranked: Standings | None,
) -> tuple[Contrast, ...]:
    """Return the contrasts of every candidate in every metric.

    If all pairs are reported, the primary metric is adjusted for all of them at once: two
    separate families would together exceed the error rate.
    """
    candidates = [subject for subject in facts if subject.judged and subject.id != baseline.id]
    by_id = {subject.id: subject for subject in facts}
    contrasts: list[Contrast] = []
    for metric in setup.metrics:
        if metric == setup.primary and ranked is not None:
            own = [pair for pair in ranked.pairs if pair.baseline == baseline.id]
            size = len(ranked.pairs)
        else:
            own = list(judged([(baseline, one.subject) for one in candidates], metric, setup))
            size = len(own)
        if metric == setup.primary:
            own = [planned(found, by_id, setup, size) for found in own]
        contrasts += own
    return tuple(contrasts)


def _judged(subject: Subject, baseline: Subject, subjects: Sequence[Subject]) -> bool:
    players = [other for other in subjects if not other.baseline or other.id == baseline.id]
    return not subject.baseline or subject.id == baseline.id or len(players) < 2


def _usable(subjects: Sequence[Subject]) -> tuple[list[Subject], dict[str, str]]:
    """Return the subjects that have results, and by name why the others are left out."""
    for what, texts in (("id", [s.id for s in subjects]), ("name", [s.name for s in subjects])):
        for text in texts:
            if texts.count(text) > 1:
                raise UsageError(
                    f"two subjects have the {what} {text!r}; give each its own, or name it once"
                )
    left_out = {
        subject.name: empty_reason(subject) for subject in subjects if not _has_results(subject)
    }
    usable = [subject for subject in subjects if subject.name not in left_out]
    if len(usable) < 2:
        raise UsageError(_too_few(usable, left_out))
    return usable, left_out


def _having(
    subjects: list[Subject], wanted: Sequence[str] | None
) -> tuple[list[Subject], dict[str, str]]:
    """Leave out reference entries that lack a requested metric; also return why, by name."""
    lacking = {
        subject.name: f"{subject.name} has no {', '.join(missing)}"
        for subject in subjects
        if subject.baseline and (missing := sorted({*(wanted or ())} - {*metrics_of(subject)}))
    }
    kept = [subject for subject in subjects if subject.name not in lacking]
    return (kept, lacking) if len(kept) > 1 else (subjects, {})


def _of_seeds(subjects: Sequence[Subject], seeds: tuple[int, int] | None) -> Sequence[Subject]:
    """Return the subjects with only the trials in this range of seeds."""
    if seeds is None:
        return subjects
    found = []
    for subject in subjects:
        known = [trial.seed for trial in subject.trials if trial.seed is not None]
        trials = tuple(
            trial
            for trial in subject.trials
            if trial.seed is not None and seeds[0] <= trial.seed <= seeds[1]
        )
        if not trials:
            played = (
                f"it has seeds {min(known)} to {max(known)}" if known else "it has no seeds"
            )
            raise UsageError(
                f"no trial of {subject.name!r} has a seed from {seeds[0]} to {seeds[1]};"
                f" {played}"
            )
        # Interim analyses covered all trials, so they are not valid for a part of them.
        found.append(replace(subject, trials=trials, looks=(), run_id=None))
    return found


def _has_results(subject: Subject) -> bool:
    return any(
        trial.state is TrialState.RESULT and any(map(math.isfinite, trial.values.values()))
        for trial in subject.trials
    )


def _too_few(usable: Sequence[Subject], left_out: Mapping[str, str]) -> str:
    if left_out:
        return f"there are no two to compare: {'; '.join(left_out.values())}"
    if usable:
        return (
            f"{usable[0].name!r} alone cannot be compared; name another one to compare it with"
        )
    return "there is nothing to compare; name two experiments or more"


def _baseline(subjects: Sequence[Subject], wanted: str | None) -> Subject:
    if wanted is None:
        players = [subject for subject in subjects if not subject.baseline]
        beside = [subject for subject in subjects if subject.baseline]
        # The last reference entry is the random policy, which is more informative than doing
        # nothing.
        return (players or beside)[0] if len(players) != 1 or not beside else beside[-1]
    for subject in subjects:
        if wanted in (subject.id, subject.name):
            return subject
    raise UsageError(unknown_name("baseline", wanted, [subject.name for subject in subjects]))


def common_metrics(
    subjects: Sequence[Subject], wanted: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Return the metrics to compare, and for each skipped one the subjects that lack it.

    Raises:
        UsageError: A subject lacks a requested metric, or the subjects have none in common.
    """
    having = {subject.name: metrics_of(subject) for subject in subjects}
    everything = list(dict.fromkeys(name for names in having.values() for name in names))
    if wanted is not None:
        for metric in wanted:
            if metric not in everything and any(
                metric in subject.facts.get(SUBJECT_METRICS, {}) for subject in subjects
            ):
                raise UsageError(
                    f"{metric!r} is one number for each experiment as a whole, and cannot be "
                    "tested; 'assay experiments show' and 'assay compare --detail' print it"
                )
        return _wanted(wanted, having), {}
    plain = [name for name in everything if not name.startswith(UNLOCKED)]
    plain.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    lacking = {
        metric: [name for name, own in having.items() if metric not in own] for metric in plain
    }
    shared = tuple(metric for metric in plain if not lacking[metric])
    if not shared:
        owned = "; ".join(f"{name!r} has {', '.join(own)}" for name, own in having.items())
        raise UsageError(f"there is no metric that all of them have: {owned}")
    return shared, {metric: names for metric, names in lacking.items() if names}


def _wanted(wanted: Sequence[str], having: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    if not wanted:
        raise UsageError("no metric was named; name one or more, such as achievements")
    for metric in wanted:
        for subject, own in having.items():
            if metric not in own:
                shown = [name for name in own if not name.startswith(UNLOCKED)] or own
                raise UsageError(f"{subject!r}: {unknown_name('metric', metric, shown)}")
    return tuple(dict.fromkeys(wanted))


def task_rule(chosen: TaskRule | str | None) -> TaskRule | None:
    """Parse the rule for several tasks; None means that their number decides.

    Raises:
        UsageError: The rule does not exist.
    """
    if chosen is None:
        return None
    if chosen not in _CHOICES:
        raise UsageError(unknown_name("rule of tasks", str(chosen), _CHOICES))
    return TaskRule(chosen)


_Choice = TypeVar("_Choice", bound=StrEnum)


def _member(kind: type[_Choice], what: str, value: str) -> _Choice:
    try:
        return kind(value)
    except ValueError:
        raise UsageError(unknown_name(what, value, kind)) from None


def check_choices(
    level: float, min_effect: float | None = None, enough: float = 3, seed: int = 0
) -> None:
    """Check the values of options.

    Raises:
        UsageError: A value is not allowed.
    """
    if not 0.5 <= level < 1:
        raise UsageError(f"level {level!r} is not from 0.5 to below 1; 0.95 is usual")
    if min_effect is not None and not 0 < min_effect < math.inf:
        raise UsageError(
            f"min_effect {min_effect!r} is no size of a difference; give a number above 0, in"
            " the unit of the first metric"
        )
    if not math.isfinite(enough):
        raise UsageError(f"success_achievements {enough!r} is not allowed; give a number")
    if seed < 0:
        raise UsageError(f"seed {seed} is not allowed; give 0 or more")
