"""Actions of models: their frequencies and sequences, what unlocks achievements, and waste."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from assay.analyses.episodes import (
    AMOUNT,
    INTERVALS,
    RATE,
    Basis,
    EpisodeFacts,
    analysis_document,
    basis_of,
    build,
    by_group,
    completed,
    mean_over,
    percent,
)
from assay.analyses.quality import looping_steps
from assay.core.text import counted
from assay.crafter.rules import NoEffect
from assay.errors import UsageError
from assay.report.document import Cell, Document, Figures, Items, ReportTable, Section
from assay.report.files import interval_columns
from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

WASTE: Final = ("no effect", "asleep", "unknown action", "malformed reply")
"""The four kinds of waste."""
_GRAM: Final = 3
_PARTS: Final = 10
_LISTED: Final = 10
_FEWEST: Final = 3
"""Minimum number of unlocks for a sequence of actions to be listed."""


class WasteRate(NamedTuple):
    """Waste in one tenth of an episode."""

    part: int
    """The tenth, from 1 to 10."""
    share: Interval
    """Share of the requested actions and malformed replies."""


class ActionRun(NamedTuple):
    """Three consecutive actions."""

    actions: tuple[str, ...]
    played: int
    """Number of times they were played."""
    unlocks: int
    """Number of times the last of them unlocked an achievement."""
    wasted: int
    """Steps without effect, counted where all three had none."""
    lift: float
    """Unlock rate, as a multiple of the rate of all sequences of three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelActions:
    """Actions of one model."""

    group: str
    n: int
    steps: int
    shares: Mapping[str, Interval]
    """Share of each action in the steps of an episode, the most frequent first."""
    following: Mapping[str, Mapping[str, float]]
    """For each action, the shares of the actions that follow it."""
    waste: Mapping[str, Interval]
    """For each kind of waste, the share of requested actions and malformed replies."""
    reasons: Mapping[str, float]
    """Reasons why actions had no effect, as shares."""
    over: Mapping[str, tuple[WasteRate, ...]]
    """For each kind of waste, the rate in each tenth of an episode."""
    loops: Interval
    """Share of steps in loops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsAnalysis:
    """Actions of all models."""

    basis: Basis
    models: tuple[ModelActions, ...]
    leading: tuple[ActionRun, ...]
    """Sequences with the highest unlock rate, relative to all sequences."""
    wasting: tuple[ActionRun, ...]
    """Sequences that waste most steps."""


def analyse_actions(facts: Sequence[EpisodeFacts]) -> ActionsAnalysis:
    """Compute the frequencies, sequences and waste of actions; facts need steps and replies.

    Raises:
        UsageError: No episode has steps.
    """
    used = [one for one in completed(facts) if one.steps.actions]
    if not used:
        raise UsageError(
            f"these {len(facts)} episodes have no steps: their program recorded none; 'assay"
            " compare' reads what they came to"
        )
    notes = []
    if not any(one.has_achievements for one in used):
        notes.append(
            "In this environment nobody knows what unlocks something, nor what has no effect:"
            " waste is what does not exist, and loops are not looked for."
        )
    leading, wasting = _sequences(used)
    return ActionsAnalysis(
        basis=basis_of(facts, *notes),
        models=tuple(_model(name, episodes) for name, episodes in by_group(used).items()),
        leading=leading,
        wasting=wasting,
    )


def _model(name: str, episodes: Sequence[EpisodeFacts]) -> ModelActions:
    counts = [Counter(one.steps.actions) for one in episodes]
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    pairs: Counter[tuple[str, str]] = Counter()
    for one in episodes:
        pairs.update(zip(one.steps.actions, one.steps.actions[1:], strict=False))
    reasons = Counter(
        reason
        for one in episodes
        for reason in one.steps.no_effect
        if reason is not None and reason != NoEffect.ASLEEP
    )
    looping = [
        len(looping_steps(one.steps.actions, one.row.achievements))
        / len(one.steps.actions)
        * one.has_achievements
        for one in episodes
    ]
    return ModelActions(
        group=name,
        n=len(episodes),
        steps=total.total(),
        shares={
            action: mean_over(
                episodes, [count[action] / count.total() for count in counts], RATE
            )
            for action, _ in total.most_common()
        },
        following={
            action: {
                other: n / sum(m for (first, _), m in pairs.items() if first == action)
                for (first, other), n in pairs.most_common()
                if first == action
            }
            for action, _ in total.most_common()
        },
        waste={
            kind: mean_over(episodes, [_wasted(one, kind) for one in episodes], RATE)
            for kind in WASTE
        },
        reasons={reason: n / reasons.total() for reason, n in reasons.most_common()},
        over={kind: tuple(_over(episodes, kind)) for kind in WASTE},
        loops=mean_over(episodes, looping, RATE),
    )


def _wasted(facts: EpisodeFacts, kind: str) -> float:
    row = facts.row
    counted = {
        "no effect": row.no_effect_actions,
        "asleep": row.asleep_actions,
        "unknown action": row.unknown_actions,
        "malformed reply": row.malformed_replies,
    }
    return counted[kind] / max(row.actions_asked + row.malformed_replies, 1)


def _over(episodes: Sequence[EpisodeFacts], kind: str) -> Iterator[WasteRate]:
    """Yield the waste by tenths of the steps, or of the turns for waste without a step."""
    lost = [_places(one, kind) for one in episodes]
    for part in range(1, _PARTS + 1):
        values = [
            sum(place == part for place in places)
            * _PARTS
            / max(one.row.actions_asked + one.row.malformed_replies, 1)
            for one, places in zip(episodes, lost, strict=True)
        ]
        yield WasteRate(part, mean_over(episodes, values, AMOUNT))


def _places(facts: EpisodeFacts, kind: str) -> list[int]:
    """Return the tenth in which each instance of waste occurred."""
    steps, turns = facts.steps.no_effect, max(facts.row.turns, 1)
    if kind in ("no effect", "asleep"):
        asleep = kind == "asleep"
        return [
            index * _PARTS // len(steps) + 1
            for index, reason in enumerate(steps)
            if reason is not None and (reason == NoEffect.ASLEEP) == asleep
        ]
    unknown = kind == "unknown action"
    return [
        min((turn.turn - 1) * _PARTS // turns, _PARTS - 1) + 1
        for turn in facts.lost_turns
        for _ in range(turn.unknown if unknown else int(turn.malformed))
    ]


def _sequences(
    used: Sequence[EpisodeFacts],
) -> tuple[tuple[ActionRun, ...], tuple[ActionRun, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    unlocks: Counter[tuple[str, ...]] = Counter()
    wasted: Counter[tuple[str, ...]] = Counter()
    for one in used:
        actions, reasons = one.steps.actions, one.steps.no_effect
        new = {step - 1 for step in one.row.achievements.values()}
        for start in range(len(actions) - _GRAM + 1):
            gram = actions[start : start + _GRAM]
            counts[gram] += 1
            last = start + _GRAM - 1
            if last in new:
                unlocks[gram] += 1
            lost = sum(reason is not None for reason in reasons[start : last + 1])
            if lost == _GRAM:
                wasted[gram] += lost
    every = unlocks.total() / max(counts.total(), 1)

    def made(gram: tuple[str, ...]) -> ActionRun:
        rate = unlocks[gram] / counts[gram]
        return ActionRun(
            gram, counts[gram], unlocks[gram], wasted[gram], rate / every if every else 0.0
        )

    leading = [made(gram) for gram, n in unlocks.items() if n >= _FEWEST]
    return (
        tuple(sorted(leading, key=lambda one: (-one.lift, one.actions))[:_LISTED]),
        tuple(made(gram) for gram, _ in wasted.most_common(_LISTED)),
    )


_MOST = 17
_CELLS = 9
_WORDS = {
    "no effect": "actions without effect",
    "asleep": "acting while asleep",
    "unknown action": "actions that do not exist",
    "malformed reply": "malformed replies",
}


@analysis_document.register
def _document(found: ActionsAnalysis) -> Document:
    """Build the report: actions, waste, and sequences that unlock achievements."""
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
            Section("Waste", [waste, Figures(lambda: _over_figures(found))]),
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
    """Return all actions, ordered by their highest share in any model."""
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
    from assay.report.figures.achievements import RateRow, draw_rate_bars

    order = _actions(found)[:_MOST]
    nothing = Interval(0.0, float("nan"), float("nan"))
    yield draw_rate_bars(
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


def _over_figures(found: ActionsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import PanelLine, draw_line_panels

    kinds = [kind for kind in WASTE if any(model.waste[kind].point for model in found.models)]
    if kinds:
        yield draw_line_panels(
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
    from assay.report.figures.panels import draw_share_matrix

    for model in found.models[:4]:
        names = list(model.shares)[:_CELLS]
        if len(names) > 1:
            yield draw_share_matrix(
                names,
                names,
                [[model.following[first].get(then, 0.0) for then in names] for first in names],
                title=f"What follows what: {model.group}",
                note="Of the steps with the action of a line, the percentage that the action"
                f" of a column follows; {model.steps:,} steps.",
                names=("action", "next action"),
            )
