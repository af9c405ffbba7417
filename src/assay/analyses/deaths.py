"""Causes of death, survival times, and the last steps before death.

The ends of episodes are found by replaying them from the recorded actions. Only Crafter
episodes can be replayed. If there are very many, an evenly spaced sample is replayed.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from assay.analyses.episodes import (
    INTERVALS,
    SHARE,
    Basis,
    EpisodeFacts,
    analysis_document,
    basis_of,
    build,
    by_group,
    cause_of,
    completed,
    evenly,
    mean_over,
    percent,
)
from assay.core.text import counted
from assay.crafter.rules import TASK
from assay.episodes.replay import Replay
from assay.errors import EpisodeOver, ReplayError, UsageError, WorldFull
from assay.judge.subjects import ordered_causes
from assay.report.document import Document, Figures, ReportTable, Section
from assay.report.files import interval_columns
from assay.report.numbers import share_cell
from assay.stats.intervals import Interval
from assay.stats.survival import cumulative_incidence
from assay.store.load import load_sessions
from assay.store.records import SessionRecord
from assay.store.store import Store

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

LAST: Final = 40
"""Number of steps before the end to record."""
_MOST: Final = 1_000
_BATCH: Final = 64
_DARK: Final = 0.3
"""Daylight below which it is night."""


class LastStep(NamedTuple):
    """State of the player after one of the last steps."""

    action: str
    health: int
    food: int
    drink: int
    energy: int
    asleep: bool
    night: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """End of one episode."""

    inventory: Mapping[str, int]
    """Items of the player at the end, including vitals."""
    moments: tuple[LastStep, ...]
    """The last steps, in order."""


def play_endings(store: Store, facts: Sequence[EpisodeFacts]) -> dict[str, Ending]:
    """Replay up to 1,000 episodes; return their endings by session."""
    able = [one for one in facts if one.row.task.startswith(TASK) and one.row.steps]
    ids = [one.id for one in evenly(able, _MOST)]
    endings: dict[str, Ending] = {}
    # Closed between two batches, so that a run in progress can write to the database.
    for start in range(0, len(ids), _BATCH):
        with store.reading() as connection:
            batch = list(load_sessions(connection, ids[start : start + _BATCH], messages=False))
        for session in batch:
            ending = play_to_the_end(session)
            if ending is not None:
                endings[session.header.session_id] = ending
    return endings


def play_to_the_end(session: SessionRecord) -> Ending | None:
    """Replay a recorded episode; None if that fails or the result differs."""
    try:
        replay = Replay(session)
        moments: deque[LastStep] = deque(maxlen=LAST)
        world, first = replay.world, replay.steps - LAST
        for number, (_, recorded, result) in enumerate(replay):
            if number < first:
                continue
            had = world.inventory
            moments.append(
                LastStep(
                    recorded.action,
                    had["health"],
                    had["food"],
                    had["drink"],
                    had["energy"],
                    world.sleeping,
                    world.daylight < _DARK,
                )
            )
            if result.unlocked != recorded.unlocked:
                return None
        return Ending(world.inventory, tuple(moments))
    except (ReplayError, EpisodeOver, WorldFull):
        return None


_DOING: Final = 10
"""Number of last steps that show what the player was doing."""
_LOW: Final = 3
"""Threshold at or below which a vital is low."""


class Dying(NamedTuple):
    """Last steps of all episodes with one cause of death."""

    cause: str
    episodes: int
    """Number of replayed episodes."""
    health: tuple[float, ...]
    """Mean health in each of the last steps, in order; shorter if all episodes were shorter."""
    asleep: float
    """Share of episodes with sleep in the last ten steps."""
    night: float
    """Share of deaths at night."""
    low: Mapping[str, float]
    """Share of deaths with low food, drink or energy, by vital."""
    actions: tuple[tuple[str, float], ...]
    """Actions in the last ten steps, the most frequent first, as shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeaths:
    """Deaths of one model."""

    group: str
    n: int
    died: Interval
    """Share of episodes that ended in death."""
    causes: Mapping[str, Interval]
    """Share of episodes by cause of death, the most frequent first."""
    median_step: float | None
    """Median step of the deaths."""
    steps: tuple[float, ...]
    """Steps at which the share of deaths rises."""
    shares: tuple[float, ...]
    """Share of deaths from each of these steps on; episodes that were cut off are censored."""
    last: float
    """Length of the longest episode in steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathsAnalysis:
    """Deaths of all models."""

    basis: Basis
    models: tuple[ModelDeaths, ...]
    dying: tuple[Dying, ...]
    """Last steps by cause, the most frequent first."""
    deaths: int
    endings: int
    """Number of replayed deaths."""


def analyse_deaths(
    facts: Sequence[EpisodeFacts], endings: Mapping[str, Ending]
) -> DeathsAnalysis:
    """Compute causes of death and the last steps.

    Facts need no steps; `endings` has the replayed episodes, by session.

    Raises:
        UsageError: No episode is from an environment in which the player can die.
    """
    used = [one for one in completed(facts) if one.has_achievements or cause_of(one)]
    if not used:
        tasks = ", ".join(sorted({one.row.task for one in facts})[:3])
        raise UsageError(
            f"nobody can die in these episodes: their task is {tasks}; 'assay analyze actions'"
            " reads other environments too"
        )
    dead = [one for one in used if cause_of(one) is not None]
    played = [one for one in dead if one.id in endings]
    notes = []
    if len(played) < len(dead):
        notes.append(
            f"The last steps are from {len(played)} of {len(dead)} deaths: the others are from"
            " another program, or too many."
        )
    counts = Counter(cause_of(one) or "" for one in dead)
    return DeathsAnalysis(
        basis=basis_of(facts, *notes),
        models=tuple(_model(name, episodes) for name, episodes in by_group(used).items()),
        dying=tuple(
            _dying(cause, [endings[one.id] for one in played if cause_of(one) == cause])
            for cause, _ in counts.most_common()
        ),
        deaths=len(dead),
        endings=len(played),
    )


def _model(name: str, episodes: Sequence[EpisodeFacts]) -> ModelDeaths:
    causes = [cause_of(one) for one in episodes]
    counts = Counter(cause for cause in causes if cause is not None)
    died = [cause is not None for cause in causes]
    steps = [float(one.row.steps) for one in episodes]
    lived = [step for step, is_dead in zip(steps, died, strict=True) if is_dead]
    found = cumulative_incidence(steps, died, [not is_dead for is_dead in died])
    return ModelDeaths(
        group=name,
        n=len(episodes),
        died=mean_over(episodes, [float(is_dead) for is_dead in died], SHARE),
        causes={
            cause: mean_over(episodes, [float(one == cause) for one in causes], SHARE)
            for cause, _ in counts.most_common()
        },
        median_step=float(np.median(lived)) if lived else None,
        steps=tuple(found.times.tolist()),
        shares=tuple(found.shares.tolist()),
        last=max(steps),
    )


def _dying(cause: str, endings: Sequence[Ending]) -> Dying:
    if not endings:
        return Dying(cause, 0, (), math.nan, math.nan, {}, ())
    health = np.full((len(endings), LAST), np.nan)
    for line, ending in enumerate(endings):
        values = [moment.health for moment in ending.moments]
        health[line, LAST - len(values) :] = values
    some = ~np.isnan(health).all(axis=0)
    means = np.nanmean(health[:, some], axis=0)
    actions = Counter(
        moment.action for ending in endings for moment in ending.moments[-_DOING:]
    )
    finals = [ending.moments[-1] for ending in endings if ending.moments]
    return Dying(
        cause,
        len(endings),
        tuple(means.tolist()),
        _share(any(moment.asleep for moment in end.moments[-_DOING:]) for end in endings),
        _share(moment.night for moment in finals),
        {
            vital: _share(getattr(moment, vital) <= _LOW for moment in finals)
            for vital in ("food", "drink", "energy")
        },
        tuple((action, n / actions.total()) for action, n in actions.most_common(4)),
    )


def _share(marks: Iterable[bool]) -> float:
    values = list(marks)
    return sum(values) / len(values) if values else math.nan


_KILLED = {"zombie": "by a zombie", "arrow": "by an arrow", "lava": "in lava"}
"""Phrases for causes that do not take `of`, unlike hunger, thirst and fatigue."""


@analysis_document.register
def _document(found: DeathsAnalysis) -> Document:
    """Build the report: causes of death, survival, and the last steps."""
    last = ReportTable(
        "The last steps, by cause of death",
        [
            "Died of",
            "Deaths",
            "Asleep",
            "By night",
            "Health 10 steps before",
            "Low",
            "Did most",
        ],
        [
            [
                dying.cause,
                f"{dying.episodes}",
                percent(dying.asleep),
                percent(dying.night),
                f"{dying.health[-11]:.1f}" if len(dying.health) > 10 else "-",
                _most(dying.low.items()),
                _most(dying.actions),
            ]
            for dying in found.dying
            if dying.episodes
        ],
        "From episodes that were played again. Asleep and what was done: within the last ten"
        " steps, the most frequent. Health before: of 9, ten steps before death. Low: the vital"
        " that was most often at 3 or less of 9 at the end.",
    )
    return build(
        "deaths",
        f"Deaths in {counted(found.basis.episodes, 'episode')}",
        [_finding(found)],
        [
            Section(
                "What episodes died of",
                [_deaths_table(found), Figures(lambda: _drawings(found))],
            ),
            Section("The last steps", [last] if last.rows else []),
        ],
        found,
        [
            {
                "model": model.group,
                "cause": cause,
                **interval_columns("share", model.causes.get(cause)),
                "episodes": model.n,
            }
            for model in found.models
            for cause in _causes(found)
        ],
    )


def _most(shares: Iterable[tuple[str, float]]) -> str:
    name, share = max(shares, key=lambda one: one[1], default=("", 0.0))
    return f"{name} {percent(share)}" if share else "-"


def _causes(found: DeathsAnalysis) -> list[str]:
    return ordered_causes(cause for model in found.models for cause in model.causes)


def _finding(found: DeathsAnalysis) -> str:
    if not found.deaths:
        return "Nobody died: every episode was cut off or came to its end alive."
    first = found.dying[0]
    share = sum(
        model.causes[first.cause].point * model.n
        for model in found.models
        if first.cause in model.causes
    )
    text = (
        f"{found.deaths} of {found.basis.episodes} episodes ended in death, most often"
        f" {_KILLED.get(first.cause, f'of {first.cause}')} ({round(share)})"
    )
    if first.episodes and first.asleep >= 0.5:
        text += f"; {percent(first.asleep)} of these slept within the last ten steps"
    return f"{text}."


def _deaths_table(found: DeathsAnalysis) -> ReportTable:
    causes = _causes(found)
    return ReportTable(
        "Episodes that died, by cause",
        ["Model", "Died", *(cause.capitalize() for cause in causes), "Median step", "Episodes"],
        [
            [
                model.group,
                share_cell(model.died),
                *(
                    percent(model.causes[cause].point) if cause in model.causes else "0%"
                    for cause in causes
                ),
                "-" if model.median_step is None else f"{model.median_step:,.0f}",
                f"{model.n:,}",
            ]
            for model in found.models
        ],
        f"Shares of all episodes; median step: of the deaths. {INTERVALS}",
    )


def _drawings(found: DeathsAnalysis) -> "Iterator[Drawing]":
    """Yield the figures of causes, survival, and health before death."""
    from assay.report.figures.deaths import (
        DeathRow,
        HealthLine,
        draw_causes_of_death,
        draw_health_before_death,
        draw_survival,
    )

    rows = [
        DeathRow(
            model.group,
            model.n,
            model.died,
            {cause: share.point for cause, share in model.causes.items()},
            model.steps,
            model.shares,
            model.last,
        )
        for model in found.models
    ]
    if not found.deaths:
        return
    yield draw_causes_of_death(rows, _causes(found))
    yield draw_survival(rows)
    lines = [HealthLine(one.cause, one.episodes, one.health) for one in found.dying]
    if any(line.health for line in lines):
        yield draw_health_before_death(lines)
