"""The report of how often hooks fire."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from assay._util.text import counted
from assay.analyses.hooks import HookOfModel, HooksAnalysis, HookSummary
from assay.report.analyses.common import INTERVALS, build, percent
from assay.report.data import interval_columns
from assay.report.document import Cell, Document, Figures, ReportTable, Row, Section
from assay.report.numbers import mean_cell, share_cell

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["hooks_document"]


def hooks_document(found: HooksAnalysis) -> Document:
    """Each hook by model, by turn, together with others, and on what."""
    rows: list[Row] = [
        [
            hook.name,
            model.group,
            share_cell(model.fired),
            mean_cell("", model.per_episode),
            "-" if model.turns_per_firing is None else f"{model.turns_per_firing:,.1f}",
            "-" if model.first_step is None else f"{model.first_step:,.0f}",
            "-" if model.typical_step is None else f"{model.typical_step:,.0f}",
        ]
        for hook in found.hooks
        for model in hook.models
    ]
    often = ReportTable(
        "How often each hook fires",
        ["Hook", "Model", "Episodes", "Per episode", "Turns per", "First step", "Typical step"],
        rows,
        "Turns per: decisions of the model, with their tool calls, for one firing. First step:"
        " by which half of all episodes have had it. Typical step: the median of all firings."
        f" {INTERVALS}",
    )
    what = ReportTable(
        "What hooks fire on",
        ["Hook", "Firings", "Together with", "Actions"],
        [
            [
                hook.name,
                f"{hook.firings:,}",
                _companion(found, hook.name),
                ", ".join(f"{action} {percent(share)}" for action, share in hook.actions[:2])
                or "-",
            ]
            for hook in found.hooks
        ],
        "Actions: of the steps in which it fired. Together: the share of its episodes in which"
        " the other fired too.",
    )
    return build(
        "hooks",
        f"Hooks in {counted(found.basis.episodes, 'episode')}",
        [_finding(found)],
        [
            Section("By turn", [_short_table(found), Figures(lambda: _by_turn(found))]),
            Section("By model", [often], in_terminal=False),
            Section("What they fire on", [what, Figures(lambda: _together(found))]),
        ],
        found,
        [
            {
                "hook": hook.name,
                "model": model.group,
                **interval_columns("fired", model.fired),
                **interval_columns("per_episode", model.per_episode),
                "turns_per_firing": model.turns_per_firing,
                "first_step": model.first_step,
                "typical_step": model.typical_step,
                "episodes": model.n,
            }
            for hook in found.hooks
            for model in hook.models
        ],
    )


def _finding(found: HooksAnalysis) -> str:
    most = found.hooks[0]
    often = most.firings / found.basis.episodes
    text = f"{most.name} fires most often, {often:.1f} times an episode"
    if len(most.models) == 1:
        return f"{text}."
    apart = max(found.hooks, key=lambda hook: _gap([one.fired.point for one in hook.models]))
    low, high = _ends(apart, lambda one: one.fired.point)
    if high.fired.point - low.fired.point >= 0.2:
        return (
            f"{text}. {apart.name} tells models apart: it fires in {percent(high.fired.point)}"
            f" of the episodes of {high.group} and {percent(low.fired.point)} of those of"
            f" {low.group}."
        )
    low, high = _ends(most, lambda one: one.per_episode.point)
    if low.per_episode.point >= high.per_episode.point / 2:
        return f"{text}, much the same with each model."
    return (
        f"{text}: {high.per_episode.point:.1f} times with {high.group},"
        f" {low.per_episode.point:.1f} with {low.group}."
    )


def _gap(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _ends(
    hook: HookSummary, of: Callable[[HookOfModel], float]
) -> tuple[HookOfModel, HookOfModel]:
    return min(hook.models, key=of), max(hook.models, key=of)


def _short_table(found: HooksAnalysis) -> ReportTable:
    models = found.hooks[0].models
    return ReportTable(
        "Firings per episode, and the share of episodes in which a hook fires",
        ["Hook", *(model.group for model in models)],
        [
            [
                hook.name,
                *(
                    Cell(f"{model.per_episode.point:.1f}", percent(model.fired.point))
                    for model in hook.models
                ),
            ]
            for hook in found.hooks
        ],
    )


def _companion(found: HooksAnalysis, name: str) -> str:
    pairs = [pair for pair in found.together if pair.given == name]
    if not pairs:
        return "-"
    best = max(pairs, key=lambda pair: pair.share)
    return f"{best.other} {percent(best.share)}"


def _by_turn(found: HooksAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import PanelLine, line_panels

    yield line_panels(
        {
            hook.name: [
                PanelLine(
                    model.group,
                    [((rate.first + rate.last) / 2, rate.rate) for rate in model.by_turn],
                    model.n,
                )
                for model in hook.models
            ]
            for hook in found.hooks
        },
        title="How often hooks fire, by turn",
        xlabel="turn",
        ylabel="per 100 turns",
        note="Firings in 100 turns, over the episodes that came to these turns; bars: 95 %"
        " intervals over worlds; n: episodes.",
        scale=100,
    )


def _together(found: HooksAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import share_matrix

    names = [hook.name for hook in found.hooks][:10]
    if len(names) < 2:
        return
    shares = {(pair.given, pair.other): pair.share for pair in found.together}
    yield share_matrix(
        names,
        names,
        [[shares.get((given, other), 1.0) for other in names] for given in names],
        title="Hooks that fire in the same episodes",
        note="Of the episodes in which the hook of a line fired, the percentage in which that"
        " of a column fired too.",
        names=("if it fired", "also fired"),
    )
