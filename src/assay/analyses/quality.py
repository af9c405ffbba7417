"""Quality of a trace as training data: a score from 0 to 1, and the reasons for a low one.

The score is a product, so that a good factor does not make up for a bad one:

    achievements / 22 x (1 - waste) x (1 - loops) x (1 - unusable replies)

It rates the trace, not the model; `assay compare` compares models. In environments other than
Crafter, goals and loops are unknown, so the score has only waste and replies.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from assay.analyses.episodes import (
    INTERVALS,
    RATE,
    Basis,
    EpisodeFacts,
    TaskWorld,
    analysis_document,
    basis_of,
    build,
    by_group,
    completed,
    mean_over,
    percent,
    replay_command,
    world_of,
)
from assay.core.text import counted
from assay.crafter.rules import ACHIEVEMENTS
from assay.report.document import Document, Figures, Items, ReportTable, Row, Section
from assay.report.numbers import mean_cell
from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_LONGEST_CYCLE: Final = 8
_FEWEST_ROUNDS: Final = 3
_GRAM: Final = 5
_ALIKE: Final = 0.9
"""Minimum similarity of near duplicates in one world."""
_MOST_OF_A_WORLD: Final = 200
_WAITING: Final = frozenset({"noop", "sleep"})
_MOVES: Final = {
    "move_left": (-1, 0),
    "move_right": (1, 0),
    "move_up": (0, -1),
    "move_down": (0, 1),
}


class Spoiled(NamedTuple):
    """Something that lowers the score, as a share."""

    what: str
    share: float
    words: str
    """Description with counts, such as `12 of 100 actions wasted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuality:
    """Quality of one trace."""

    session_id: str
    score: float
    """From 0 to 1."""
    progress: float | None
    """Achievements / 22; None in other environments."""
    waste: float
    """Unknown actions, actions without effect and actions while asleep / requested actions."""
    loops: float
    """Steps in loops / steps."""
    unreadable: float
    """Turns whose reply was malformed or cut at the token limit / turns."""
    truncated: float
    """Turns whose reply was cut / turns; part of `unreadable`."""
    why: tuple[Spoiled, ...]
    """Factors that lower the score, the worst first."""

    @property
    def reasons(self) -> str:
        """Reasons why the score is not higher, as text."""
        return "; ".join(one.words for one in self.why) or "nothing spoils it"


def trace_quality(facts: EpisodeFacts) -> TraceQuality:
    """Compute the quality of one trace; its facts need steps and replies."""
    row, actions = facts.row, facts.steps.actions
    crafter = facts.has_achievements
    reached = sum(name in row.achievements for name in ACHIEVEMENTS)
    progress = reached / len(ACHIEVEMENTS) if crafter else None
    wasted = row.unknown_actions + row.no_effect_actions + row.asleep_actions
    looping = len(looping_steps(actions, row.achievements)) if crafter else 0
    turns = max(row.turns, 1)
    shares = {
        "waste": min(1.0, wasted / max(row.actions_asked, 1)),
        "loops": looping / max(len(actions), 1),
        "unreadable": min(1.0, facts.unreadable_turns / turns),
    }
    score = 1.0 if progress is None else progress
    for share in shares.values():
        score *= 1 - share
    words = {
        "waste": f"{wasted} of {row.actions_asked} actions wasted",
        "loops": f"{looping} of {len(actions)} steps in loops",
        "unreadable": f"{facts.unreadable_turns} of {row.turns} replies without use"
        + (f", {facts.cut_turns} cut at the token limit" if facts.cut_turns else ""),
    }
    why = [Spoiled(name, share, words[name]) for name, share in shares.items() if share]
    if progress is not None and progress < 1:
        lacking = f"{reached} of {len(ACHIEVEMENTS)} achievements"
        why.append(Spoiled("progress", 1 - progress, lacking))
    return TraceQuality(
        session_id=facts.id,
        score=score,
        progress=progress,
        **shares,
        truncated=min(1.0, facts.cut_turns / turns),
        why=tuple(sorted(why, key=lambda one: -one.share)),
    )


def looping_steps(actions: Sequence[str], unlocked: Mapping[str, int] = {}) -> set[int]:
    """Return the steps in loops, counted from 0.

    A loop is a sequence of 2 to 8 actions, repeated at least three times in a row, whose moves
    cancel out and in which no achievement is unlocked. Walking, digging a tunnel, hitting one
    thing and sleeping are not loops: their moves do not cancel out, or they repeat a single
    action.
    """
    new = {step - 1 for step in unlocked.values()}
    found: set[int] = set()
    for period in range(2, _LONGEST_CYCLE + 1):
        start = 0
        while start + period * _FEWEST_ROUNDS <= len(actions):
            end = start + period
            while end < len(actions) and actions[end] == actions[end - period]:
                end += 1
            rounds = (end - start) // period
            cycle = actions[start : start + period]
            if rounds >= _FEWEST_ROUNDS and _is_idle(cycle):
                inside = range(start, start + rounds * period)
                found |= _without_news(inside, new, period)
            # A later run cannot start within this one, except in its last round.
            start = max(start + 1, end - period + 1)
    return found


def _without_news(inside: range, new: set[int], period: int) -> set[int]:
    """Split a loop at unlocked achievements; keep the parts that are long enough."""
    found: set[int] = set()
    first = inside.start
    for news in [*sorted(new.intersection(inside)), inside.stop]:
        if (news - first) // period >= _FEWEST_ROUNDS:
            found.update(range(first, news))
        first = news + 1
    return found


def _is_idle(cycle: Sequence[str]) -> bool:
    """Return whether actions differ, are not only waiting, and return to their start."""
    if len(set(cycle)) < 2 or set(cycle) <= _WAITING:
        return False
    moves = [_MOVES.get(action, (0, 0)) for action in cycle]
    return sum(x for x, _ in moves) == 0 == sum(y for _, y in moves)


class NearDuplicate(NamedTuple):
    """Two nearly identical traces in one world."""

    world: TaskWorld
    first: str
    """The session with the better score, or the first one."""
    second: str
    alike: float
    """Sequences of five actions in both traces divided by those in either, with repetitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuality:
    """Quality of one model's traces."""

    group: str
    n: int
    score: Interval
    progress: float | None
    waste: float
    loops: float
    unreadable: float
    truncated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityAnalysis:
    """Quality of all traces."""

    basis: Basis
    models: tuple[ModelQuality, ...]
    traces: tuple[TraceQuality, ...]
    """The best first."""
    groups: Mapping[str, str]
    """Model of each trace."""
    worlds: Mapping[str, str]
    """World of each trace."""
    duplicates: tuple[NearDuplicate, ...]


def analyse_quality(facts: Sequence[EpisodeFacts]) -> QualityAnalysis:
    """Score every completed trace, and find near duplicates."""
    used = completed(facts)
    quality = {one.id: trace_quality(one) for one in used}
    notes = []
    if not all(one.has_achievements for one in used):
        notes.append(
            "Some traces are of other environments than Crafter: their score has no progress"
            " and no loops in it."
        )
    if not any(one.steps.actions for one in used):
        notes.append("The traces have no steps, so that loops and duplicates are not known.")
    if any(one.row.source != "assay" for one in used):
        notes.append(
            "Imported logs say little about waste: what they do not count is taken as none."
        )
    traces = tuple(sorted(quality.values(), key=lambda one: (-one.score, one.session_id)))
    return QualityAnalysis(
        basis=basis_of(facts, *notes),
        models=tuple(
            _model(name, episodes, [quality[one.id] for one in episodes])
            for name, episodes in by_group(used).items()
        ),
        traces=traces,
        groups={one.id: one.group for one in used},
        worlds={one.id: str(world_of(one)) for one in used},
        duplicates=near_duplicates(used, {one.session_id: one.score for one in traces}),
    )


def _model(
    name: str, episodes: Sequence[EpisodeFacts], quality: Sequence[TraceQuality]
) -> ModelQuality:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    progress = [one.progress for one in quality if one.progress is not None]
    score = mean_over(episodes, [one.score for one in quality], RATE)
    return ModelQuality(
        group=name,
        n=len(quality),
        score=score,
        progress=mean(progress) if progress else None,
        waste=mean([one.waste for one in quality]),
        loops=mean([one.loops for one in quality]),
        unreadable=mean([one.unreadable for one in quality]),
        truncated=mean([one.truncated for one in quality]),
    )


def near_duplicates(
    facts: Sequence[EpisodeFacts], scores: Mapping[str, float]
) -> tuple[NearDuplicate, ...]:
    """Find traces in one world that share at least 90 % of their 5-action sequences.

    In a world with very many traces, the first 200 are compared.
    """
    worlds: dict[TaskWorld, list[EpisodeFacts]] = {}
    for one in facts:
        if one.steps.actions:
            worlds.setdefault(world_of(one), []).append(one)
    found = [
        pair
        for world, episodes in worlds.items()
        if len(episodes) > 1
        for pair in _alike(world, episodes[:_MOST_OF_A_WORLD], scores)
    ]
    return tuple(sorted(found, key=lambda pair: (-pair.alike, pair.first, pair.second)))


def _alike(
    world: TaskWorld, episodes: Sequence[EpisodeFacts], scores: Mapping[str, float]
) -> Iterator[NearDuplicate]:
    grams = [_grams(one.steps.actions) for one in episodes]
    sizes = [sum(counted.values()) for counted in grams]
    for second in range(len(episodes)):
        for first in range(second):
            # Counts of very different size cannot be similar.
            if min(sizes[first], sizes[second]) < _ALIKE * max(sizes[first], sizes[second]):
                continue
            both = sum((grams[first] & grams[second]).values())
            alike = both / (sizes[first] + sizes[second] - both)
            if alike >= _ALIKE:
                pair = (episodes[first].id, episodes[second].id)
                better, worse = sorted(pair, key=lambda one: -scores.get(one, 0.0))
                yield NearDuplicate(world, better, worse, alike)


def _grams(actions: Sequence[str]) -> Counter[tuple[str, ...]]:
    if len(actions) < _GRAM:
        return Counter([tuple(actions)])
    return Counter(
        tuple(actions[start : start + _GRAM]) for start in range(len(actions) - _GRAM + 1)
    )


_SHOWN = 3
"""Number of best and worst traces shown in a terminal."""
_LISTED = 50
_WORDS = {
    "waste": "wasted actions",
    "loops": "loops",
    "unreadable": "replies without use",
    "progress": "little progress",
}


@analysis_document.register
def _document(found: QualityAnalysis) -> Document:
    """Build the report: scores by model, reasons, and the best and the worst traces."""
    models = ReportTable(
        "Quality by model, from 0 to 1",
        ["Model", "Score", "Progress", "Waste", "Loops", "Unreadable", "Cut", "Traces"],
        [
            [
                model.group,
                mean_cell("", model.score),
                *map(percent, (model.progress, model.waste, model.loops)),
                *map(percent, (model.unreadable, model.truncated)),
                f"{model.n:,}",
            ]
            for model in found.models
        ],
        "Score: progress x (1 - waste) x (1 - loops) x (1 - unreadable), averaged. Progress:"
        " achievements / 22. Waste: actions unknown, without effect or ignored asleep. Loops:"
        " steps that repeat the same 2 to 8 actions and lead nowhere. Unreadable: replies that"
        f" were malformed or cut at the token limit; Cut: the latter alone. {INTERVALS}",
    )
    best, worst = found.traces[:_SHOWN], found.traces[_SHOWN:][-_SHOWN:]
    sections = [
        Section("Quality by model", [models, Figures(lambda: _drawings(found))]),
        Section(
            "The best and the worst",
            [
                Items([_line(found, trace) for trace in traces], title)
                for title, traces in (("The best", best), ("The worst", worst))
                if traces
            ],
        ),
        Section("Near duplicates", list(_duplicates(found))),
        Section("All traces", [_table(found)], in_terminal=False, folded=True),
    ]
    return build(
        "quality",
        f"Quality of {counted(len(found.traces), 'trace')}",
        [_finding(found), *_ends(found)],
        sections,
        found,
        [
            {
                "session_id": trace.session_id,
                "model": found.groups[trace.session_id],
                "world": found.worlds[trace.session_id],
                "score": trace.score,
                "progress": trace.progress,
                "waste": trace.waste,
                "loops": trace.loops,
                "unreadable": trace.unreadable,
                "truncated": trace.truncated,
                "why": trace.reasons,
            }
            for trace in found.traces
        ],
    )


def _finding(found: QualityAnalysis) -> str:
    order = sorted(found.models, key=lambda model: -model.score.point)
    best = order[0]
    text = f"The traces of {best.group} score highest, {best.score.point:.2f} on average"
    text += f", those of {order[-1].group} {order[-1].score.point:.2f}" * (len(order) > 1)
    lost = {
        name: sum(getattr(trace, name) for trace in found.traces) / len(found.traces)
        for name in ("waste", "loops", "unreadable")
    }
    worst = max(lost, key=lambda name: lost[name])
    if lost[worst]:
        text += f"; what spoils most is {_WORDS[worst]} ({percent(lost[worst])})"
    n = len(found.duplicates)
    return f"{text}. {n:,} pairs are near duplicates." if n else f"{text}."


def _ends(found: QualityAnalysis) -> Iterator[str]:
    """Yield the best and the worst trace, each with the command that replays it."""
    ends = {"The best": found.traces[0], "The worst": found.traces[-1]}
    for name, trace in ends.items() if len(found.traces) > 1 else ():
        command = replay_command(trace.session_id, found.basis)
        yield f"{name}, {trace.score:.2f}: {command}"


def _line(found: QualityAnalysis, trace: TraceQuality) -> str:
    return (
        f"{trace.score:.2f}  {found.groups[trace.session_id]} in"
        f" {found.worlds[trace.session_id]}: {trace.reasons}."
        f" {replay_command(trace.session_id, found.basis)}"
    )


def _table(found: QualityAnalysis) -> ReportTable:
    rows: list[Row] = [
        [
            trace.session_id[:10],
            f"{trace.score:.2f}",
            found.groups[trace.session_id],
            found.worlds[trace.session_id],
            trace.reasons,
        ]
        for trace in found.traces[:_LISTED]
    ]
    caption = "All traces" if len(found.traces) <= _LISTED else f"The best {_LISTED} traces"
    return ReportTable(caption, ["Session", "Score", "Model", "World", "Why"], rows)


def _duplicates(found: QualityAnalysis) -> Iterator[ReportTable]:
    if found.duplicates:
        yield ReportTable(
            "Traces of one world that are nearly the same",
            ["World", "Keep", "Drop", "Alike"],
            [
                [str(pair.world), pair.first[:10], pair.second[:10], percent(pair.alike)]
                for pair in found.duplicates[:_LISTED]
            ],
            "Alike: runs of five actions that both have, over those that either has.",
        )


def _drawings(found: QualityAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.distributions import draw_box_plot

    groups: dict[str, list[float]] = {}
    for trace in found.traces:
        groups.setdefault(found.groups[trace.session_id], []).append(trace.score)
    yield draw_box_plot(groups, "quality score of a trace (0 to 1)")
