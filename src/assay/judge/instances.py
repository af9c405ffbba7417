"""Subjects by task: how often they succeed, and how long success takes them.

A trial is a success if its outcome `success` is 1, where it has one, else if it has enough
achievements. A trial that did not succeed is censored: success would have taken it longer.
"""

import math
from collections.abc import Sequence

from assay.experiments.subjects import Subject, TrialOutcome
from assay.judge.facts import InstanceRow, Timed
from assay.stats.intervals import wilson
from assay.stats.survival import median_time
from assay.types import TrialState

__all__ = ["instances", "succeeded"]

_NO_TASK = "(no task)"


def instances(
    subjects: Sequence[Subject], enough: float, level: float
) -> tuple[InstanceRow, ...]:
    """Every subject on every task, tasks in the order they first come."""
    found: dict[str, dict[str, list[TrialOutcome]]] = {}
    for subject in subjects:
        for trial in subject.trials:
            if succeeded(trial, enough) is not None:
                by_subject = found.setdefault(trial.task or _NO_TASK, {})
                by_subject.setdefault(subject.id, []).append(trial)
    return tuple(
        _row(task, subject.id, by_subject[subject.id], enough, level)
        for task, by_subject in found.items()
        for subject in subjects
        if subject.id in by_subject
    )


def succeeded(trial: TrialOutcome, enough: float) -> bool | None:
    """Whether a trial was a success; None if nothing tells."""
    if trial.state is not TrialState.RESULT:
        return None
    stated, reached = trial.values.get("success"), trial.values.get("achievements")
    if stated is not None and math.isfinite(stated):
        return stated >= 0.5
    if reached is not None and math.isfinite(reached):
        return reached >= enough
    return None


def _row(
    task: str, subject: str, trials: Sequence[TrialOutcome], enough: float, level: float
) -> InstanceRow:
    good = [bool(succeeded(trial, enough)) for trial in trials]
    seconds = [trial.values.get("duration_s") for trial in trials]
    times = tuple(
        Timed(time, reached)
        for time, reached in zip(seconds, good, strict=True)
        if time is not None and math.isfinite(time)
    )
    middle = median_time(*zip(*times, strict=True)) if times else math.nan
    return InstanceRow(
        task=task,
        subject=subject,
        n=len(trials),
        successes=sum(good),
        success=wilson(sum(good), len(good), level),
        times=times,
        median_time=None if math.isnan(middle) else middle,
    )
