"""The order of the models of a run, and what it is worth.

Models are compared pair by pair on the worlds that both played, adjusted for the number of
pairs: a model stands below another only if it is shown to be worse, and those that cannot be
told apart share a place. Pure: rows in, rankings out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.report.comparison.describing import describe
from assay.report.comparison.facts import Contrast, Setup, SubjectFacts, Verdict
from assay.report.comparison.numbers import bounds, change, p_text
from assay.report.comparison.standings import standings
from assay.report.comparison.words import sample_words
from assay.stats.intervals import Interval
from assay.stats.many import Correction
from assay.stats.means import Method
from assay.traces.subjects import Subject, TrialOutcome
from assay.types import TrialState

if TYPE_CHECKING:
    from assay.traces.queries import EpisodeRow

__all__ = ["RANKED", "Place", "Ranking", "rank_models", "ranking_json"]

RANKED = {
    "reward": "By average reward",
    "invalid_rate": "By invalid action rate (lower is better)",
}
"""What models are ranked by, and what the ranking is called."""
_MOST_SENTENCES = 6
"""With more pairs of models than that, only those with the best mean are in words."""


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

    @property
    def sentences(self) -> list[str]:
        """Who is better than whom, in words that hold untrusted names."""
        few, best = len(self.contrasts) <= _MOST_SENTENCES, self.places[0].model
        return [
            _sentence(one)
            for one in self.contrasts
            if few or best in (one.baseline, one.candidate)
        ]


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


def ranking_json(rankings: Sequence[Ranking]) -> list[dict[str, object]]:
    """The rankings for a program to read."""
    return [
        {
            "metric": one.metric,
            "places": [
                {"model": place.model, "place": place.place, "shared": place.shared}
                for place in one.places
            ],
            "pairs": [_pair_json(contrast) for contrast in one.contrasts],
        }
        for one in rankings
    ]


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


def _sentence(contrast: Contrast) -> str:
    """One pair of models in words, the better one first."""
    first, other, gap = contrast.candidate, contrast.baseline, contrast.difference
    if contrast.verdict is Verdict.UNDECIDED:
        if contrast.tests is None:
            return f"{first} and {other}: nobody can say, {sample_words(contrast)}."
        return (
            f"{first} and {other} cannot be told apart: {_gap(contrast, gap)},"
            f" {sample_words(contrast)}."
        )
    if contrast.verdict is Verdict.WORSE:
        first, other, gap = other, first, Interval(-gap.point, -gap.high, -gap.low)
    assert contrast.tests is not None
    return (
        f"{first} is better than {other}: {_gap(contrast, gap)}, {sample_words(contrast)},"
        f" {p_text(contrast.tests.p_adjusted)}."
    )


def _gap(contrast: Contrast, gap: Interval) -> str:
    return f"{change(contrast.metric, gap.point)} ({bounds(contrast.metric, gap)})"


def _pair_json(contrast: Contrast) -> dict[str, object]:
    gap = contrast.difference
    return {
        "model": contrast.candidate,
        "against": contrast.baseline,
        "verdict": contrast.verdict,
        "difference": gap.point,
        "low": gap.low if gap.known else None,
        "high": gap.high if gap.known else None,
        "n": contrast.n_candidate,
        "paired": contrast.paired,
        "p_adjusted": None if contrast.tests is None else contrast.tests.p_adjusted,
    }
