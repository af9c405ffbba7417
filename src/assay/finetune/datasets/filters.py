"""Filters that choose episodes for training data; each filter is a counted step of a funnel.

An episode does not pass a filter if the value it tests is missing; such episodes are also
counted separately. This module uses neither SQL nor messages.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil
from typing import Final, NamedTuple

from assay.finetune.datasets.options import EpisodeFilters
from assay.store.session_facts import SessionFacts
from assay.types import StopReason, TrialState

TERMINATED: Final = frozenset(
    {StopReason.DIED, StopReason.LENGTH, StopReason.TERMINATE, StopReason.DONE}
)
"""Stop reasons of episodes that ended by themselves, not by a limit of the run."""


class ChosenEpisode(NamedTuple):
    """An episode that passed all filters."""

    session_id: str
    turns: int
    """Answered model calls."""
    tokens: int
    task: str
    seed: int | None
    experiment_id: str
    model: str
    score: tuple[float, float]
    """Achievements, then reward: ranks the episodes of a world."""


@dataclass(slots=True)
class Tally:
    """Counts of episodes, turns and tokens."""

    episodes: int = 0
    turns: int = 0
    tokens: int = 0

    def add(self, turns: int, tokens: int, episodes: int = 1) -> None:
        """Count an episode, or a part of one."""
        self.episodes += episodes
        self.turns += turns
        self.tokens += tokens


@dataclass(slots=True)
class FunnelStep:
    """One filter, and the episodes it removed."""

    name: str
    removed: Tally = field(default_factory=Tally)
    missing: int = 0
    """Removed episodes for which the value that the filter tests is missing."""


_EpisodeTest = Callable[[SessionFacts], bool | None]


def list_episode_tests(
    filters: EpisodeFilters, quality: Mapping[str, float] | None = None
) -> Iterator[tuple[str, _EpisodeTest]]:
    """Yield the filters of single episodes in order, each with its name.

    A test returns None if the value it needs is missing. `quality` has a score by session.
    """
    yield "completed", lambda facts: facts.state == TrialState.RESULT
    yield "asked a model", lambda facts: facts.calls > 0
    if filters.models:
        yield "--models", lambda facts: facts.model in filters.models
    else:
        yield "not a baseline", lambda facts: not facts.baseline
    if filters.experiments:
        yield "--experiment", lambda facts: facts.experiment_id in filters.experiments
    if filters.seeds:
        yield "--seeds", lambda facts: facts.seed in filters.seeds
    if filters.difficulties:
        yield "--difficulty", lambda facts: facts.difficulty in filters.difficulties
    yield from _list_threshold_tests(filters)
    if filters.require_termination:
        yield (
            "--require-termination",
            lambda facts: facts.stop_reason.partition(":")[0] in TERMINATED,
        )
    if filters.require_achievements:
        required = frozenset(filters.require_achievements)
        yield "--require-achievement", lambda facts: required <= facts.achievements
    if filters.hooks:
        required_hooks = frozenset(filters.hooks)
        yield "--hook", lambda facts: required_hooks <= facts.hooks
    if filters.labels:
        required_labels = frozenset(filters.labels)
        yield "--label", lambda facts: required_labels <= facts.labels
    if filters.min_quality is not None:
        scores, minimum = quality or {}, filters.min_quality
        yield "--min-quality", lambda facts: _is_at_least(scores.get(facts.session_id), minimum)
    if filters.sql is not None:
        yield "--sql", lambda facts: facts.own


def _list_threshold_tests(filters: EpisodeFilters) -> Iterator[tuple[str, _EpisodeTest]]:
    if (achievements := filters.min_achievements) is not None:
        yield (
            "--min-achievements",
            lambda facts: _is_at_least(facts.num_achievements, achievements),
        )
    if (reward := filters.min_reward) is not None:
        yield "--min-reward", lambda facts: _is_at_least(facts.reward, reward)
    if (turns := filters.max_turns) is not None:
        yield "--max-turns", lambda facts: _is_at_most(facts.turns, turns)
    if (rate := filters.max_invalid_rate) is not None:
        yield "--max-invalid-rate", lambda facts: _is_at_most(facts.invalid_rate, rate)
    if (cost := filters.max_cost) is not None:
        yield "--max-cost", lambda facts: _is_at_most(facts.cost_usd, cost)


def _is_at_least(value: float | None, least: float) -> bool | None:
    return None if value is None else value >= least


def _is_at_most(value: float | None, most: float) -> bool | None:
    return None if value is None else value <= most


def choose_episodes(
    sessions: Iterable[SessionFacts],
    filters: EpisodeFilters,
    quality: Mapping[str, float] | None = None,
) -> tuple[Tally, list[FunnelStep], list[ChosenEpisode]]:
    """Filter episodes; return the counts before, each step, and the episodes left, in order."""
    tests = [(FunnelStep(name), test) for name, test in list_episode_tests(filters, quality)]
    found, chosen = Tally(), []
    names: dict[str, str] = {}
    for facts in sessions:
        found.add(facts.calls, facts.tokens)
        for step, test in tests:
            passed = test(facts)
            if not passed:
                step.removed.add(facts.calls, facts.tokens)
                step.missing += passed is None
                break
        else:
            # Few distinct names occur in very many episodes.
            task = names.setdefault(facts.task, facts.task)
            experiment = names.setdefault(facts.experiment_id, facts.experiment_id)
            score = (float(facts.num_achievements or 0), facts.reward or 0.0)
            chosen.append(
                ChosenEpisode(
                    facts.session_id,
                    facts.calls,
                    facts.tokens,
                    task,
                    facts.seed,
                    experiment,
                    names.setdefault(facts.model, facts.model),
                    score,
                )
            )
    steps = [step for step, _ in tests]
    if filters.top is not None:
        share = filters.top
        chosen = _keep_best(
            chosen, lambda n: ceil(share * n - 1e-9), steps, f"--top {share:.6g}"
        )
    if filters.max_per_world is not None:
        limit = filters.max_per_world
        chosen = _keep_best(chosen, lambda n: limit, steps, "--max-per-world")
    return found, steps, chosen


def _keep_best(
    episodes: Sequence[ChosenEpisode],
    count_kept: Callable[[int], int],
    steps: list[FunnelStep],
    name: str,
) -> list[ChosenEpisode]:
    """Keep the best episodes of each world, in their original order."""
    worlds: dict[tuple[str, int | None], list[ChosenEpisode]] = {}
    for episode in episodes:
        worlds.setdefault((episode.task, episode.seed), []).append(episode)
    kept_ids: set[str] = set()
    for world_episodes in worlds.values():
        ranked = sorted(
            world_episodes, key=lambda e: (*(-part for part in e.score), _hash_session(e))
        )
        kept_ids.update(e.session_id for e in ranked[: count_kept(len(world_episodes))])
    step = FunnelStep(name)
    steps.append(step)
    best = []
    for episode in episodes:
        if episode.session_id in kept_ids:
            best.append(episode)
        else:
            step.removed.add(episode.turns, episode.tokens)
    return best


def _hash_session(episode: ChosenEpisode) -> bytes:
    """Return a reproducible tie-breaker that is independent of model and run."""
    return blake2b(episode.session_id.encode(), digest_size=8).digest()
