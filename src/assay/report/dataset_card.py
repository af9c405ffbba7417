"""Card of a data set: its content, how it was selected, and its limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.files import atomic_write
from assay.core.text import counted, escape_markdown
from assay.finetune.datasets.build import BuiltDataset
from assay.report.document import Document, Items, ReportTable, Section, Words
from assay.report.files import as_markdown

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing


def write_card(built: BuiltDataset, about: dict[str, Any]) -> list[Path]:
    """Write a Markdown card next to a data set, with its figures; return the files."""
    assert built.path is not None
    from assay.report.figures.panels import first_actions, turns_left

    stem = built.path.with_suffix("").name
    drawings: list[tuple[str, Drawing]] = [("funnel", turns_left(_left(built)))]
    if built.actions:
        drawings.append(("actions", first_actions(built.actions, built.holdout_rows)))
    files: list[Path] = []
    pictures = []
    for name, drawing in drawings:
        files.append(built.path.with_name(f"{stem}.{name}.png"))
        atomic_write(files[-1], drawing.png())
        pictures.append(f"![{escape_markdown(drawing.alt)}](<{files[-1].name}>)")
    text = as_markdown(_document(built, about))
    head, mark, rest = text.partition("\n## ")
    card = "\n\n".join((head.rstrip(), *pictures)) + f"\n{mark}{rest}"
    files.append(built.path.with_name(f"{stem}.card.md"))
    atomic_write(files[-1], card.encode("utf-8", "replace"))
    return files


def _left(built: BuiltDataset) -> list[tuple[str, int]]:
    left, steps = built.found.turns, [("in the store", built.found.turns)]
    for step in built.funnel:
        left -= step.removed.turns
        steps.append((step.name, left))
    return steps


def _document(built: BuiltDataset, about: dict[str, Any]) -> Document:
    assert built.path is not None
    plan = about.get("plan", {})
    worlds = {split: len(those) for split, those in built.worlds.items()}
    held = built.holdout_rows
    summary = [
        f"{counted(built.rows, 'row')} to train on, of {counted(worlds['train'], 'world')}.",
        f"{counted(built.left.episodes, 'episode')} and {built.left.tokens:,} tokens, as their "
        f"providers counted them, are in it{', held-out ones among them' if held else ''}.",
        f"Format {plan.get('form')}, one row per {plan.get('mode')}.",
    ]
    if held:
        others = counted(worlds.get("holdout", 0), "world")
        summary.append(f"{counted(held, 'row')} of {others} are held out.")
    return Document(
        title=f"Training data: {built.path.name}",
        summary=summary,
        sections=[
            Section("How episodes were chosen", [_funnel(built), *_asked(about)]),
            Section("Who played", [_models(about)]),
            Section("Worlds", [_worlds(built)]),
            Section("Keep in mind", [Items(_limits(plan))]),
        ],
        origin=[
            ("command", str(about.get("command") or "assay.sft_filter")),
            ("made at", str(about.get("created_at"))),
            *((name, str(value)) for name, value in about.get("provenance", {}).items()),
            ("SHA-256", str(about["files"]["train"]["sha256"])),
        ],
    )


def _funnel(built: BuiltDataset) -> ReportTable:
    left = [built.found.episodes, built.found.turns, built.found.tokens]
    rows: list[Sequence[str]] = [("in the store", *(f"{n:,}" for n in left), "")]
    for step in built.funnel:
        gone = (step.removed.episodes, step.removed.turns, step.removed.tokens)
        left = [before - less for before, less in zip(left, gone, strict=True)]
        rows.append((step.name, *(f"{n:,}" for n in left), f"{step.missing:,}"))
    return ReportTable(
        "What was left after each step",
        ("step", "episodes", "turns", "tokens", "left out for want of a value"),
        rows,
    )


def _asked(about: dict[str, Any]) -> list[ReportTable]:
    filters = about.get("filters", {})
    if not filters:
        return []
    rows = [(name, str(value)) for name, value in filters.items()]
    return [ReportTable("The filters", ("filter", "asks for"), rows)]


def _models(about: dict[str, Any]) -> ReportTable:
    rows = [(model, f"{episodes:,}") for model, episodes in about.get("models", {}).items()]
    return ReportTable("Episodes by model", ("model", "episodes"), rows)


def _worlds(built: BuiltDataset) -> Words:
    parts = []
    for split, worlds in built.worlds.items():
        seeds = ", ".join(f"{task} {seed}" for task, seed in worlds[:40])
        more = f" and {len(worlds) - 40:,} more" if len(worlds) > 40 else ""
        parts.append(f"{split}: {seeds}{more}.")
    return Words(" ".join(parts))


def _limits(plan: dict[str, Any]) -> list[str]:
    lines = [
        "A model that is trained on these rows knows their worlds: test it in others.",
        "The rows are what other models answered; whether you may train on them is for the "
        "terms of their providers to say.",
    ]
    if plan.get("relabel"):
        lines.append(
            "The answers are those of builtin/expert in the states that the models came to "
            "(--relabel); what the models answered stands in the requests alone."
        )
    if plan.get("drop_notes"):
        lines.append(
            "The notes of all answers were taken out, in requests and replies (--drop-notes): "
            "an answer that followed from notes does not follow from its row."
        )
    if plan.get("form") == "openai" and not plan.get("train_history"):
        lines.append(
            "Earlier answers in a prompt have weight 0: each is trained in its own row."
        )
    if plan.get("form") in ("trl", "sharegpt", "messages") and not plan.get(
        "prompt_completion"
    ):
        lines.append(
            "The format has no weights: tell the trainer to train the last answer alone, or "
            "earlier answers are trained again in each row."
        )
    return lines
