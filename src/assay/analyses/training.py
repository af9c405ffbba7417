"""How fine-tuning jobs went: loss, token accuracy and rate by step, speed, and overfitting.

A job's curve is made of the events that its service told. Numbers at the end of a curve are
means of its last tenth, because the loss of one batch is mostly chance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.experiments.finetune_jobs import FinetuneEvent, FinetuneJob

__all__ = [
    "CurvePoint",
    "JobTraining",
    "OverfittingCheck",
    "TrainingAnalysis",
    "analyse_training",
]

_LEAST_POINTS: Final = 8
"""Validation losses below which nothing is said of overfitting."""
_RISE: Final = 0.01
"""The share of the lowest loss by which it must rise, so that a rise is worth a word."""
_VALIDATION: Final = ("full_valid_loss", "valid_loss")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One step of a job."""

    step: int
    values: Mapping[str, float]
    """By the names of the service: train_loss, valid_loss, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfittingCheck:
    """Whether the loss on validation data rises while that on training data falls."""

    verdict: str
    """overfits, no sign, or cannot tell."""
    why: str
    metric: str | None = None
    points: int = 0
    best_step: int | None = None
    """Where the lowest window of validation losses is."""
    best: float | None = None
    """Its mean."""
    last: float | None = None
    """The mean of the last window."""
    standard_error: float | None = None
    """Of the difference of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTraining:
    """How one job went."""

    id: str
    model: str
    result_model: str | None
    status: str
    backend: str
    data: str | None
    data_sha256: str | None
    rows: int | None
    hyperparameters: Mapping[str, object]
    points: tuple[CurvePoint, ...]
    first_loss: float | None
    """Mean training loss of the first tenth of the steps."""
    last_loss: float | None
    """Of the last tenth."""
    last_accuracy: float | None
    """Mean token accuracy in training, of the last tenth."""
    valid_loss: float | None
    valid_accuracy: float | None
    learning_rate: float | None
    """The highest that was told."""
    trained_tokens: int | None
    seconds: float | None
    """From the request to the end, by the service's clock."""
    steps_per_second: float | None
    """Over the steps that were told, by the service's clock."""
    tokens_per_second: float | None
    """Trained tokens over the time from the first to the last step."""
    overfitting: OverfittingCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAnalysis:
    """Several jobs side by side."""

    jobs: tuple[JobTraining, ...]
    source: str
    """The store."""
    notes: tuple[str, ...] = ()


def analyse_training(
    jobs: Sequence[tuple[FinetuneJob, Sequence[FinetuneEvent]]], source: str
) -> TrainingAnalysis:
    """Look at jobs and their events.

    Raises:
        UsageError: There is no job.
    """
    if not jobs:
        raise UsageError("no job is named; 'assay finetune list' shows those of the store")
    found = tuple(_training(job, events) for job, events in jobs)
    notes = [
        f"{job.id} has no steps: its service has told of none."
        for job in found
        if not job.points
    ]
    hashes = {job.data_sha256 for job in found if job.data_sha256}
    if len(hashes) > 1:
        notes.append(
            "The jobs were trained on different data, so that their training losses do not"
            " compare; validation losses do if the validation file is the same."
        )
    return TrainingAnalysis(jobs=found, source=source, notes=tuple(notes))


