"""What episodes died of, how long they lived, and what the player did last."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from assay.analyses.episodes import (
    SHARE,
    Basis,
    EpisodeFacts,
    basis_of,
    by_group,
    cause_of,
    completed,
    mean_over,
)
from assay.analyses.last_steps import LAST, Ending
from assay.errors import UsageError
from assay.stats.intervals import Interval
from assay.stats.survival import cumulative_incidence

__all__ = ["DeathsAnalysis", "Dying", "ModelDeaths", "analyse_deaths"]

_DOING: Final = 10
"""The last steps that say what the player was doing."""
_LOW: Final = 3
"""A vital at or below this is low."""


class Dying(NamedTuple):
    """The last steps of all episodes that died of one cause."""

    cause: str
    episodes: int
    """That were played again."""
    health: tuple[float, ...]
    """The mean of each of the last steps, the last one last; shorter if none lived longer."""
    asleep: float
    """The share that slept within the last steps."""
    night: float
    """The share that died by night."""
    low: Mapping[str, float]
    """The share whose food, drink or energy was low, by vital."""
    actions: tuple[tuple[str, float], ...]
    """What was done in the last ten steps, the most frequent first, as shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeaths:
    """The deaths of one model."""

    group: str
    n: int
    died: Interval
    """The share of episodes."""
    causes: Mapping[str, Interval]
    """The share of episodes that died of each, the most frequent first."""
    median_step: float | None
    """Of the deaths."""
    steps: tuple[float, ...]
    """Where the share of the dead rises."""
    shares: tuple[float, ...]
    """From each of them on; who was cut off is counted up to then."""
    last: float
    """The longest episode, in steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathsAnalysis:
    """The deaths of all models."""

    basis: Basis
    models: tuple[ModelDeaths, ...]
    dying: tuple[Dying, ...]
    """By cause, the most frequent first."""
    deaths: int
    endings: int
    """Deaths that were played again."""


def analyse_deaths(
    facts: Sequence[EpisodeFacts], endings: Mapping[str, Ending]
) -> DeathsAnalysis:
    """What episodes died of, and their last steps.

    Args:
        facts: The episodes; no steps are needed.
        endings: How those ended that were played again, by session.

    Raises:
        UsageError: No episode is of a world in which one can die.
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
