"""Declared hooks on stored episodes: firing rates, and their association with later results.

The association is a landmark analysis (Anderson, Cain and Gelber, "Analysis of survival by
tumor response", 1983). At a step fixed in advance, the episodes still in progress are divided
into those in which the hook has fired and those in which it has not, and their results after
that step are compared, within models. Results before the step do not count, so a hook does not
look good merely because long episodes fire it. This is an association, not an effect: episodes
in which a hook fires may differ in other ways.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from assay.analyses.episodes import (
    LEVEL,
    SHARE,
    Basis,
    EpisodeFacts,
    analysis_document,
    basis_of,
    build,
    by_group,
    completed,
    mean_over,
    world_of,
)
from assay.analyses.hook_conditions import StepState
from assay.analyses.hook_files import DeclaredHook, DeclaredHooks
from assay.core.text import counted
from assay.crafter.rules import MATERIALS, OBJECTS
from assay.crafter.view import View
from assay.episodes.replay import Replay
from assay.errors import EpisodeOver, ReplayError, UsageError, WorldFull
from assay.report.document import (
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    Section,
    Tone,
)
from assay.report.files import interval_columns
from assay.report.numbers import format_p_value, mean_cell, share_cell
from assay.stats.clusters import difference_within
from assay.stats.intervals import Interval
from assay.stats.multiplicity import holm
from assay.store.load import load_sessions
from assay.store.records import SessionRecord
from assay.store.store import Store

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_BATCH: Final = 64
_DARK: Final = 0.3
_FEW: Final = 3
"""Minimum number of episodes on each side for a comparison."""

Firings = Mapping[str, tuple[int, ...]]
"""Steps in which each hook fired in an episode; hooks that cannot be evaluated are missing."""


class Sign(StrEnum):
    """Result of the landmark analysis of a hook."""

    MORE = "more"
    """Episodes in which it has fired have higher results after the landmark."""
    FEWER = "fewer"
    """Episodes in which it has fired have lower results after the landmark."""
    UNCLEAR = "unclear"
    """The difference is not significant."""
    TOO_FEW = "too few"
    """By the landmark it has fired in almost all episodes, or in almost none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEffect:
    """Firing rates and landmark analysis of one declared hook."""

    name: str
    description: str
    firings: int
    episodes: int
    """Number of episodes in which it could be evaluated."""
    fired: Mapping[str, Interval]
    """Share of episodes in which it fired, by model."""
    typical_step: float | None
    """Median step of the first firings."""
    alive: int
    """Number of episodes still in progress at the landmark."""
    fired_by: int
    """Number of those in which it had fired by then."""
    difference: Interval
    """Later results with the hook fired minus not fired, within models; NaN if unknown."""
    p_value: float
    """Adjusted for all hooks of the file (Holm); NaN if not tested."""
    sign: Sign
    recommendation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnhancedHooksAnalysis:
    """Analysis of all hooks in a file."""

    basis: Basis
    landmark: int
    result: str
    """Result counted after the landmark: achievements, or steps in other environments."""
    hooks: tuple[HookEffect, ...]


def fire_all(
    store: Store,
    facts: Sequence[EpisodeFacts],
    declared: DeclaredHooks,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Firings]:
    """Evaluate all hooks in all completed episodes; return the firings by session.

    `progress` is called with the number of episodes done and the total.
    """
    needs = frozenset[str]().union(*(hook.needs for hook in declared.hooks))
    ids = [one.id for one in completed(facts)]
    found: dict[str, Firings] = {}
    for start in range(0, len(ids), _BATCH):
        with store.reading() as connection:
            some = ids[start : start + _BATCH]
            batch = list(load_sessions(connection, some, messages="text" in needs))
        for session in batch:
            found[session.header.session_id] = fire(session, declared.hooks)
            progress(len(found), len(ids))
    return found


def fire(session: SessionRecord, hooks: Sequence[DeclaredHook]) -> Firings:
    """Evaluate hooks in one episode, which is replayed if a hook needs the world."""
    needs = frozenset[str]().union(*(hook.needs for hook in hooks))
    states = _states(session, needs)
    able = list(hooks)
    if states is None:
        able = [hook for hook in hooks if "world" not in hook.needs]
        states = _states(session, needs - {"world", "view"}) or []
    if not session.messages:
        able = [hook for hook in able if "text" not in hook.needs]
    return {hook.name: hook.firings(states) for hook in able}


