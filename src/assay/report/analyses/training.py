"""The report of how fine-tuning jobs went."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.analyses.training import CurvePoint, JobTraining, TrainingAnalysis
from assay.report.analyses.common import ANALYSIS_FORMAT, percent
from assay.report.data import jsonable
from assay.report.document import (
    Document,
    Figures,
    Items,
    ReportTable,
    Section,
    Tone,
    Words,
    short_name,
)
from assay.report.origin import made_by, versions
from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["training_document"]

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


def training_document(found: TrainingAnalysis) -> Document:
    """Losses, accuracy, rate and speed of jobs, side by side, and whether they overfit."""
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
    notes = [Words(line, Tone.NOTE) for line in found.notes]
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
            Section("What this rests on", [Words(_rests_on(found), Tone.NOTE), *notes]),
        ],
        origin=made_by({"analysis": "training"}, [("the jobs", found.source)]),
        more="--output report.html writes all of it with figures; .png or .svg the first one.",
        values=lambda: {
            "format": ANALYSIS_FORMAT,
            "analysis": "training",
            "finding": finding,
            **jsonable(found),
            "versions": versions(),
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
        short_name(job.id),
        short_name(job.result_model or job.model),
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
        short_name(job.id),
        short_name(job.data or "-"),
        "-" if job.rows is None else f"{job.rows:,}",
        "-" if job.learning_rate is None else f"{job.learning_rate:g}",
        ", ".join(f"{name} {value}" for name, value in rest.items()),
        "-" if job.trained_tokens is None else f"{job.trained_tokens:,}",
        "-" if job.seconds is None else f"{job.seconds:,.0f} s",
        "-" if job.steps_per_second is None else f"{job.steps_per_second:.3g}",
    ]


def _finding(job: JobTraining) -> str:
    if job.first_loss is None or job.last_loss is None:
        return f"{short_name(job.id)} is {job.status}, and no loss was told."
    text = f"{short_name(job.id)}: the training loss went from {job.first_loss:.4g} to"
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
    from assay.report.figures.panels import PanelLine, line_panels

    panels = {
        what: [
            PanelLine(job.id, _thinned(job.points, names), len(job.points))
            for job in found.jobs
        ]
        for what, names in _PANELS.items()
    }
    yield line_panels(
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
    """Means of steps next to each other, of the first metric that has values."""
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
