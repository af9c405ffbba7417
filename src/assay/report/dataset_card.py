"""Card of a data set: its content, how it was selected, and its limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.files import atomic_write
from assay.core.text import counted, escape_markdown
from assay.finetune.datasets.build import BuiltDataset
from assay.report.document import Document, Items, Paragraph, ReportTable, Section
from assay.report.files import render_markdown

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing


def write_card(built: BuiltDataset, about: dict[str, Any]) -> list[Path]:
    """Write a Markdown card next to a data set, with its figures; return the files."""
    assert built.path is not None
    from assay.report.figures.panels import draw_first_actions, draw_turns_left

    stem = built.path.with_suffix("").name
    drawings: list[tuple[str, Drawing]] = [
        ("funnel", draw_turns_left(_count_remaining_turns(built)))
    ]
    if built.actions:
        drawings.append(("actions", draw_first_actions(built.actions, built.holdout_rows)))
    files: list[Path] = []
    images = []
    for name, drawing in drawings:
        files.append(built.path.with_name(f"{stem}.{name}.png"))
        atomic_write(files[-1], drawing.png())
        images.append(f"![{escape_markdown(drawing.alt)}](<{files[-1].name}>)")
    text = render_markdown(_build_document(built, about))
    head, heading, rest = text.partition("\n## ")
    card = "\n\n".join((head.rstrip(), *images)) + f"\n{heading}{rest}"
    files.append(built.path.with_name(f"{stem}.card.md"))
    atomic_write(files[-1], card.encode("utf-8", "replace"))
    return files


def _count_remaining_turns(built: BuiltDataset) -> list[tuple[str, int]]:
    remaining, steps = built.found.turns, [("in the database", built.found.turns)]
    for step in built.funnel:
        remaining -= step.removed.turns
        steps.append((step.name, remaining))
    return steps


def _build_document(built: BuiltDataset, about: dict[str, Any]) -> Document:
    assert built.path is not None
    plan = about.get("plan", {})
    worlds = {split: len(split_worlds) for split, split_worlds in built.worlds.items()}
    holdout_rows = built.holdout_rows
    summary = [
        f"{counted(built.rows, 'training row')} from {counted(worlds['train'], 'world')}.",
        f"{counted(built.left.episodes, 'episode')}, {built.left.tokens:,} tokens as counted by"
        f" the providers{', including held-out episodes' if holdout_rows else ''}.",
        f"Format {plan.get('form')}, one row per {plan.get('mode')}.",
    ]
    if holdout_rows:
        holdout_worlds = counted(worlds.get("holdout", 0), "world")
        summary.append(f"{counted(holdout_rows, 'held-out row')} from {holdout_worlds}.")
    return Document(
        title=f"Training data: {built.path.name}",
        summary=summary,
        sections=[
            Section("Episode selection", [_funnel_table(built), *_filter_tables(about)]),
            Section("Models", [_models_table(about)]),
            Section("Worlds", [_describe_worlds(built)]),
            Section("Limits", [Items(_list_limits(plan))]),
        ],
        origin=[
            ("command", str(about.get("command") or "assay.sft_filter")),
            ("created at", str(about.get("created_at"))),
            *((name, str(value)) for name, value in about.get("provenance", {}).items()),
            ("SHA-256", str(about["files"]["train"]["sha256"])),
        ],
    )


def _funnel_table(built: BuiltDataset) -> ReportTable:
    remaining = [built.found.episodes, built.found.turns, built.found.tokens]
    rows: list[Sequence[str]] = [("in the database", *(f"{n:,}" for n in remaining), "")]
    for step in built.funnel:
        removed = (step.removed.episodes, step.removed.turns, step.removed.tokens)
        remaining = [before - lost for before, lost in zip(remaining, removed, strict=True)]
        rows.append((step.name, *(f"{n:,}" for n in remaining), f"{step.missing:,}"))
    return ReportTable(
        "Remaining after each step",
        ("step", "episodes", "turns", "tokens", "excluded: value missing"),
        rows,
    )


def _filter_tables(about: dict[str, Any]) -> list[ReportTable]:
    filters = about.get("filters", {})
    if not filters:
        return []
    rows = [(name, str(value)) for name, value in filters.items()]
    return [ReportTable("Filters", ("filter", "value"), rows)]


def _models_table(about: dict[str, Any]) -> ReportTable:
    rows = [(model, f"{episodes:,}") for model, episodes in about.get("models", {}).items()]
    return ReportTable("Episodes by model", ("model", "episodes"), rows)


def _describe_worlds(built: BuiltDataset) -> Paragraph:
    parts = []
    for split, worlds in built.worlds.items():
        seeds = ", ".join(f"{task} {seed}" for task, seed in worlds[:40])
        more = f" and {len(worlds) - 40:,} more" if len(worlds) > 40 else ""
        parts.append(f"{split}: {seeds}{more}.")
    return Paragraph(" ".join(parts))


def _list_limits(plan: dict[str, Any]) -> list[str]:
    lines = [
        "A model trained on these rows has seen their worlds: evaluate it in other worlds.",
        "The rows contain responses of other models: check that the terms of their providers"
        " allow training on them.",
    ]
    if plan.get("relabel"):
        lines.append(
            "The responses are by builtin/expert, in the states that the models reached"
            " (--relabel). The models' own responses appear only in the prompts."
        )
    if plan.get("drop_notes"):
        lines.append(
            "Notes were removed from prompts and responses (--drop-notes): a response that"
            " depended on notes cannot be derived from its row."
        )
    if plan.get("form") == "openai" and not plan.get("train_history"):
        lines.append(
            "Earlier responses in a prompt have weight 0: each is trained in its own row."
        )
    if plan.get("form") in ("trl", "sharegpt", "messages") and not plan.get(
        "prompt_completion"
    ):
        lines.append(
            "The format has no weights: configure the trainer to train only on the last"
            " response. Otherwise, earlier responses are trained again in each row."
        )
    return lines