def _training(job: FinetuneJob, events: Sequence[FinetuneEvent]) -> JobTraining:
    told = [event for event in events if event.step is not None and event.metrics]
    # Of several events of one step the last counts, as after a resume from a checkpoint.
    by_step = {event.step: event for event in told if event.step is not None}
    points = tuple(CurvePoint(step, by_step[step].metrics) for step in sorted(by_step))
    times = [event.created_at for event in told if event.created_at is not None]
    span = (max(times) - min(times)).total_seconds() if times else 0.0
    steps = max(by_step) - min(by_step) if by_step else 0
    speed = steps / span if span > 0 and steps else None
    total = max((event.total_steps or 0 for event in told), default=0)
    tokens = None
    if speed is not None and job.trained_tokens and total:
        tokens = speed * job.trained_tokens / total
    return JobTraining(
        id=job.id,
        model=job.model,
        result_model=job.result_model,
        status=job.status,
        backend=job.backend,
        data=job.data,
        data_sha256=job.data_sha256,
        rows=job.rows,
        hyperparameters=dict(job.hyperparameters),
        points=points,
        first_loss=_part(points, "train_loss", last=False),
        last_loss=_part(points, "train_loss"),
        last_accuracy=_part(points, "train_mean_token_accuracy"),
        valid_loss=_part(points, *_VALIDATION),
        valid_accuracy=_part(
            points, "full_valid_mean_token_accuracy", "valid_mean_token_accuracy"
        ),
        learning_rate=_highest(job, points),
        trained_tokens=job.trained_tokens,
        seconds=job.seconds,
        steps_per_second=speed,
        tokens_per_second=tokens,
        overfitting=_overfitting(points),
    )


def _highest(job: FinetuneJob, points: Sequence[CurvePoint]) -> float | None:
    rates = [
        point.values["learning_rate"] for point in points if "learning_rate" in point.values
    ]
    given = job.hyperparameters.get("learning_rate")
    if not rates and isinstance(given, int | float):
        return float(given)
    return max(rates, default=None)


def _series(points: Sequence[CurvePoint], *names: str) -> tuple[str | None, list[CurvePoint]]:
    """The first of some metrics that has values, and the points that have it."""
    for name in names:
        there = [point for point in points if name in point.values]
        if there:
            return name, there
    return None, []


def _part(points: Sequence[CurvePoint], *names: str, last: bool = True) -> float | None:
    """The mean over the last tenth of the points that have a metric, or over the first."""
    name, there = _series(points, *names)
    if name is None:
        return None
    count = max(1, len(there) // 10)
    some = there[-count:] if last else there[:count]
    return float(np.mean([point.values[name] for point in some]))


def _overfitting(points: Sequence[CurvePoint]) -> OverfittingCheck:
    """Compare the last quarter of validation losses with the lowest window of that length."""
    name, there = _series(points, *_VALIDATION)
    if name is None:
        return OverfittingCheck(
            verdict="cannot tell",
            why="there is no validation loss; --validation FILE of 'assay finetune start'"
            " has one computed",
        )
    if len(there) < _LEAST_POINTS:
        return OverfittingCheck(
            verdict="cannot tell",
            why=f"there are {len(there)} validation losses; it takes {_LEAST_POINTS} to tell",
            metric=name,
            points=len(there),
        )
    losses_P = np.array([point.values[name] for point in there])
    width = max(2, len(losses_P) // 4)
    windows = [losses_P[at : at + width] for at in range(len(losses_P) - width + 1)]
    lowest = int(np.argmin([window.mean() for window in windows]))
    best, last = windows[lowest], windows[-1]
    rise = float(last.mean() - best.mean())
    error = math.hypot(_error(best), _error(last))
    train = [point.values["train_loss"] for point in points if "train_loss" in point.values]
    falls = len(train) < 2 or train[-1] <= train[0]
    apart = lowest + width <= len(losses_P) - width
    overfits = apart and falls and rise > 2 * error and rise > _RISE * abs(float(best.mean()))
    step = there[min(lowest + width // 2, len(there) - 1)].step
    why = (
        f"the validation loss was lowest around step {step} and is {rise:.3g} higher at the"
        " end, while the training loss fell: fewer epochs would do"
        if overfits
        else "the validation loss does not rise at the end by more than chance"
    )
    return OverfittingCheck(
        verdict="overfits" if overfits else "no sign",
        why=why,
        metric=name,
        points=len(there),
        best_step=step,
        best=float(best.mean()),
        last=float(last.mean()),
        standard_error=error,
    )


def _error(values_W: NDArray[np.float64]) -> float:
    """The standard error of the mean of a window."""
    return float(values_W.std(ddof=1) / math.sqrt(len(values_W)))
