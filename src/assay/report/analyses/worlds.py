"""The report of how much the world decides."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analyses.terrain import WANTED
from assay.analyses.worlds import WorldResult, WorldsAnalysis
from assay.crafter.rules import MATERIALS
from assay.report.analyses.common import INTERVALS, build
from assay.report.document import Document, Figures, ReportTable, Section, Tone, Words
from assay.report.numbers import change, mean_cell, plain, share_cell, share_text, value
from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["seeds_document"]

_SHOWN = 4
_WARNING = (
    "Worlds that were chosen because they tell models apart say nothing about all worlds: a"
    " difference between models looks larger there than it is, because the same results chose"
    " the worlds. Use them to find a difference quickly, play other worlds to say how large it"
    " is, and name the worlds beside every claim."
)


def seeds_document(found: WorldsAnalysis) -> Document:
    """Shares of variance, stability, outliers, and the worlds that tell most."""
    metric = found.metric
    stability = ReportTable(
        f"Stability: {metric} over worlds",
        ["Model", "Mean", "Deviation between worlds", "Least", "Most", "Worlds", "Episodes"],
        [
            [
                model.group,
                mean_cell(metric, model.mean),
                mean_cell("", model.sd),
                value(metric, model.least),
                value(metric, model.most),
                f"{model.worlds:,}",
                f"{model.n:,}",
            ]
            for model in found.models
        ],
        f"Deviation: the standard deviation of the means of worlds. {INTERVALS}",
    )
    first = [*_shares_table(found), stability]
    outliers = ReportTable(
        "The easiest and the hardest worlds",
        ["World", "Beside average", *(f"To {name}" for name in WANTED)],
        [[str(one.world), change(metric, one.effect), *_ways(one)] for one in found.outliers],
        "Beside average: how much better models do there. To: steps from the start to the"
        " nearest, for who knows the way; a cell of stone counts two.",
    )
    return build(
        "seeds",
        f"{metric.capitalize()} in {len(found.worlds):,} worlds",
        [_finding(found)],
        [
            Section("How much the world decides", [*first, Figures(lambda: _figures(found))]),
            Section("Outliers", [outliers, Figures(lambda: _maps(found))]),
            Section("Worlds that behave differently by model", list(_surprises(found))),
            Section("Worlds that tell models apart", list(_telling(found))),
            Section("All worlds", [_table(found)], in_terminal=False, folded=True),
        ],
        found,
        [_columns(found, one) for one in found.worlds],
    )


def _named_shares(found: WorldsAnalysis) -> list[tuple[str, Interval]]:
    shares = found.shares
    if shares is None:
        return []
    rows = [("the world", shares.world)]
    rows += [("the model", shares.subject)] if len(found.models) > 1 else []
    if shares.interaction is not None:
        return [*rows, ("both together", shares.interaction), ("the rest", shares.rest)]
    together = len(found.models) > 1
    return [*rows, ("both together, and the rest" if together else "the rest", shares.rest)]


def _shares_table(found: WorldsAnalysis) -> Iterator[ReportTable]:
    rows = _named_shares(found)
    if rows:
        yield ReportTable(
            f"What {found.metric} differ by, as shares of their variance",
            ["Source", "Share"],
            [[name, share_cell(share)] for name, share in rows],
            f"Over {found.common} worlds that all played. Both together: what only one model"
            " does in a world. In brackets: 95 % intervals, for worlds drawn at random and"
            " these models.",
        )


def _finding(found: WorldsAnalysis) -> str:
    hardest, easiest = found.outliers[-1], found.outliers[0]
    apart = easiest.effect - hardest.effect
    where = (
        f"from {easiest.world} to {hardest.world} models lose"
        f" {value(found.metric, apart)} {found.metric} on average"
    )
    if found.shares is None:
        return f"Nobody can say how much the world decides; {where}."
    share = found.shares.world
    ends = f"[{100 * share.low:.0f}, {100 * share.high:.0f}]"
    share_of = f"{share_text(share.point)} % {ends}"
    text = f"The world decides {share_of} of the variance of {found.metric}"
    if len(found.models) > 1:
        text += f", the model {share_text(found.shares.subject.point)} %"
    return f"{text}; {where}."


def _ways(one: WorldResult) -> list[str]:
    if one.terrain is None:
        return ["-"] * len(WANTED)
    return [_steps(one.terrain.steps[name]) for name in WANTED]


def _steps(steps: int | None) -> str:
    return "no way" if steps is None else str(steps)


def _surprises(found: WorldsAnalysis) -> Iterator[ReportTable]:
    known = [one for one in found.worlds if not math.isnan(one.surprise)]
    known.sort(key=lambda one: -abs(one.surprise))
    if known:
        yield ReportTable(
            "Worlds in which a model does what neither explains",
            ["World", "Model", "Deviations", *(model.group for model in found.models)],
            [
                [
                    str(one.world),
                    one.surprising or "",
                    f"{one.surprise:+.1f}",
                    *(value(found.metric, one.by_model.get(name)) for name in _names(found)),
                ]
                for one in known[:_SHOWN]
            ],
            "Deviations: the result less what the world and the model lead to expect, in"
            " standard deviations of such remainders. Of many worlds some are beyond 2 by"
            " chance.",
        )


def _names(found: WorldsAnalysis) -> list[str]:
    return [model.group for model in found.models]


def _telling(found: WorldsAnalysis) -> Iterator[Any]:
    if found.telling:
        seeds = ",".join(str(one.world.seed) for one in found.telling[:8])
        yield Words(
            f"Models are furthest apart in the worlds of seeds {seeds}, in the order that the"
            " other worlds give them."
        )
        yield Words(_WARNING, Tone.WARNING)


def _table(found: WorldsAnalysis) -> ReportTable:
    return ReportTable(
        "All worlds, the easiest first",
        ["World", *_names(found), "Beside average", "Tells apart", "Episodes"],
        [
            [
                str(one.world),
                *(value(found.metric, one.by_model.get(name)) for name in _names(found)),
                change(found.metric, one.effect),
                plain(one.discrimination),
                f"{one.n}",
            ]
            for one in found.worlds
        ],
        "Tells apart: how far models are apart, in the order of the other worlds; 1 is as"
        " there, 0 not at all, below 0 the other way round.",
    )


def _columns(found: WorldsAnalysis, one: WorldResult) -> dict[str, Any]:
    return {
        "task": one.world.task,
        "seed": one.world.seed,
        **{f"{found.metric} of {name}": one.by_model.get(name) for name in _names(found)},
        "effect": one.effect,
        "surprise": one.surprise,
        "discrimination": one.discrimination,
        "episodes": one.n,
    }


def _figures(found: WorldsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.intervals import ForestRow, forest
    from assay.report.figures.worlds import results_by_world

    yield results_by_world(
        [
            str(one.world.seed) if len(found.basis.tasks) == 1 else str(one.world)
            for one in found.worlds
        ],
        {
            name: [one.by_model.get(name, math.nan) for one in found.worlds]
            for name in _names(found)
        },
        found.metric,
    )
    rows = _named_shares(found)
    if rows:
        yield forest(
            [
                ForestRow(name, Interval(*(100 * bound for bound in share)))
                for name, share in rows
            ],
            "share of the variance (%)",
            zero_line=None,
            meaning=f"95 % intervals, {found.common} worlds",
            title=f"What {found.metric} differ by",
        )


def _maps(found: WorldsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.worlds import WorldMap, world_maps

    maps = [
        WorldMap(
            f"{one.world}: {change(found.metric, one.effect)}",
            ", ".join(
                f"{name} {_steps(one.terrain.steps[name])}"
                for name in ("tree", "water", "cow", "stone", "iron")
            ),
            one.terrain.map,
            one.terrain.start,
        )
        for one in found.outliers
        if one.terrain is not None
    ]
    if maps:
        yield world_maps(maps, MATERIALS)
