"""The report of what models do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay._util.text import counted
from assay.analyses.actions import WASTE, ActionRun, ActionsAnalysis, ModelActions
from assay.report.analyses.common import INTERVALS, build, percent
from assay.report.data import interval_columns
from assay.report.document import Cell, Document, Figures, Items, ReportTable, Section
from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["actions_document"]

_MOST = 17
_CELLS = 9
_WORDS = {
    "no effect": "actions without effect",
    "asleep": "acting while asleep",
    "unknown action": "actions that do not exist",
    "malformed reply": "malformed replies",
}


def actions_document(found: ActionsAnalysis) -> Document:
    """What is done, what is wasted, and what leads somewhere."""
    models = found.models
    waste = ReportTable(
        "Waste, as shares of actions asked for and replies",
        ["Model", *(kind.capitalize() for kind in WASTE), "In loops", "Mostly", "Episodes"],
        [
            [
                model.group,
                *(_share(model.waste[kind]) for kind in WASTE),
                _share(model.loops),
                _reason(model),
                f"{model.n:,}",
            ]
            for model in models
        ],
        "Mostly: the most frequent reason why an action had no effect. In loops: steps that"
        f" repeat the same 2 to 8 actions and lead nowhere. {INTERVALS}",
    )
    what = ReportTable(
        "What is done, as shares of steps",
        ["Action", *(model.group for model in models)],
        [
            [
                action,
                *(
                    percent(model.shares[action].point) if action in model.shares else "0%"
                    for model in models
                ),
            ]
            for action in _actions(found)[:10]
        ],
    )
    runs = [
        Items(
            [
                f"{' > '.join(run.actions)}: unlocked something {run.unlocks} of {run.played}"
                f" times, {run.lift:.0f} times as often as any three actions"
                for run in found.leading[:3]
            ],
            "Three actions that lead to an achievement",
        ),
        Items(
            [
                f"{' > '.join(run.actions)}: {counted(run.wasted // 3, 'time')}, all three for"
                " nothing"
                for run in found.wasting[:3]
            ],
            "Three actions that waste time",
        ),
    ]
    return build(
        "actions",
        f"Actions in {counted(found.basis.episodes, 'episode')}",
        [_finding(found)],
        [
            Section("What is done", [what, Figures(lambda: _bars(found))]),
            Section("Waste", [waste, Figures(lambda: _over(found))]),
            Section("What leads somewhere", [block for block in runs if block.items]),
            Section(
                "What follows what",
                [_runs_table(found), Figures(lambda: _following(found))],
                in_terminal=False,
            ),
        ],
        found,
        [
            {
                "model": model.group,
                "action": action,
                **interval_columns("share", share),
                "steps": model.steps,
                "episodes": model.n,
            }
            for model in models
            for action, share in model.shares.items()
        ],
    )


def _share(share: Interval) -> Cell:
    ends = f"[{percent(share.low)}, {percent(share.high)}]" if share.known else ""
    return Cell(percent(share.point), ends.replace("%", ""))


def _reason(model: ModelActions) -> str:
    for reason, share in model.reasons.items():
        return f"{reason.replace('_', ' ')} {percent(share)}"
    return "-"


def _actions(found: ActionsAnalysis) -> list[str]:
    """All actions, the most frequent of any model first."""
    most: dict[str, float] = {}
    for model in found.models:
        for action, share in model.shares.items():
            most[action] = max(most.get(action, 0.0), share.point)
    return sorted(most, key=lambda action: -most[action])


def _finding(found: ActionsAnalysis) -> str:
    def wasted(model: ModelActions) -> float:
        return sum(share.point for share in model.waste.values())

    worst, best = max(found.models, key=wasted), min(found.models, key=wasted)
    text = f"{worst.group} wastes {percent(wasted(worst))} of what it asks for"
    kind = max(WASTE, key=lambda kind: worst.waste[kind].point)
    text += f", mostly by {_WORDS[kind]}" * bool(wasted(worst))
    if best is not worst:
        text += f"; {best.group} wastes {percent(wasted(best))}"
    action = next(iter(worst.shares))
    looping = max(found.models, key=lambda model: model.loops.point)
    text += f". What {worst.group} does most is {action}"
    if looping.loops.point >= 0.01:
        share = percent(looping.loops.point)
        text += f"; {looping.group} spends {share} of its steps in loops"
    return f"{text}."


def _runs_table(found: ActionsAnalysis) -> ReportTable:
    def row(run: ActionRun) -> list[str]:
        return [
            " > ".join(run.actions),
            f"{run.played:,}",
            f"{run.unlocks:,}",
            f"{run.lift:.1f}",
            f"{run.wasted // 3:,}",
        ]

    return ReportTable(
        "Three actions in a row",
        ["Actions", "Played", "Unlocked something", "Times as often as any", "All wasted"],
        [row(run) for run in (*found.leading, *found.wasting)],
        "Counts over all models; runs that overlap are not independent, so they have no"
        " intervals, and those that unlocked something fewer than three times are left out.",
    )


def _bars(found: ActionsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.achievements import RateRow, rate_bars

    order = _actions(found)[:_MOST]
    nothing = Interval(0.0, float("nan"), float("nan"))
    yield rate_bars(
        [
            RateRow(
                model.group,
                {action: model.shares.get(action, nothing) for action in order},
                model.n,
            )
            for model in found.models
        ],
        order,
        {},
        title="What models do",
        label="steps (%)",
        what="shares of the steps of an episode",
    )


def _over(found: ActionsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import PanelLine, line_panels

    kinds = [kind for kind in WASTE if any(model.waste[kind].point for model in found.models)]
    if kinds:
        yield line_panels(
            {
                kind: [
                    PanelLine(
                        model.group,
                        [(10 * rate.part - 5, rate.share) for rate in model.over[kind]],
                        model.n,
                    )
                    for model in found.models
                ]
                for kind in kinds
            },
            title="What is wasted, over the episode",
            xlabel="part of the episode (%)",
            ylabel="wasted (%)",
            note="Shares of what was asked for, by tenths of each episode; bars: 95 % intervals"
            " over worlds; n: episodes.",
            scale=100,
        )


def _following(found: ActionsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import share_matrix

    for model in found.models[:4]:
        names = list(model.shares)[:_CELLS]
        if len(names) > 1:
            yield share_matrix(
                names,
                names,
                [[model.following[first].get(then, 0.0) for then in names] for first in names],
                title=f"What follows what: {model.group}",
                note="Of the steps with the action of a line, the percentage that the action"
                f" of a column follows; {model.steps:,} steps.",
                names=("action", "next action"),
            )
