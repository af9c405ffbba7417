"""Report of a loop: the comparison before and after, and the origin of its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from assay.finetune.loop import LoopConfig, StageResult
from assay.judge.results import Comparison
from assay.report.comparison.document import comparison_document
from assay.report.document import Block, Document, Figures, Paragraph, ReportTable, Section

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_FIRST_SECTIONS: Final = ("Leaderboard", "Answers")
"""Sections of the comparison that come first."""


@dataclass(frozen=True, slots=True)
class TrainingPoint:
    """Metrics of one training step."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """Content of the report of a loop."""

    config: LoopConfig
    stages: Mapping[str, StageResult]
    comparison: Comparison
    training: Sequence[TrainingPoint]
    cost_usd: float | None
    """Total cost of all stages, with the estimate for training; None if a price is unknown."""


def loop_document(facts: LoopFacts) -> Document:
    """Build the report of a loop."""
    comparison = comparison_document(facts.comparison)
    loop_sections = [
        Section("Data", list(_describe_data(facts))),
        Section("Training", list(_describe_training(facts))),
        Section("Stages", list(_describe_stages(facts))),
    ]
    first = [section for section in comparison.sections if section.title in _FIRST_SECTIONS]
    rest = [section for section in comparison.sections if section.title not in _FIRST_SECTIONS]
    return replace(
        comparison,
        title=f"{facts.config.name}: {facts.config.student} taught by {facts.config.teacher}",
        sections=[*first, *loop_sections, *rest],
        origin=[*comparison.origin, ("loop", ", ".join(_format_settings(facts.config)))],
        values=lambda: {
            **comparison.values(),
            "loop": {
                "name": facts.config.name,
                "stages": [done._asdict() for done in facts.stages.values()],
                "training": [{"step": point.step, **point.metrics} for point in facts.training],
                "cost_usd": facts.cost_usd,
            },
        },
    )


def _format_settings(config: LoopConfig) -> Iterator[str]:
    for name, value in config.stored().items():
        if name not in ("folder", "database"):
            yield f"{name} = {value}"


def _describe_data(facts: LoopFacts) -> Iterator[Block]:
    teach, filtered = facts.stages["teach"].result, facts.stages["filter"].result
    episodes, used = filtered["episodes"]
    yield Paragraph(
        f"{facts.config.teacher} played {episodes:,} episodes on seeds {teach['seed']} to"
        f" {teach['seed'] + teach['worlds'] - 1}. {used:,} of them were used for"
        f" {filtered['rows']:,} training rows and {filtered['holdout_rows']:,} validation rows"
        " from other worlds."
    )
    for name, done in facts.stages.items():
        if name.startswith("relabel-"):
            filtered = done.result
            yield Paragraph(
                f"An intermediate student then played {facts.config.relabel_worlds} other"
                f" worlds, and {facts.config.teacher} relabelled its actions. In total:"
                f" {filtered['rows']:,} training rows and {filtered['holdout_rows']:,}"
                " validation rows."
            )
    rows = [
        [step["filter"], f"{step['episodes']:,}", f"{step['turns']:,}"]
        for step in filtered["funnel"]
        if step["episodes"] or step["turns"]
    ]
    if rows:
        yield ReportTable("Removed by each filter", ["Filter", "Episodes", "Turns"], rows)


def _describe_training(facts: LoopFacts) -> Iterator[Block]:
    finetune = facts.stages["finetune"].result
    yield Paragraph(
        f"{facts.config.student} became {finetune['model']} (job {finetune['job']})."
    )
    validation = _extract_curve(facts, "full_valid_loss")
    if len(validation) > 1:
        (_, before), (_, after) = validation[0], validation[-1]
        yield Paragraph(
            f"Validation loss, on rows from held-out worlds: {before:.3f} before training,"
            f" {after:.3f} after."
        )
    if _extract_curve(facts, "train_loss"):
        yield Figures(partial(_draw_loss_curves, facts))


def _extract_curve(facts: LoopFacts, metric: str) -> list[tuple[int, float]]:
    return [
        (point.step, point.metrics[metric])
        for point in facts.training
        if metric in point.metrics
    ]


def _draw_loss_curves(facts: LoopFacts) -> "Iterator[Drawing]":
    from assay.report.figures.curves import draw_learning_curves

    metrics = {"training": "train_loss", "validation": "full_valid_loss"}
    groups = {}
    for name, metric in metrics.items():
        curve = _extract_curve(facts, metric)
        if len(curve) > 1:
            steps, values = zip(*curve, strict=True)
            groups[name] = [(list(steps), list(values))]
    if groups:
        yield draw_learning_curves(groups, "loss")


def _describe_stages(facts: LoopFacts) -> Iterator[Block]:
    rows = [
        [done.name, _format_duration(done.seconds), _format_result(done), done.key[:12]]
        for done in facts.stages.values()
    ]
    yield ReportTable(
        "Stages",
        ["Stage", "Time", "Result", "Key"],
        rows,
        note="The key is a hash of the stage's settings and of all earlier stages.",
    )
    total = sum(done.seconds for done in facts.stages.values())
    cost = "unknown" if facts.cost_usd is None else f"${facts.cost_usd:.2f}"
    yield Paragraph(f"Total time {_format_duration(total)}, total cost {cost}.")


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _format_result(done: StageResult) -> str:
    for name in ("data", "model", "run"):
        if name in done.result:
            return f"{name} {done.result[name]}"
    return ""
