"""One subject at a time: what its trials came to, by task, as a Crafter score, as curves.

A trial is a success if its outcome `success` is 1, where it has one, else if it has enough
achievements. A trial that did not succeed is censored: success would have taken it longer.
Nothing is compared here.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay._util.canonical import derived_id
from assay.crafter.rules import ACHIEVEMENTS
from assay.experiments.subjects import Subject, TrialOutcome
from assay.judge.facts import (
    Description,
    InstanceRow,
    LearningCurve,
    ScoreRow,
    SubjectFacts,
    TaskRule,
    Timed,
)
from assay.judge.matching import mean_of, trial_values
from assay.metrics.tally import LOWER_IS_BETTER
from assay.stats.intervals import wilson
from assay.stats.score import crafter_score_interval, expected_score_at
from assay.stats.survival import median_time
from assay.types import TrialState

__all__ = [
    "UNLOCKED",
    "describe",
    "instances",
    "lower_is_better_metrics",
    "metrics_of",
    "scores",
]

UNLOCKED = "unlocked/"
"""What the metrics begin with that say which achievements an episode unlocked."""
_UNLOCKS = tuple(f"{UNLOCKED}{name}" for name in ACHIEVEMENTS)
_NO_TASK = "(no task)"


def metrics_of(subject: Subject) -> list[str]:
    """The metrics a subject has a value of, in the order they first come."""
    metrics: dict[str, None] = {}
    for trial in subject.trials:
        if trial.state is TrialState.RESULT:
            # Most trials have the same metrics, and comparing sets of keys is fast.
            if trial.values.keys() <= metrics.keys():
                continue
            metrics.update(
                dict.fromkeys(
                    name for name, value in trial.values.items() if math.isfinite(value)
                )
            )
    return list(metrics)


def lower_is_better_metrics(subjects: Sequence[Subject]) -> frozenset[str]:
    """The metrics of which less is better: known ones, and those of the subjects' own."""
    return LOWER_IS_BETTER.union(*(subject.lower_is_better for subject in subjects))


def describe(
    subject: Subject,
    metrics: Sequence[str],
    level: float,
    *,
    judged: bool,
    tasks: TaskRule | None = None,
) -> SubjectFacts:
    """Sum up one subject in these metrics."""
    states = [trial.state for trial in subject.trials]
    summaries = {metric: _description(subject, metric, level, tasks) for metric in metrics}
    return SubjectFacts(
        subject=subject,
        judged=judged,
        results=states.count(TrialState.RESULT),
        failures=states.count(TrialState.FAILURE),
        infrastructure=states.count(TrialState.INFRASTRUCTURE),
        metrics={
            metric: summary for metric, summary in summaries.items() if summary is not None
        },
        curves=tuple(_curves(subject.facts.get("curves"))),
    )


def instances(
    subjects: Sequence[Subject], enough: float, level: float
) -> tuple[InstanceRow, ...]:
    """Every subject on every task, tasks in the order they first come."""
    by_task: dict[str, dict[str, list[TrialOutcome]]] = {}
    for subject in subjects:
        for trial in subject.trials:
            if _succeeded(trial, enough) is not None:
                by_subject = by_task.setdefault(trial.task or _NO_TASK, {})
                by_subject.setdefault(subject.id, []).append(trial)
    return tuple(
        _instance_row(task, subject.id, by_subject[subject.id], enough, level)
        for task, by_subject in by_task.items()
        for subject in subjects
        if subject.id in by_subject
    )


def scores(subjects: Sequence[Subject], level: float, seed: int) -> tuple[ScoreRow, ...]:
    """The scores of those subjects whose episodes say what they unlocked.

    The score grows with the number of episodes, so each is also given at the smallest number
    that any of them has: the mean over all choices of so many of its episodes.
    """
    tables = {subject.id: _unlocked(subject.trials) for subject in subjects}
    tables = {subject: table for subject, table in tables.items() if len(table) > 1}
    at = min(map(len, tables.values()), default=0)
    return tuple(_score_row(name, table, at, level, seed) for name, table in tables.items())


