"""The models of a run, ranked by reward and by invalid actions. Pure: rows in, rankings out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.judge.describing import describe
from assay.judge.facts import Contrast, Setup
from assay.judge.ranking import standings
from assay.judge.subjects import Subject, TrialOutcome
from assay.stats.intervals import Interval
from assay.types import TrialState

if TYPE_CHECKING:
    from assay.traces.queries import EpisodeRow

__all__ = ["RANKED", "RankedModel", "Ranking", "rank_models"]

RANKED = {
    "reward": "By average reward",
    "invalid_rate": "By invalid action rate (lower is better)",
}
"""What models are ranked by, and what the ranking is called."""


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
