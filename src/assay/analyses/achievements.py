"""How often and how soon each achievement is reached, and what was missing at the end."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from assay.analyses.episodes import (
    LEVEL,
    Basis,
    EpisodeFacts,
    basis_of,
    by_group,
    cause_of,
    completed,
    mean_over,
    world_of,
)
from assay.analyses.last_steps import Ending
from assay.crafter.rules import (
    ACHIEVEMENTS,
    COLLECT,
    EASIEST_FIRST,
    MAKE,
    PLACE,
    REFERENCES,
    Reference,
)
from assay.errors import UsageError
from assay.judge.describing import score_of
from assay.stats.intervals import Interval
from assay.stats.survival import cumulative_incidence, median_time

__all__ = [
    "AchievementsAnalysis",
    "ModelAchievements",
    "NextStep",
    "UnlockCurve",
    "UnlockShare",
    "analyse_achievements",
    "lacking",
]

_CHECKPOINTS: Final = 8


class UnlockShare(NamedTuple):
    """The share of episodes that had reached an achievement by a step."""

    step: int
    share: Interval


@dataclass(frozen=True, slots=True)
class UnlockCurve:
    """How the share of episodes that reached an achievement rises with the steps."""

    steps: tuple[float, ...]
    """Where it rises."""
    shares: tuple[float, ...]
    """From each of them on; death competes, limits censor (Aalen and Johansen)."""
    median: float | None
    """The step by which half of all episodes have it; None if that is never so."""
    checkpoints: tuple[UnlockShare, ...]
    """With intervals, up to the step at which the first episode was cut off."""


class NextStep(NamedTuple):
    """An achievement that episodes ended without."""

    achievement: str
    without: int
    """Episodes."""
    ready: int
    """Those among them that had all it takes by the rules, and only had to do it."""
    missing: str
    """What the others lacked most often; empty if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAchievements:
    """The achievements of one model."""

    group: str
    n: int
    worlds: int
    count: Interval
    """Different achievements of an episode."""
    score: Interval
    """The Crafter score, in percent: the geometric mean of success rates."""
    rates: Mapping[str, Interval]
    """The share of episodes that unlocked each."""
    curves: Mapping[str, UnlockCurve]
    """Of those that somebody reached."""
    next_steps: tuple[NextStep, ...]
    """What some did not reach, the easiest for people first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AchievementsAnalysis:
    """The achievements of all models."""

    basis: Basis
    models: tuple[ModelAchievements, ...]
    references: tuple[Reference, ...]
    endings: int
    """Episodes whose end was looked at for what was missing."""


def analyse_achievements(
    facts: Sequence[EpisodeFacts], endings: Mapping[str, Ending]
) -> AchievementsAnalysis:
    """Success rates, times to unlock, and what was missing.

    Args:
        facts: The episodes; no steps are needed.
        endings: How those ended that were played again, by session.

    Raises:
        UsageError: No episode is of a world with achievements.
    """
    used = [one for one in completed(facts) if one.has_achievements]
    if not used:
        tasks = ", ".join(sorted({one.row.task for one in facts})[:3])
        raise UsageError(
            f"these episodes have no achievements: their task is {tasks}, and no step of them"
            " unlocked one; 'assay compare' and 'assay analyze actions' read other tasks too"
        )
    notes = []
    limits = sorted({one.row.stop_reason for one in used if _is_cut_off(one)})
    if limits:
        notes.append(
            f"Some episodes were cut off ({', '.join(limits[:4])}): their rates are those"
            " within these limits. People and the random policy had none."
        )
    if not endings:
        notes.append(
            "None of these episodes can be played again, so that nobody knows what was missing."
        )
    elif len(endings) < len(used):
        notes.append(f"What was missing is from {len(endings)} of {len(used)} episodes.")
    return AchievementsAnalysis(
        basis=basis_of([one for one in facts if one.has_achievements], *notes),
        models=tuple(
            _model(name, episodes, endings) for name, episodes in by_group(used).items()
        ),
        references=REFERENCES,
        endings=len(endings),
    )


def _is_cut_off(facts: EpisodeFacts) -> bool:
    """Whether it could have gone on: nobody died."""
    return cause_of(facts) is None


def _model(
    name: str, episodes: Sequence[EpisodeFacts], endings: Mapping[str, Ending]
) -> ModelAchievements:
    unlocked = np.array(
        [[name in one.row.achievements for name in ACHIEVEMENTS] for one in episodes]
    )
    worlds = [world_of(one) for one in episodes]
    counts = [float(line.sum()) for line in unlocked]
    score = Interval(math.nan, math.nan, math.nan)
    if len(episodes) > 1:
        score = score_of(unlocked, worlds, LEVEL).interval
    rates = {
        achievement: mean_over(
            episodes, unlocked[:, place].astype(float).tolist(), f"unlocked/{achievement}"
        )
        for place, achievement in enumerate(ACHIEVEMENTS)
    }
    return ModelAchievements(
        group=name,
        n=len(episodes),
        worlds=len(set(worlds)),
        count=mean_over(episodes, counts, "achievements"),
        score=score,
        rates=rates,
        curves={
            achievement: _curve(episodes, achievement)
            for achievement, rate in rates.items()
            if rate.point
        },
        next_steps=_next_steps([one for one in episodes if one.id in endings], endings),
    )


def _curve(episodes: Sequence[EpisodeFacts], achievement: str) -> UnlockCurve:
    steps = [one.row.achievements.get(achievement) for one in episodes]
    times = [
        float(one.row.steps if step is None else step)
        for one, step in zip(episodes, steps, strict=True)
    ]
    reached = [step is not None for step in steps]
    censored = [
        step is None and _is_cut_off(one) for one, step in zip(episodes, steps, strict=True)
    ]
    found = cumulative_incidence(times, reached, censored)
    median = median_time(times, reached, censored)
    cut = [time for time, open_ in zip(times, censored, strict=True) if open_]
    last = min(cut, default=max(times))
    marks = sorted({round(last * part / _CHECKPOINTS) for part in range(1, _CHECKPOINTS + 1)})
    return UnlockCurve(
        tuple(found.times.tolist()),
        tuple(found.shares.tolist()),
        None if math.isnan(median) else median,
        tuple(
            UnlockShare(
                mark,
                mean_over(
                    episodes,
                    [float(step is not None and step <= mark) for step in steps],
                    f"unlocked/{achievement}",
                ),
            )
            for mark in marks
            if mark
        ),
    )


def _next_steps(
    episodes: Sequence[EpisodeFacts], endings: Mapping[str, Ending]
) -> tuple[NextStep, ...]:
    found = []
    for name in EASIEST_FIRST:
        missing = Counter(
            " and ".join(lacking(name, endings[one.id].inventory, one.row.achievements))
            for one in episodes
            if name not in one.row.achievements
        )
        ready = missing.pop("", 0)
        most = missing.most_common(1)[0][0] if missing else ""
        if ready or missing:
            found.append(NextStep(name, ready + missing.total(), ready, most))
    return tuple(found)


def lacking(
    achievement: str, inventory: Mapping[str, int], unlocked: Mapping[str, int]
) -> list[str]:
    """What a player lacks for an achievement, by the rules; what only has to be found is none.

    Args:
        achievement: One of the 22.
        inventory: What the player has.
        unlocked: What it reached before, which says whether it ever placed a table.
    """
    verb, _, thing = achievement.partition("_")
    needs: list[str] = []
    if verb == "collect":
        tool = next(rule.tool for rule in COLLECT.values() if rule.item == thing)
        needs += [tool.replace("_", " ")] if tool and not inventory.get(tool) else []
    elif verb == "place":
        needs += _items(PLACE[thing].uses, inventory)
    elif verb == "make":
        needs += _items(MAKE[thing].uses, inventory)
        needs += [near for near in MAKE[thing].nearby if f"place_{near}" not in unlocked]
    elif achievement == "eat_plant" and "place_plant" not in unlocked:
        needs.append("a plant of its own")
    return needs


def _items(uses: Mapping[str, int], inventory: Mapping[str, int]) -> list[str]:
    return [
        f"{count - inventory.get(item, 0)} {item}"
        for item, count in uses.items()
        if inventory.get(item, 0) < count
    ]
