"""Trials that are there more than once, and subjects that are the same ones.

A copy is no new evidence: it counts once, and is named. Trials of one world under one seed
are replicates, which `matching` averages, and no copies.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from assay.experiments.subjects import Subject, TrialOutcome
from assay.types import TrialState

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
    trials = _once(subject.trials, lambda trial: trial.trial_id, _contents)
    if twice := len(subject.trials) - len(trials):
        said.append(f"{twice:,} trials of {subject.name} are there twice; each counts once.")
    timed = _once(trials, _fine_time, lambda trial: (trial.task, *_contents(trial)))
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
        trials = trials[:period]
    return _Kept(replace(subject, trials=trials) if said else subject, said)


def same_trials(baseline: Subject, candidate: Subject) -> str | None:
    """A sentence, if two subjects are the same trials or have the same numbers throughout."""
    ids = {trial.trial_id for trial in baseline.trials}
    if shared := sum(trial.trial_id in ids for trial in candidate.trials):
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
    trials: Sequence[TrialOutcome],
    mark: Callable[[TrialOutcome], object],
    contents: Callable[[TrialOutcome], object],
) -> tuple[TrialOutcome, ...]:
    """The trials, but one of those that have the same mark and the same contents.

    Contents take long, and are asked for only where a mark comes twice; None is no mark.
    """
    marks = [mark(trial) for trial in trials]
    often = Counter(marks)
    seen = set()
    kept = []
    for trial, own in zip(trials, marks, strict=True):
        if own is not None and often[own] > 1:
            told = (own, contents(trial))
            if told in seen:
                continue
            seen.add(told)
        kept.append(trial)
    return tuple(kept)


def _contents(trial: TrialOutcome) -> tuple[object, ...]:
    return trial.state, *sorted(trial.values.items())


def _fine_time(trial: TrialOutcome) -> float | None:
    """A time that no two trials share; None of one that is not timed finely."""
    time: float = trial.values.get("duration_s", 0.0)
    fine = trial.state is TrialState.RESULT and time != round(time, _DIGITS)
    return time if fine else None


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
