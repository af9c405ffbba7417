"""Trials that are there more than once, and subjects that are the same ones.

A copy is no new evidence: it counts once, and is named. Trials of one world under one seed
are replicates, which `matching` averages, and no copies.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from assay.experiments.subjects import Subject, TrialOutcome
from assay.types import TrialState

__all__ = ["same_trials", "without_copies"]

_SHORTEST = 3
"""Trials that a list must have before it repeats itself; shorter ones do so by chance."""
_DIGITS = 4
"""A time that has more digits than these comes once."""


class _Kept(NamedTuple):
    subject: Subject
    sentences: list[str]


def without_copies(subject: Subject) -> _Kept:
    """The subject with each trial once, and what was left out, in sentences."""
    said = []
    distinct = {
        (trial.trial_id, trial.state, *trial.values.items()): trial for trial in subject.trials
    }
    trials = tuple(distinct.values())
    if twice := len(subject.trials) - len(trials):
        said.append(f"{twice:,} trials of {subject.name} are there twice; each counts once.")
    timed: dict[object, TrialOutcome] = {}
    for place, trial in enumerate(trials):
        timed.setdefault(_fingerprint(trial) or place, trial)
    if copied := len(trials) - len(timed):
        trials = tuple(timed.values())
        said.append(
            f"{copied:,} trials of {subject.name} are equal to the last digit to one under"
            " another seed, its time included: they are copies, and each counts once."
        )
    if period := _period(trials):
        said.append(
            f"The {len(trials):,} trials of {subject.name} are {len(trials) // period:,} copies"
            f" of the same {period:,}, without seeds: they are counted as {period:,}."
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


def _fingerprint(trial: TrialOutcome) -> tuple[object, ...] | None:
    """What no two trials share; None of one that is not timed finely."""
    time = trial.values.get("duration_s", 0.0)
    if trial.state is not TrialState.RESULT or time == round(time, _DIGITS):
        return None
    return trial.task, *sorted(trial.values.items())


def _period(trials: Sequence[TrialOutcome]) -> int | None:
    """After how many trials a list without seeds begins again, whole times; None: it does not.

    A list of equal values does not tell.
    """
    rows = [(trial.task, trial.state, *sorted(trial.values.items())) for trial in trials]
    if any(trial.seed is not None for trial in trials):
        return None
    for period in range(_SHORTEST, len(rows) // 2 + 1):
        again = len(rows) % period == 0 and rows == rows[:period] * (len(rows) // period)
        if again and len({row[1:] for row in rows}) > 1:
            return period
    return None
