"""Analysis of fine-tuning jobs: loss, token accuracy, learning rate, speed and overfitting.

The curve of a job consists of the events that its service reported. Values at the end of a
curve are means of its last tenth, because the loss of a single batch is mostly noise.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.analyses.episodes import ANALYSIS_FORMAT, analysis_document, percent
from assay.errors import UsageError
from assay.report.document import (
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    Section,
    Tone,
    shorten_name,
)
from assay.report.files import to_json_value
from assay.report.provenance import provenance_lines, software_versions
from assay.stats.intervals import Interval
from assay.store.finetune_jobs import FinetuneEvent, FinetuneJob

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_LEAST_POINTS: Final = 8
"""Minimum number of validation losses for the overfitting check."""
_RISE: Final = 0.01
"""Minimum relative rise above the lowest loss to be reported."""
_VALIDATION: Final = ("full_valid_loss", "valid_loss")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Metrics of a job at one step."""

    step: int
    values: Mapping[str, float]
    """Values by the service's names: train_loss, valid_loss, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfittingCheck:
    """Result of the check whether the validation loss rises while the training loss falls."""

    verdict: str
    """overfits, no sign, or cannot tell."""
    why: str
    metric: str | None = None
    points: int = 0
    best_step: int | None = None
    """Middle step of the window with the lowest validation losses."""
    best: float | None = None
    """Mean of that window."""
    last: float | None = None
    """Mean of the last window."""
    standard_error: float | None = None
    """Standard error of the difference between the two means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTraining:
    """Training curve and summary of one job."""

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
    """Mean training loss of the last tenth."""
    last_accuracy: float | None
    """Mean token accuracy in training, of the last tenth."""
    valid_loss: float | None
    valid_accuracy: float | None
    learning_rate: float | None
    """Highest reported rate."""
    trained_tokens: int | None
    seconds: float | None
    """From the request to the end, by the service's clock."""
    steps_per_second: float | None
    """Over the reported steps, by the service's clock."""
    tokens_per_second: float | None
    """Trained tokens per step times steps per second."""
    overfitting: OverfittingCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAnalysis:
    """Several jobs side by side."""

    jobs: tuple[JobTraining, ...]
    source: str
    """Database of the jobs."""
    notes: tuple[str, ...] = ()


