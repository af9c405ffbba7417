"""Report of a loop: the comparison before and after, and the origin of its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from assay.finetune.loop import LoopConfig, StageResult
from assay.judge.results import Comparison
from assay.report.comparison.document import comparison_document
from assay.report.document import Block, Document, Figures, ReportTable, Section, Words

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_BEFORE: Final = ("Leaderboard", "Answers")
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
    judged = comparison_document(facts.comparison)
    own = [
        Section("The data", list(_data(facts))),
        Section("Training", list(_training(facts))),
        Section("Stages", list(_stages(facts))),
    ]
    first = [section for section in judged.sections if section.title in _BEFORE]
    rest = [section for section in judged.sections if section.title not in _BEFORE]
    return replace(
        judged,
        title=f"{facts.config.name}: {facts.config.student} taught by {facts.config.teacher}",
        sections=[*first, *own, *rest],
        origin=[*judged.origin, ("loop", ", ".join(_settings(facts.config)))],
        values=lambda: {
            **judged.values(),
            "loop": {
                "name": facts.config.name,
                "stages": [done._asdict() for done in facts.stages.values()],
                "training": [{"step": point.step, **point.metrics} for point in facts.training],
                "cost_usd": facts.cost_usd,
            },
        },
    )


def _settings(config: LoopConfig) -> Iterator[str]:
    for name, value in config.stored().items():
        if name not in ("folder", "database"):
            yield f"{name} = {value}"


def _data(facts: LoopFacts) -> Iterator[Block]:
    taught, made = facts.stages["teach"].result, facts.stages["filter"].result
    found, left = made["episodes"]
    yield Words(
        f"{facts.config.teacher} played {found:,} episodes on seeds {taught['seed']} to"
        f" {taught['seed'] + taught['worlds'] - 1}; {left:,} of them became {made['rows']:,}"
        f" rows to train on, and {made['holdout_rows']:,} of other worlds to validate by."
    )
    for name, done in facts.stages.items():
        if name.startswith("relabel-"):
            made = done.result
            yield Words(
                f"Then a pupil practised on {facts.config.relabel_worlds} other worlds, and"
                f" {facts.config.teacher} said what it would have done in its place:"
                f" {made['rows']:,} rows to train on in all, {made['holdout_rows']:,} to"
                " validate by."
            )
    rows = [
        [step["filter"], f"{step['episodes']:,}", f"{step['turns']:,}"]
        for step in made["funnel"]
        if step["episodes"] or step["turns"]
    ]
    if rows:
        yield ReportTable("What each filter took away", ["Filter", "Episodes", "Turns"], rows)


def _training(facts: LoopFacts) -> Iterator[Block]:
    made = facts.stages["finetune"].result
    yield Words(f"{facts.config.student} became {made['model']} (job {made['job']}).")
    validated = _curve(facts, "full_valid_loss")
    if len(validated) > 1:
        (_, before), (_, after) = validated[0], validated[-1]
        yield Words(
            f"The loss on rows of worlds that it was not trained on: {before:.3f} before,"
            f" {after:.3f} after."
        )
    if _curve(facts, "train_loss"):
        yield Figures(partial(_losses, facts))


def _curve(facts: LoopFacts, metric: str) -> list[tuple[int, float]]:
    return [
        (point.step, point.metrics[metric])
        for point in facts.training
        if metric in point.metrics
    ]


def _losses(facts: LoopFacts) -> "Iterator[Drawing]":
    from assay.report.figures.curves import learning_curves

    named = {"trained on": "train_loss", "held out": "full_valid_loss"}
    groups = {}
    for name, metric in named.items():
        curve = _curve(facts, metric)
        if len(curve) > 1:
            steps, values = zip(*curve, strict=True)
            groups[name] = [(list(steps), list(values))]
    if groups:
        yield learning_curves(groups, "loss")


def _stages(facts: LoopFacts) -> Iterator[Block]:
    rows = [
        [done.name, _took(done.seconds), _came_to(done), done.key[:12]]
        for done in facts.stages.values()
    ]
    yield ReportTable(
        "What was done",
        ["Stage", "Took", "Came to", "Key"],
        rows,
        note="The key is a hash of a stage's settings and of all that came before it.",
    )
    total = sum(done.seconds for done in facts.stages.values())
    cost = "not known" if facts.cost_usd is None else f"${facts.cost_usd:.2f}"
    yield Words(f"All stages together took {_took(total)}; they cost {cost}.")


def _took(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _came_to(done: StageResult) -> str:
    for name in ("data", "model", "run"):
        if name in done.result:
            return f"{name} {done.result[name]}"
    return ""
