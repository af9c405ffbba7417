"""Everybody against everybody: the order of subjects, and what it is worth.

Subjects are compared pair by pair on the worlds that both played, adjusted for the number of
pairs: one stands below another only if it is shown to be worse, and those that cannot be told
apart share a place. Pure: rows in, rankings out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from assay.judge.contrasts import contrast, decided
from assay.judge.describing import describe
from assay.judge.facts import Contrast, Setup, Standing, Standings, SubjectFacts
from assay.judge.matching import world_means
from assay.judge.subjects import Subject, TrialOutcome
from assay.stats.intervals import Interval
from assay.stats.ranking import indistinguishable_groups, ranks
from assay.stats.selection import shrunken_means
from assay.types import TrialState, Verdict

if TYPE_CHECKING:
    from assay.traces.queries import EpisodeRow

__all__ = ["RANKED", "RankedModel", "Ranking", "group_letters", "rank_models", "standings"]

RANKED = {
    "reward": "By average reward",
    "invalid_rate": "By invalid action rate (lower is better)",
}
"""What models are ranked by, and what the ranking is called."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedModel:
    """One model in a ranking."""

    model: str
    """Untrusted text."""
    place: int
    """1 and the number of models that are shown to be better."""
    shared: bool
    """Whether another model has the same place."""
    mean: Interval
    baseline: bool = False
    """Whether it played only to compare with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The models of a run by one metric."""

    metric: str
    places: tuple[RankedModel, ...]
    """The best mean first."""
    contrasts: tuple[Contrast, ...]
    """Every pair of models; subjects have the names of models as their ids."""


def rank_models(rows: Iterable["EpisodeRow"], *, level: float = 0.95) -> tuple[Ranking, ...]:
    """Rank the models of a run by each metric in `RANKED`.

    Models that played only to compare with are left out, unless one model alone is left.
    """
    subjects = _subjects(rows)
    ranked = [subject for subject in subjects if not subject.baseline]
    if len(ranked) < 2:
        ranked = subjects
    if not ranked:
        return ()
    return tuple(_ranking(ranked, metric, level) for metric in RANKED)


def standings(
    subjects: Sequence[SubjectFacts], setup: Setup, *, fewest: int = 3
) -> Standings | None:
    """All pairs in the metric that decides, adjusted together; None for fewer subjects.

    The baseline is the first of every pair it is in.
    """
    if len(subjects) < fewest:
        return None
    first = sorted(subjects, key=lambda facts: facts.id != setup.baseline)
    pairs = decided(
        [
            contrast(one.subject, other.subject, setup.primary, setup)
            for one, other in combinations(first, 2)
        ],
        setup,
    )
    return Standings(pairs=pairs, order=_order(subjects, pairs, setup))


def group_letters(order: Sequence[str], apart: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """The letters of each name; those that share one cannot be told apart."""
    groups = indistinguishable_groups(order, apart)
    # After z come a2, b2 and so on.
    letters = [
        _LETTERS[at % len(_LETTERS)]
        + (str(at // len(_LETTERS) + 1) if at >= len(_LETTERS) else "")
        for at in range(len(groups))
    ]
    return {
        name: "".join(
            letter for letter, group in zip(letters, groups, strict=True) if name in group
        )
        for name in order
    }


def _subjects(rows: Iterable["EpisodeRow"]) -> list[Subject]:
    """One subject per model that has results; its id is its name."""
    trials: dict[str, list[TrialOutcome]] = {}
    baselines: set[str] = set()
    for row in rows:
        if row.baseline:
            baselines.add(row.model)
        if row.state is not TrialState.RESULT:
            continue
        trials.setdefault(row.model, []).append(
            TrialOutcome(
                trial_id=row.session_id,
                pair=None if row.seed is None else f"{row.difficulty} {row.seed}",
                task=row.difficulty,
                seed=row.seed,
                values={"reward": row.reward, "invalid_rate": row.invalid_rate},
            )
        )
    return [
        Subject(id=model, name=model, baseline=model in baselines, trials=tuple(own))
        for model, own in trials.items()
    ]


def _ranking(subjects: Sequence[Subject], metric: str, level: float) -> Ranking:
    setup = Setup(metrics=(metric,), baseline=subjects[0].id, level=level)
    facts = [describe(subject, [metric], level, judged=True) for subject in subjects]
    found = standings(facts, setup, fewest=1)
    assert found is not None
    means = {subject.id: subject.metrics[metric].mean for subject in facts}
    beside = {subject.id for subject in subjects if subject.baseline}
    return Ranking(
        metric=metric,
        places=tuple(
            RankedModel(
                model=standing.subject,
                place=standing.rank,
                shared=standing.shared,
                mean=means[standing.subject],
                baseline=standing.subject in beside,
            )
            for standing in found.order
        ),
        contrasts=found.pairs,
    )


def _order(
    subjects: Sequence[SubjectFacts], pairs: Sequence[Contrast], setup: Setup
) -> tuple[Standing, ...]:
    lower = setup.primary in setup.lower_is_better
    means = {facts.id: facts.metrics[setup.primary].mean.point for facts in subjects}
    clear = (Verdict.BETTER, Verdict.WORSE)
    apart = [(pair.baseline, pair.candidate) for pair in pairs if pair.verdict in clear]
    places = ranks(means, higher_is_better=not lower, significant=apart)
    order = sorted(means, key=lambda name: means[name] if lower else -means[name])
    letters = group_letters(order, apart)
    shared = list(places.values())
    shrunken = _shrunken(subjects, setup.primary)
    return tuple(
        Standing(
            name, places[name], shared.count(places[name]) > 1, letters[name], shrunken[name]
        )
        for name in order
    )


def _shrunken(subjects: Sequence[SubjectFacts], metric: str) -> dict[str, float]:
    """The means without the luck that the best of several was chosen with."""
    worlds = {facts.id: world_means(facts.subject.trials, metric) for facts in subjects}
    if len(worlds) < 2 or min(map(len, worlds.values())) < 2:
        return {facts.id: facts.metrics[metric].mean.point for facts in subjects}
    names = list(next(iter(worlds.values())))
    paired = all(own.keys() == set(names) for own in worlds.values())
    samples = [
        [own[name] for name in names] if paired else list(own.values())
        for own in worlds.values()
    ]
    return dict(zip(worlds, shrunken_means(samples, paired=paired).tolist(), strict=True))