def analyse_training(
    jobs: Sequence[tuple[FinetuneJob, Sequence[FinetuneEvent]]], source: str
) -> TrainingAnalysis:
    """Analyse jobs and their events.

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
    # A step may have several events: one of its training loss and one of its validation loss,
    # or the same again after a resume. They are merged, and the last value of a metric counts.
    by_step: dict[int, dict[str, float]] = {}
    for event in told:
        if event.step is not None:
            by_step.setdefault(event.step, {}).update(event.metrics)
    points = tuple(CurvePoint(step, by_step[step]) for step in sorted(by_step))
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
    """Return the first metric that has values, and the points that have it."""
    for name in names:
        there = [point for point in points if name in point.values]
        if there:
            return name, there
    return None, []


def _part(points: Sequence[CurvePoint], *names: str, last: bool = True) -> float | None:
    """Return the mean over the last (or first) tenth of the points that have a metric."""
    name, there = _series(points, *names)
    if name is None:
        return None
    count = max(1, len(there) // 10)
    some = there[-count:] if last else there[:count]
    return float(np.mean([point.values[name] for point in some]))


def _overfitting(points: Sequence[CurvePoint]) -> OverfittingCheck:
    """Compare the last quarter of validation losses with the lowest window of equal length."""
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
    """Return the standard error of the mean of a window."""
    return float(values_W.std(ddof=1) / math.sqrt(len(values_W)))


_PANELS: Final = {
    "training loss": ("train_loss",),
    "validation loss": ("full_valid_loss", "valid_loss"),
    "token accuracy in training": ("train_mean_token_accuracy",),
    "token accuracy in validation": (
        "full_valid_mean_token_accuracy",
        "valid_mean_token_accuracy",
    ),
    "learning rate": ("learning_rate",),
}
_MOST_POINTS: Final = 40


@analysis_document.register
def _document(found: TrainingAnalysis) -> Document:
    """Build the report: loss, accuracy, rate, speed and overfitting of each job."""
    table = ReportTable(
        "Fine-tuning jobs",
        [
            *("Job", "Model", "Status", "Steps", "Loss", "Token accuracy", "Validation loss"),
            *("Overfitting", "Tokens/s"),
        ],
        [_row(job) for job in found.jobs],
        "Loss: mean of the first tenth of the steps, then of the last; accuracy and validation"
        " loss: means of the last tenth.",
    )
    about = ReportTable(
        "What was trained, on what",
        ["Job", "Data", "Rows", "Rate", "Settings", "Trained tokens", "Time", "Steps/s"],
        [_about(job) for job in found.jobs],
    )
    finding = [_finding(job) for job in found.jobs]
    notes = [Paragraph(line, Tone.NOTE) for line in found.notes]
    checks = Items(
        [f"{job.id}: {job.overfitting.verdict}: {job.overfitting.why}." for job in found.jobs],
        "Against the validation data",
    )
    drawn = any(job.points for job in found.jobs)
    return Document(
        title="How fine-tuning went",
        summary=finding,
        sections=[
            Section("Jobs", [table, *([Figures(lambda: _figure(found))] if drawn else [])]),
            Section("Overfitting", [checks]),
            Section("Data and settings", [about], in_terminal=False),
            Section("What this rests on", [Paragraph(_rests_on(found), Tone.NOTE), *notes]),
        ],
        origin=provenance_lines({"analysis": "training"}, [("the jobs", found.source)]),
        more="--output report.html writes all of it with figures; .png or .svg the first one.",
        values=lambda: {
            "format": ANALYSIS_FORMAT,
            "analysis": "training",
            "finding": finding,
            **to_json_value(found),
            "versions": software_versions(),
        },
        rows=lambda: [_flat(job, point) for job in found.jobs for point in job.points],
    )


def _rests_on(found: TrainingAnalysis) -> str:
    steps = sum(len(job.points) for job in found.jobs)
    return (
        f"{steps:,} steps of {len(found.jobs)} jobs, as their services told them, from"
        f" {found.source}. A job overfits if the mean of the last quarter of its validation"
        " losses is above that of the lowest window of the same length by more than two"
        " standard errors and 1 %, while the training loss fell."
    )


def _row(job: JobTraining) -> list[str]:
    loss = "-"
    if job.first_loss is not None and job.last_loss is not None:
        loss = f"{job.first_loss:.4g} to {job.last_loss:.4g}"
    return [
        shorten_name(job.id),
        shorten_name(job.result_model or job.model),
        job.status,
        f"{job.points[-1].step if job.points else 0:,}",
        loss,
        percent(job.last_accuracy),
        "-" if job.valid_loss is None else f"{job.valid_loss:.4g}",
        job.overfitting.verdict,
        "-" if job.tokens_per_second is None else f"{job.tokens_per_second:,.0f}",
    ]


def _about(job: JobTraining) -> list[str]:
    rest = {
        name: value for name, value in job.hyperparameters.items() if name != "learning_rate"
    }
    return [
        shorten_name(job.id),
        shorten_name(job.data or "-"),
        "-" if job.rows is None else f"{job.rows:,}",
        "-" if job.learning_rate is None else f"{job.learning_rate:g}",
        ", ".join(f"{name} {value}" for name, value in rest.items()),
        "-" if job.trained_tokens is None else f"{job.trained_tokens:,}",
        "-" if job.seconds is None else f"{job.seconds:,.0f} s",
        "-" if job.steps_per_second is None else f"{job.steps_per_second:.3g}",
    ]


def _finding(job: JobTraining) -> str:
    if job.first_loss is None or job.last_loss is None:
        return f"{shorten_name(job.id)} is {job.status}, and no loss was told."
    text = f"{shorten_name(job.id)}: the training loss went from {job.first_loss:.4g} to"
    text += f" {job.last_loss:.4g}"
    if job.valid_loss is not None:
        text += f", the validation loss to {job.valid_loss:.4g}"
    verdict = {"overfits": "it overfits", "no sign": "no sign of overfitting"}.get(
        job.overfitting.verdict, "whether it overfits cannot be told"
    )
    return f"{text}; {verdict}."


def _flat(job: JobTraining, point: CurvePoint) -> Mapping[str, Any]:
    names = [name for names in _PANELS.values() for name in names]
    return {
        "job": job.id,
        "model": job.model,
        "step": point.step,
        **{name: point.values.get(name) for name in names},
    }


def _figure(found: TrainingAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import PanelLine, draw_line_panels

    panels = {
        what: [
            PanelLine(job.id, _thinned(job.points, names), len(job.points))
            for job in found.jobs
        ]
        for what, names in _PANELS.items()
    }
    yield draw_line_panels(
        {
            what: [line for line in lines if line.points]
            for what, lines in panels.items()
            if any(line.points for line in lines)
        },
        title="Fine-tuning jobs, step by step",
        xlabel="step",
        ylabel="value",
        note="A point is the mean of steps next to each other; n: steps.",
    )


def _thinned(
    points: Sequence[CurvePoint], names: Sequence[str]
) -> list[tuple[float, Interval]]:
    """Return means of adjacent steps, for the first metric that has values."""
    for name in names:
        there = [point for point in points if name in point.values]
        if there:
            groups = np.array_split(np.arange(len(there)), min(len(there), _MOST_POINTS))
            return [
                (
                    float(np.mean([there[at].step for at in group])),
                    Interval(
                        float(np.mean([there[at].values[name] for at in group])),
                        float("nan"),
                        float("nan"),
                    ),
                )
                for group in groups
            ]
    return []
