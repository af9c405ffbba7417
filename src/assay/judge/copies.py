"""Trials that are there more than once, and subjects that are the same ones.

A copy is no new evidence: it counts once, and is named. Trials of one world under one seed
are replicates, which `matching` averages, and no copies.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from assay.judge.subjects import Subject, TrialOutcome, Trials

__all__ = ["same_trials", "without_copies"]

_SHORTEST = 3
"""Trials that a list must have before it repeats itself; shorter ones do so by chance."""
_UNSEEDED, _SEEDED = 1e-2, 1e-6
"""A list is one of copies if chance would repeat it less often than that."""
_DIGITS = 4
"""A time that has more digits than these comes once."""


class _Kept(NamedTuple):
    subject: Subject
    sentences: list[str]


def without_copies(subject: Subject) -> _Kept:
    """The subject with each trial once, and what was left out, in sentences."""
    said = []
    trials = Trials.of(subject.trials)
    if len(trials.ids) < len(trials):
        trials = _once(trials, [trial.trial_id for trial in trials], _contents)
    if twice := len(subject.trials) - len(trials):
        said.append(f"{twice:,} trials of {subject.name} are there twice; each counts once.")
    timed = _once(trials, _fine_times(trials), lambda trial: (trial.task, *_contents(trial)))
    if copied := len(trials) - len(timed):
        trials = timed
        said.append(
            f"{copied:,} trials of {subject.name} are equal to the last digit to one under"
            " another seed, its time included: they are copies, and each counts once."
        )
    if period := _period(trials):
        seeds = "whatever their seeds" if trials[0].seed is not None else "without seeds"
        said.append(
            f"The {len(trials):,} trials of {subject.name} are {len(trials) // period:,} copies"
            f" of the same {period:,}, {seeds}: they are counted as {period:,}."
        )
        trials = Trials(trials[:period])
    return _Kept(replace(subject, trials=trials) if said else subject, said)


def same_trials(baseline: Subject, candidate: Subject) -> str | None:
    """A sentence, if two subjects are the same trials or have the same numbers throughout."""
    ids = Trials.of(baseline.trials).ids
    if not ids.isdisjoint(Trials.of(candidate.trials).ids):
        shared = sum(trial.trial_id in ids for trial in candidate.trials)
        return f"{shared:,} of the trials stand on both sides: they are the same ones"
    if len(ids) > 1 and len(ids) == len(candidate.trials):
        both = zip(baseline.trials, candidate.trials, strict=True)
        if all(_told(one) == _told(other) for one, other in both):
            return (
                "every number of both is the same, in every trial: one is a copy of the other,"
                " or both play alike"
            )
    return None


def _told(trial: TrialOutcome) -> tuple[object, ...]:
    return trial.task, trial.seed, trial.state, dict(trial.values)


def _once(
    trials: Trials,
    marks: Sequence[object],
    contents: Callable[[TrialOutcome], object],
) -> Trials:
    """The trials, but one of those that have the same mark and the same contents.

    Contents take long, and are asked for only where a mark comes twice; None is no mark.
    """
    often = Counter(mark for mark in marks if mark is not None)
    if often.total() == len(often):
        return trials
    seen = set()
    kept = []
    for trial, own in zip(trials, marks, strict=True):
        if often[own] > 1:
            told = (own, contents(trial))
            if told in seen:
                continue
            seen.add(told)
        kept.append(trial)
    return Trials(kept)


def _contents(trial: TrialOutcome) -> tuple[object, ...]:
    return trial.state, *sorted(trial.values.items())


def _fine_times(trials: Trials) -> list[float | None]:
    """Times that no two trials share; None of one that is not timed finely."""
    times = trials.column("duration_s").tolist()
    # NaN, which stands for no time, is not equal to itself either.
    return [time if time == time != round(time, _DIGITS) else None for time in times]


def _period(trials: Sequence[TrialOutcome]) -> int | None:
    """After how many trials a list begins again, whole times; None: it does not.

    Values that most trials of a task share come again by chance, and tell nothing; nor do
    replicates of a world, which count once anyway.
    """
    seeds = {(trial.task, trial.seed) for trial in trials if trial.seed is not None}
    if 0 < len(seeds) < len(trials):
        return None
    rows: list[tuple[object, ...]] = []
    for period in range(_SHORTEST, len(trials) // 2 + 1):
        if len(trials) % period or _contents(trials[0]) != _contents(trials[period]):
            continue
        rows = rows or [(trial.task, *_contents(trial)) for trial in trials]
        if rows == rows[:period] * (len(rows) // period):
            often, tasks = Counter(rows), Counter(row[0] for row in rows)
            chance = math.prod(often[row] / tasks[row[0]] for row in rows[period:])
            return period if chance < (_SEEDED if seeds else _UNSEEDED) else None
    return None
