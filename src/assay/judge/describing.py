"""One subject at a time: what its trials came to, and the curves its file may hold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.experiments.subjects import Subject
from assay.judge.facts import Curve, Description, SubjectFacts
from assay.judge.matching import independent_values, trial_values
from assay.metrics.tally import LOWER_IS_BETTER
from assay.stats.intervals import t_interval
from assay.types import TrialState

__all__ = ["UNLOCKED", "describe", "lower_ones", "metrics_of"]

UNLOCKED = "unlocked/"
"""What the metrics begin with that say which achievements an episode unlocked."""


def metrics_of(subject: Subject) -> list[str]:
    """The metrics a subject has a value of, in the order they first come."""
    found: dict[str, None] = {}
    for trial in subject.trials:
        if trial.state is TrialState.RESULT:
            # Most trials have the same metrics, and comparing sets of keys is fast.
            if trial.values.keys() <= found.keys():
                continue
            found.update(
                dict.fromkeys(
                    name for name, value in trial.values.items() if math.isfinite(value)
                )
            )
    return list(found)


def lower_ones(subjects: Sequence[Subject]) -> frozenset[str]:
    """The metrics of which less is better: known ones, and those of the subjects' own."""
    return LOWER_IS_BETTER.union(*(one.lower_is_better for one in subjects))


def describe(
    subject: Subject, metrics: Sequence[str], level: float, *, judged: bool
) -> SubjectFacts:
    """Sum up one subject in these metrics."""
    states = [trial.state for trial in subject.trials]
    found = {metric: _description(subject, metric, level) for metric in metrics}
    return SubjectFacts(
        subject=subject,
        judged=judged,
        results=states.count(TrialState.RESULT),
        failures=states.count(TrialState.FAILURE),
        infrastructure=states.count(TrialState.INFRASTRUCTURE),
        metrics={metric: one for metric, one in found.items() if one is not None},
        curves=tuple(_curves(subject.facts.get("curves"))),
    )


def _description(subject: Subject, metric: str, level: float) -> Description | None:
    values = trial_values(subject.trials, metric)
    if not values:
        return None
    # Trials of one pair share a world: the interval counts them once, the spread shows all.
    mean = t_interval(independent_values(subject.trials, metric).tolist(), level)
    return Description(
        n=len(values),
        mean=mean,
        median=float(np.median(values)),
        sd=float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
        least=min(values),
        most=max(values),
    )


def _curves(stated: Any) -> list[Curve]:
    """Curves from `{"metric": {"steps": [...], "values": [...]}}`, or from lists of such.

    What does not look like one is passed over: a file may use the word for something else.
    """
    if not isinstance(stated, Mapping):
        return []
    found = []
    for metric, one in stated.items():
        for each in one if isinstance(one, list) else [one]:
            curve = _curve(str(metric), each)
            if curve is not None:
                found.append(curve)
    return found


def _curve(metric: str, stated: Any) -> Curve | None:
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
    return Curve(metric, tuple(step for step, _ in points), tuple(value for _, value in points))


def _number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )
