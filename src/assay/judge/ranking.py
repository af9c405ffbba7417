"""The order of the models of a run, and what it is worth.

Models are compared pair by pair on the worlds that both played, adjusted for the number of
pairs: a model stands below another only if it is shown to be worse, and those that cannot be
told apart share a place. Pure: rows in, rankings out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.experiments.subjects import Subject, TrialOutcome
from assay.judge.describing import describe
from assay.judge.facts import Contrast, Setup, SubjectFacts
from assay.judge.standings import standings
from assay.stats.intervals import Interval
from assay.stats.many import Correction
from assay.stats.means import Method
from assay.types import TrialState

if TYPE_CHECKING:
    from assay.traces.queries import EpisodeRow

__all__ = ["RANKED", "Place", "Ranking", "rank_models"]

RANKED = {
    "reward": "By average reward",
    "invalid_rate": "By invalid action rate (lower is better)",
}
"""What models are ranked by, and what the ranking is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One model in a ranking."""

    model: str
    """Untrusted text."""
    place: int
    """1 and the number of models that are shown to be better."""
    shared: bool
    """Whether another model has the same place."""
    mean: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The models of a run by one metric."""

    metric: str
    places: tuple[Place, ...]
    """The best mean first."""
    contrasts: tuple[Contrast, ...]
    """Every pair of models; subjects have the names of models as their ids."""


def rank_models(rows: Iterable["EpisodeRow"], *, level: float = 0.95) -> tuple[Ranking, ...]:
    """Rank the models of a run by each metric in `RANKED`.

    Models that played only to compare with are left out, unless fewer than two others are
    there. One model gives no ranking.
    """
    played = _subjects(rows)
    ranked = [one for one in played if not one.baseline]
    if len(ranked) < 2:
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
                seed=row.seed,
                values={"reward": row.reward, "invalid_rate": row.invalid_rate},
            )
        )
    return [
        Subject(id=model, name=model, baseline=model in baselines, trials=tuple(own))
        for model, own in trials.items()
    ]


def _ranking(subjects: Sequence[Subject], metric: str, level: float) -> Ranking:
    setup = Setup(
        metrics=(metric,),
        baseline=subjects[0].id,
        level=level,
        min_effect=None,
        success_achievements=0,
        seed=0,
        method=Method.AUTO,
        correction=Correction.HOLM,
    )
    facts = [describe(one, [metric], level, judged=True) for one in subjects]
    found = standings(facts, setup, fewest=2)
    assert found is not None
    return Ranking(
        metric=metric,
        places=tuple(
            Place(
                model=one.subject,
                place=one.rank,
                shared=one.shared,
                mean=_mean(facts, one.subject, metric),
            )
            for one in found.order
        ),
        contrasts=found.pairs,
    )


def _mean(facts: Sequence[SubjectFacts], model: str, metric: str) -> Interval:
    return next(one.metrics[metric].mean for one in facts if one.id == model)