def _states(session: SessionRecord, needs: frozenset[str]) -> list[StepState] | None:
    """Return the steps of an episode; None if the world is needed and cannot be replayed."""
    said: dict[int, str] = {}
    for message in session.messages if "text" in needs else ():
        if message.message.role == "assistant":
            said[message.turn] = f"{said.get(message.turn, '')} {message.message.text}"
    try:
        replay = Replay(session) if "world" in needs else None
    except ReplayError:
        return None
    states: list[StepState] = []
    reached: frozenset[str] = frozenset()
    playing = None if replay is None else iter(replay)
    for played in session.played:
        for step in played.steps:
            unlocked = frozenset(step.unlocked)
            reached |= unlocked
            inventory: Mapping[str, int] = {}
            near: Mapping[str, int] = {}
            sleeping = night = False
            if replay is not None and playing is not None:
                try:
                    next(playing)
                except (EpisodeOver, WorldFull):
                    return None
                world = replay.world
                inventory, sleeping = world.inventory, world.sleeping
                night = world.daylight < _DARK
                near = _in_sight(world.view()) if "view" in needs else {}
            states.append(
                StepState(
                    step.index,
                    played.turn,
                    step.action,
                    step.no_effect,
                    step.reward,
                    unlocked,
                    reached,
                    inventory,
                    sleeping,
                    night,
                    near,
                    said.get(played.turn, ""),
                )
            )
    return states


_X, _Y = np.meshgrid(np.arange(9) - 4, np.arange(7) - 3, indexing="ij")
_AWAY: Final = np.abs(_X) + np.abs(_Y)
"""Manhattan distance from the player to each visible cell."""


def _in_sight(view: View) -> dict[str, int]:
    near: dict[str, int] = {}
    for ids, names, first in (
        (view.materials, MATERIALS, 0),
        (view.objects, OBJECTS, len(MATERIALS)),
    ):
        for number in np.unique(ids).tolist():
            if first <= number < first + len(names):
                near[names[number - first]] = int(_AWAY[ids == number].min())
    return near


