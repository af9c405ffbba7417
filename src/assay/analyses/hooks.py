"""How often hooks fire: by model, by turn, together, and on what."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from assay.analyses.episodes import (
    AMOUNT,
    COUNT,
    SHARE,
    Basis,
    EpisodeFacts,
    basis_of,
    by_group,
    cause_of,
    completed,
    mean_over,
)
from assay.errors import UsageError
from assay.stats.intervals import Interval
from assay.stats.survival import median_time
from assay.traces.steps import HookFiring

__all__ = [
    "HookOfModel",
    "HookSummary",
    "HooksAnalysis",
    "Together",
    "TurnRate",
    "analyse_hooks",
]

_BINS: Final = 10
_ACTIONS: Final = 4


class TurnRate(NamedTuple):
    """How often a hook fires in some turns."""

    first: int
    """The first turn of them, counted from 1."""
    last: int
    rate: Interval
    """Firings in a turn, over episodes that came to these turns."""
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOfModel:
    """One hook in the episodes of one model."""

    group: str
    n: int
    fired: Interval
    """The share of episodes in which it fired."""
    per_episode: Interval
    """Firings."""
    turns_per_firing: float | None
    """Turns, that is decisions and their tool calls, over firings; None if there is none."""
    first_step: float | None
    """The step by which half of all episodes have had it; None if that is never so."""
    typical_step: float | None
    """The median step of all firings."""
    by_turn: tuple[TurnRate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSummary:
    """One hook."""

    name: str
    firings: int
    models: tuple[HookOfModel, ...]
    actions: tuple[tuple[str, float], ...]
    """The actions it fired on, the most frequent first, as shares; without those of turns."""


class Together(NamedTuple):
    """How often one hook fires in the episodes in which another one does."""

    given: str
    other: str
    share: float
    """Of the episodes with `given`, those with `other`."""
    episodes: int
    """With `given`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksAnalysis:
    """All hooks."""

    basis: Basis
    hooks: tuple[HookSummary, ...]
    """The most frequent first."""
    together: tuple[Together, ...]
    actions: Mapping[str, float]
    """The share of all steps of each action, whatever fired."""


def analyse_hooks(facts: Sequence[EpisodeFacts]) -> HooksAnalysis:
    """How often each hook fires.

    Args:
        facts: The episodes, with hooks and steps.

    Raises:
        UsageError: No hook fired at all.
    """
    used = completed(facts)
    counts = Counter(firing.name for one in used for firing in one.hooks)
    if not counts:
        raise UsageError(
            f"no hook fired in these {len(used)} episodes: hooks watch episodes that assay"
            " played in Crafter, or hooks of your own ('assay run --hooks FILE');"
            " 'assay analyze actions' reads imported logs too"
        )
    names = [name for name, _ in counts.most_common()]
    longest = max(one.row.turns for one in used)
    edges = _edges(longest)
    played = Counter(action for one in used for action in one.steps.actions)
    return HooksAnalysis(
        basis=basis_of(facts),
        hooks=tuple(
            HookSummary(
                name=name,
                firings=counts[name],
                models=tuple(
                    _of_model(name, group, episodes, edges)
                    for group, episodes in by_group(used).items()
                ),
                actions=_actions(name, used),
            )
            for name in names
        ),
        together=_together(names, used),
        actions={action: n / played.total() for action, n in played.most_common()},
    )


def _edges(longest: int) -> list[tuple[int, int]]:
    """Up to ten stretches of turns of about the same length, first and last of each."""
    ends = sorted({round(longest * part / _BINS) for part in range(1, _BINS + 1)} - {0})
    return list(zip([1, *(end + 1 for end in ends[:-1])], ends, strict=True))


def _of_model(
    name: str,
    group: str,
    episodes: Sequence[EpisodeFacts],
    edges: Sequence[tuple[int, int]],
) -> HookOfModel:
    firings = [[one for one in facts.hooks if one.name == name] for facts in episodes]
    steps = [[one.step for one in mine if one.step is not None] for mine in firings]
    every = [step for mine in steps for step in mine]
    reached = [bool(mine) for mine in steps]
    times = [
        float(min(mine) if mine else max(facts.row.steps, 1))
        for facts, mine in zip(episodes, steps, strict=True)
    ]
    censored = [
        not mine and cause_of(facts) is None
        for facts, mine in zip(episodes, steps, strict=True)
    ]
    first = median_time(times, reached, censored) if any(reached) else math.nan
    total = sum(map(len, firings))
    return HookOfModel(
        group=group,
        n=len(episodes),
        fired=mean_over(episodes, [float(bool(mine)) for mine in firings], SHARE),
        per_episode=mean_over(episodes, [float(len(mine)) for mine in firings], COUNT),
        turns_per_firing=sum(one.row.turns for one in episodes) / total if total else None,
        first_step=None if math.isnan(first) else first,
        typical_step=float(np.median(every)) if every else None,
        by_turn=tuple(_by_turn(episodes, firings, edges)),
    )


def _by_turn(
    episodes: Sequence[EpisodeFacts],
    firings: Sequence[Sequence[HookFiring]],
    edges: Sequence[tuple[int, int]],
) -> list[TurnRate]:
    turns = [[one.turn for one in mine] for mine in firings]
    rates = []
    for first, last in edges:
        there = [place for place, one in enumerate(episodes) if one.row.turns >= first]
        if there:
            values = [
                sum(first <= turn <= last for turn in turns[place])
                / (min(last, episodes[place].row.turns) - first + 1)
                for place in there
            ]
            rate = mean_over([episodes[place] for place in there], values, AMOUNT)
            rates.append(TurnRate(first, last, rate, len(there)))
    return rates


def _actions(name: str, used: Sequence[EpisodeFacts]) -> tuple[tuple[str, float], ...]:
    actions = Counter(
        one.steps.actions[firing.step - 1]
        for one in used
        for firing in one.hooks
        if firing.name == name
        and firing.step is not None
        and 0 < firing.step <= len(one.steps.actions)
    )
    return tuple((action, n / actions.total()) for action, n in actions.most_common(_ACTIONS))


def _together(names: Sequence[str], used: Sequence[EpisodeFacts]) -> tuple[Together, ...]:
    fired = [{firing.name for firing in one.hooks} for one in used]
    pairs = []
    for given in names:
        having = [mine for mine in fired if given in mine]
        pairs += [
            Together(
                given, other, sum(other in mine for mine in having) / len(having), len(having)
            )
            for other in names
            if other != given
        ]
    return tuple(pairs)