def _description(
    subject: Subject, metric: str, level: float, tasks: TaskRule | None
) -> Description | None:
    values = trial_values(subject.trials, metric)
    if not values:
        return None
    return Description(
        n=len(values),
        # The interval counts trials of one world once, the spread shows all.
        mean=mean_of(subject.trials, metric, level, tasks),
        median=float(np.median(values)),
        sd=float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
        least=min(values),
        most=max(values),
    )


def _curves(stated: Any) -> list[LearningCurve]:
    """Curves from `{"metric": {"steps": [...], "values": [...]}}`, or from lists of such.

    What does not look like one is passed over: a file may use the word for something else.
    """
    if not isinstance(stated, Mapping):
        return []
    curves = [
        _curve(str(metric), run)
        for metric, runs in stated.items()
        for run in (runs if isinstance(runs, list) else [runs])
    ]
    return [curve for curve in curves if curve is not None]


def _curve(metric: str, stated: Any) -> LearningCurve | None:
    if not isinstance(stated, Mapping):
        return None
    steps, values = stated.get("steps"), stated.get("values")
    if not isinstance(steps, list) or not isinstance(values, list) or len(steps) != len(values):
        return None
    points = [
        (float(step), float(value))
        for step, value in zip(steps, values, strict=True)
        if _number(step) and _number(value)
    ]
    if len(points) < 2:
        return None
    points.sort()
    return LearningCurve(
        metric, tuple(step for step, _ in points), tuple(value for _, value in points)
    )


def _number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )


def _succeeded(trial: TrialOutcome, enough: float) -> bool | None:
    """Whether a trial was a success; None if nothing tells."""
    if trial.state is not TrialState.RESULT:
        return None
    stated, reached = trial.values.get("success"), trial.values.get("achievements")
    if stated is not None and math.isfinite(stated):
        return stated >= 0.5
    if reached is not None and math.isfinite(reached):
        return reached >= enough
    return None


def _instance_row(
    task: str, subject: str, trials: Sequence[TrialOutcome], enough: float, level: float
) -> InstanceRow:
    successes = [bool(_succeeded(trial, enough)) for trial in trials]
    seconds = [trial.values.get("duration_s") for trial in trials]
    times = tuple(
        Timed(time, success)
        for time, success in zip(seconds, successes, strict=True)
        if time is not None and math.isfinite(time)
    )
    middle = median_time(*zip(*times, strict=True)) if times else math.nan
    return InstanceRow(
        task=task,
        subject=subject,
        n=len(trials),
        successes=sum(successes),
        success=wilson(sum(successes), len(successes), level),
        times=times,
        median_time=None if math.isnan(middle) else middle,
    )


def _score_row(
    subject: str, unlocked_E_A: NDArray[np.bool_], at: int, level: float, seed: int
) -> ScoreRow:
    rng = np.random.default_rng([seed, int(derived_id("score", subject), 16)])
    estimate = crafter_score_interval(unlocked_E_A, level=level, rng=rng)
    return ScoreRow(
        subject=subject,
        n=len(unlocked_E_A),
        interval=estimate.interval,
        corrected=estimate.corrected,
        at=at,
        matched=expected_score_at(unlocked_E_A, at, rng=rng),
    )


def _unlocked(trials: Sequence[TrialOutcome]) -> NDArray[np.bool_]:
    """Shape (E, A): which of the A achievements each of E episodes unlocked."""
    rows = [
        [trial.values[name] >= 0.5 for name in _UNLOCKS]
        for trial in trials
        if trial.state is TrialState.RESULT and _complete(trial)
    ]
    return np.array(rows, bool).reshape(len(rows), len(_UNLOCKS))


def _complete(trial: TrialOutcome) -> bool:
    return all(math.isfinite(trial.values.get(name, math.nan)) for name in _UNLOCKS)