def analyse_enhanced_hooks(
    facts: Sequence[EpisodeFacts],
    declared: DeclaredHooks,
    firings: Mapping[str, Firings],
    *,
    landmark: int | None = None,
) -> EnhancedHooksAnalysis:
    """Compute firing rates of declared hooks, and their association with later results.

    Args:
        facts: The episodes; no steps are needed.
        declared: The hooks.
        firings: Result of `fire_all`.
        landmark: Step at which episodes are divided; default: the landmark of the file.

    Raises:
        UsageError: No hook can be evaluated in any episode, or the landmark is not a valid
            step.
    """
    used = completed(facts)
    at = declared.landmark if landmark is None else landmark
    if at < 1:
        raise UsageError(f"landmark {at} is not allowed; give a step from 1 on")
    if not any(firings.get(one.id) for one in used):
        raise UsageError(
            "no hook of the file can be evaluated here: what it asks of the world needs"
            " episodes of Crafter that assay played, and text needs messages"
        )
    crafter = all(one.has_achievements for one in used)
    result = "achievements" if crafter else "steps"
    later: Callable[[EpisodeFacts], float] = (
        (lambda one: float(sum(step > at for step in one.row.achievements.values())))
        if crafter
        else (lambda one: float(max(one.row.steps - at, 0)))
    )
    rows = [
        (hook, [one for one in used if hook.name in firings.get(one.id, {})])
        for hook in declared.hooks
    ]
    estimates = [_landmark(hook, seen, firings, at, later) for hook, seen in rows]
    p_values = [estimate[2] for estimate in estimates]
    known = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    adjusted = dict(
        zip(known, holm([p_values[place] for place in known]).tolist(), strict=True)
    )
    notes = [
        f"{hook.name} could be evaluated in {len(seen)} of {len(used)} episodes: the others"
        " cannot be played again, or have no messages."
        for hook, seen in rows
        if len(seen) < len(used)
    ]
    alive = sum(one.row.steps > at for one in used)
    if alive < 2 * _FEW:
        longest = sorted(one.row.steps for one in used)[len(used) // 2]
        notes.append(
            f"Only {alive} episodes lasted beyond step {at}, so that nothing is compared; the"
            f" median episode has {longest} steps. Choose an earlier --landmark before you look"
            " at results."
        )
    return EnhancedHooksAnalysis(
        basis=basis_of(facts, *notes),
        landmark=at,
        result=result,
        hooks=tuple(
            _effect(
                hook, seen, firings, estimates[place], adjusted.get(place, math.nan), at, result
            )
            for place, (hook, seen) in enumerate(rows)
        ),
    )


_Landmark = tuple[tuple[int, int], Interval, float]
"""Episodes in progress and those with a firing; difference; p-value before correction."""


def _landmark(
    hook: DeclaredHook,
    seen: Sequence[EpisodeFacts],
    firings: Mapping[str, Firings],
    at: int,
    later: Callable[[EpisodeFacts], float],
) -> _Landmark:
    alive = [one for one in seen if one.row.steps > at]
    fired = [any(step <= at for step in firings[one.id][hook.name]) for one in alive]
    unknown = Interval(math.nan, math.nan, math.nan)
    counts = (len(alive), sum(fired))
    if min(sum(fired), len(alive) - sum(fired)) < _FEW:
        return counts, unknown, math.nan
    estimate = difference_within(
        [later(one) for one in alive],
        fired,
        [one.group for one in alive],
        [world_of(one) for one in alive],
    )
    if math.isnan(estimate.error):
        return counts, unknown, math.nan
    return counts, estimate.interval(LEVEL), estimate.p_value()


def _effect(
    hook: DeclaredHook,
    seen: Sequence[EpisodeFacts],
    firings: Mapping[str, Firings],
    landmark: _Landmark,
    p_value: float,
    at: int,
    result: str,
) -> HookEffect:
    (alive, fired_by), difference, _ = landmark
    mine = {one.id: firings[one.id][hook.name] for one in seen}
    firsts = [steps[0] for steps in mine.values() if steps]
    sign = Sign.UNCLEAR
    if math.isnan(p_value):
        sign = Sign.TOO_FEW
    elif p_value < 1 - LEVEL:
        sign = Sign.MORE if difference.point > 0 else Sign.FEWER
    return HookEffect(
        name=hook.name,
        description=hook.description,
        firings=sum(map(len, mine.values())),
        episodes=len(seen),
        fired={
            name: mean_over(episodes, [float(bool(mine[one.id])) for one in episodes], SHARE)
            for name, episodes in by_group(seen).items()
        },
        typical_step=float(np.median(firsts)) if firsts else None,
        alive=alive,
        fired_by=fired_by,
        difference=difference,
        p_value=p_value,
        sign=sign,
        recommendation=_recommend(hook.name, sign, difference, alive, fired_by, at, result),
    )


def _recommend(
    name: str,
    sign: Sign,
    difference: Interval,
    alive: int,
    fired_by: int,
    at: int,
    result: str,
) -> str:
    """Return a recommendation, with the numbers it is based on."""
    parted = f"{fired_by} of {alive} episodes that lasted beyond step {at}"
    if sign is Sign.TOO_FEW:
        if not alive:
            return f"No episode lasted beyond step {at}: choose an earlier landmark."
        usual = "hardly any" if fired_by < alive / 2 else "almost all"
        return (
            f"It had fired in {parted}, {usual}: it cannot part episodes. Change its threshold,"
            " or choose another landmark before you look at results."
        )
    low, high = sorted((abs(difference.low), abs(difference.high)))
    if sign is Sign.UNCLEAR:
        size = f"{difference.point:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"
        size += f" {result}"
    else:
        size = f"{abs(difference.point):.1f} [{low:.1f} to {high:.1f}] {sign.value} {result}"
    if sign is Sign.MORE:
        return (
            f"Where it had fired ({parted}), episodes of a model then reached {size}."
            f" Try what makes {name} happen earlier, and test that with 'assay compare'."
        )
    if sign is Sign.FEWER:
        return (
            f"Where it had fired ({parted}), episodes of a model then reached {size}."
            f" Look at some of them, and try to prevent {name}; 'assay compare' tells whether"
            " that helps."
        )
    return (
        f"It goes with {size} ({parted}): the data do not tell. Play more worlds, or drop it."
    )


_ASSOCIATION = (
    "These are associations, not effects: episodes in which a hook fired may differ in other"
    " ways. Only a comparison of versions, 'assay compare', shows an effect."
)


@analysis_document.register
def _document(found: EnhancedHooksAnalysis) -> Document:
    """Build the report: firing rates, associations and recommendations."""
    at = found.landmark
    often = ReportTable(
        f"Declared hooks, and {found.result} after step {at}",
        ["Hook", "Firings", "First at", "Fired by then", "Fired less not fired", "p", "Shows"],
        [
            [
                hook.name,
                f"{hook.firings:,}",
                "-" if hook.typical_step is None else f"step {hook.typical_step:.0f}",
                f"{hook.fired_by} of {hook.alive}",
                "-"
                if math.isnan(hook.difference.point)
                else mean_cell("", hook.difference, signed=True),
                "-" if math.isnan(hook.p_value) else format_p_value(hook.p_value),
                hook.sign.value,
            ]
            for hook in found.hooks
        ],
        f"Episodes still going on at step {at}, parted by whether the hook had fired; what they"
        " reach after it is compared within models, over worlds. p is adjusted for all"
        f" {len(found.hooks)} hooks (Holm). First at: the median first firing.",
    )
    names = found.basis.groups
    by_model = ReportTable(
        "Share of episodes in which each hook fired, by model",
        ["Hook", *names, "Evaluated in"],
        [
            [
                hook.name,
                *(
                    share_cell(hook.fired[name]) if name in hook.fired else "-"
                    for name in names
                ),
                f"{hook.episodes:,}",
            ]
            for hook in found.hooks
        ],
    )
    follows = Items(_follows(found), "What follows")
    return build(
        "enhanced-hooks",
        f"Declared hooks in {counted(found.basis.episodes, 'episode')}",
        [_finding(found)],
        [
            Section("What goes with a hook", [often, Figures(lambda: _forest(found))]),
            Section("What follows", [follows, Paragraph(_ASSOCIATION, Tone.WARNING)]),
            Section("By model", [by_model], in_terminal=False),
        ],
        found,
        [
            {
                "hook": hook.name,
                "firings": hook.firings,
                "alive_at_landmark": hook.alive,
                "fired_by_landmark": hook.fired_by,
                **interval_columns("difference", hook.difference),
                "p_adjusted": hook.p_value,
                "shows": hook.sign.value,
                "recommendation": hook.recommendation,
                "landmark": at,
            }
            for hook in found.hooks
        ],
    )


def _follows(found: EnhancedHooksAnalysis) -> list[str]:
    """Return the recommendations; hooks with identical ones share a line."""
    names: dict[str, list[str]] = {}
    for hook in found.hooks:
        names.setdefault(hook.recommendation, []).append(hook.name)
    return [f"{', '.join(those)}: {said}" for said, those in names.items()]


def _finding(found: EnhancedHooksAnalysis) -> str:
    clear = [hook for hook in found.hooks if hook.sign in (Sign.MORE, Sign.FEWER)]
    if not clear:
        return (
            f"For none of the {len(found.hooks)} hooks do the data tell whether firing by step"
            f" {found.landmark} goes with more or fewer {found.result} after it."
        )

    def said(hook: HookEffect) -> str:
        return (
            f"a firing of {hook.name} goes with"
            f" {abs(hook.difference.point):.1f} {hook.sign.value}"
        )

    rest = len(found.hooks) - len(clear)
    text = f"By step {found.landmark}, {' and '.join(map(said, clear))} {found.result} after it"
    return f"{text}; of the other {rest} the data do not tell." if rest else f"{text}."


def _forest(found: EnhancedHooksAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.intervals import ForestRow, draw_forest
    from assay.report.figures.style import join_texts

    rows = [
        ForestRow(hook.name, hook.difference, f"{hook.fired_by} of {hook.alive} fired")
        for hook in found.hooks
        if not math.isnan(hook.difference.point)
    ]
    left_out = [hook.name for hook in found.hooks if math.isnan(hook.difference.point)]
    meaning = "95 % interval of fired less not fired, within models, over worlds"
    meaning += "; an association, not an effect"
    if left_out:
        meaning += f". Not drawn, too few episodes to compare: {join_texts(left_out)}"
    if rows:
        yield draw_forest(
            rows,
            f"difference in later {found.result}",
            meaning=meaning,
            title=f"What goes with a hook that fired by step {found.landmark}",
        )
