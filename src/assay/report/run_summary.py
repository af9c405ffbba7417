"""What the episodes of each model came to, in numbers.

Means and totals are over episodes that completed: a failure or an infrastructure
error is counted and named, never scored. What was spent is over all episodes, because it was
spent. Pure: rows in, summaries out; nothing is read or drawn here.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.crafter.rules import ACHIEVEMENTS
from assay.judge.describe import describe, score_of
from assay.judge.matching import mean_of
from assay.judge.options import SUCCESS_ACHIEVEMENTS
from assay.judge.ranking import standings
from assay.judge.results import Contrast, Setup
from assay.judge.subjects import Subject, TrialOutcome
from assay.report.files import interval_columns
from assay.stats.intervals import Interval
from assay.stats.shares import exact_share
from assay.types import TrialState

if TYPE_CHECKING:
    from assay.store.queries import EpisodeRow

_EARLY, _MID = 25, 50
"""The last environment step that counts as early, and as mid."""
_OF_CRAFTER = (
    *("difficulty", "success", "achievements", "score", "score_interval", "no_effect"),
    *("asleep", "unlocked", "unique", "early", "mid", "late"),
)
"""What means nothing in other worlds."""
_HUMAN_DIFFICULTY = "classic"
"""The difficulty under which the people played; beside any other their row means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """What was published about somebody who played whole episodes of the reference game."""

    name: str
    episodes: int
    achievements: float
    """Mean of different achievements per episode."""
    achievements_sd: float
    steps: float
    score: float
    note: str
    """What the numbers are and are not."""


HUMAN = Anchor(
    name="human, full episodes",
    episodes=100,
    achievements=13.90,
    achievements_sd=3.38,
    steps=619,
    score=50.5,
    note=(
        "human: 5 people, 20 full episodes each (n = 100), with no limit on turns; SD is the"
        " standard deviation over episodes, the score is the mean of the five people's. From"
        " the data published with Crafter (Hafner 2021)."
    ),
)
"""Recomputed from `scores/crafter_reward-human.json` of the Crafter repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """Episodes of one model that went wrong in the same way."""

    state: TrialState
    """A failure or an infrastructure error."""
    kind: str
    """The type of the error, or the reason the episode stopped for."""
    count: int
    message: str
    """What the first of them said; untrusted text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """One model's episodes. Means are missing where no episode completed."""

    model: str
    """Untrusted text, like all names."""
    experiments: tuple[tuple[str, str], ...]
    """Id and name of each experiment the rows came from."""
    baseline: bool
    """A row to compare with, out of the rankings."""
    difficulty: str | None
    started: int
    results: int
    failures: int
    infrastructure: int
    completed: Interval | None
    """Results over episodes started, with the exact interval."""
    success: Interval | None
    """The share of results with 3 achievements or more; None in other worlds."""
    reward: Interval | None
    achievements: Interval | None
    """Different ones per episode."""
    steps: Interval | None
    """Environment steps per episode."""
    turns: Interval | None
    """Model calls per episode."""
    duration_s: Interval | None
    tokens: Interval | None
    cost_usd: Interval | None
    """Dollars per episode; missing too where a price is not known."""
    invalid_rate: Interval | None
    """The mean over episodes of (unknown + without effect) / actions asked for."""
    score: float | None
    """The Crafter score over `results` episodes; None in other worlds."""
    score_interval: Interval | None
    """Of the mean score at this number of episodes; None where there is no score."""
    actions: int
    """Actions asked for, unknown ones included."""
    malformed: int
    """Replies that could not be read."""
    unknown: int
    no_effect: int
    asleep: int
    """Actions ignored because the player slept."""
    unlocked: int
    """Achievements unlocked, summed over episodes."""
    unique: int
    """Different achievements unlocked in any episode."""
    early: int
    """Of `unlocked`, those within environment steps 0-25."""
    mid: int
    """Those within 26-50."""
    late: int
    """Those from 51 on."""
    tokens_spent: int
    """Over all episodes, however they ended."""
    cost_spent: float | None
    """Over all episodes; missing where a price is not known."""
    troubles: tuple[ErrorGroup, ...]
    endings: Mapping[str, int] = field(default_factory=dict)
    """What results ended by, such as `died: zombie`, the most frequent first."""

    @property
    def invalid(self) -> int:
        """Actions that were unknown or had no effect."""
        return self.unknown + self.no_effect

    @property
    def unended(self) -> int:
        """Episodes that started and have no ending: the run was interrupted."""
        return self.started - self.results - self.failures - self.infrastructure


def summarize(
    rows: Sequence["EpisodeRow"],
    started: Mapping[str, int],
) -> list[ModelSummary]:
    """Sum up episodes by model, in the order of `started`, then of first appearance.

    Args:
        rows: All episodes that ended, in any state.
        started: How many episodes each model started; for a model that is missing here, or
            has more rows than that, the rows are what started.
    """
    by_model: dict[str, list[EpisodeRow]] = {model: [] for model in started}
    for row in rows:
        by_model.setdefault(row.model, []).append(row)
    return [
        _summary(
            model,
            own,
            max(started.get(model, 0), len(own)),
            baseline=any(row.baseline for row in own),
        )
        for model, own in by_model.items()
    ]


def summaries_json(summaries: Sequence[ModelSummary]) -> dict[str, Any]:
    """The summaries for a program to read; what is not known is null."""
    left_out = _OF_CRAFTER if is_elsewhere(summaries) else ()
    models = [
        {
            **{
                name: _plain(value)
                for name, value in asdict(summary).items()
                if name not in left_out
            },
            "experiments": [{"id": id, "name": name} for id, name in summary.experiments],
            "invalid": summary.invalid,
            "unended": summary.unended,
        }
        for summary in summaries
    ]
    if left_out:
        return {"models": models}
    return {"models": models, "human": asdict(HUMAN) if beside_humans(summaries) else None}


def interval_json(interval: Interval) -> dict[str, Any]:
    """A mean with the ends of its interval, null where they are not known."""
    return {
        "mean": interval.point,
        "low": interval.low if interval.known else None,
        "high": interval.high if interval.known else None,
    }


def summary_rows(summaries: Sequence[ModelSummary]) -> list[dict[str, Any]]:
    """A row per model, an interval as three columns; errors are counted, not told."""
    return [_row(summary) for summary in summaries]


def is_elsewhere(summaries: Sequence[ModelSummary]) -> bool:
    """Whether the run was in another environment than Crafter."""
    return any(summary.results for summary in summaries) and all(
        summary.score is None for summary in summaries
    )


def beside_humans(summaries: Sequence[ModelSummary]) -> bool:
    """Whether all that was played was the difficulty that people played too."""
    played = {summary.difficulty for summary in summaries if summary.started}
    return played == {_HUMAN_DIFFICULTY}


def _row(summary: ModelSummary) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column in fields(summary):
        value = getattr(summary, column.name)
        if column.type == Interval | None:
            row |= interval_columns(column.name, value)
        elif not isinstance(value, tuple | dict):
            row[column.name] = value
    return {**row, "invalid": summary.invalid, "unended": summary.unended}


def _plain(value: Any) -> Any:
    if isinstance(value, Interval):
        return interval_json(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summary(
    model: str, rows: Sequence["EpisodeRow"], started: int, *, baseline: bool
) -> ModelSummary:
    results = [row for row in rows if row.state is TrialState.RESULT]
    states = Counter(row.state for row in rows)
    unlock_steps = [step for row in results for step in row.achievements.values()]
    early = sum(step <= _EARLY for step in unlock_steps)
    mid = sum(_EARLY < step <= _MID for step in unlock_steps)
    score = _score(results)
    successes = sum(len(row.achievements) >= SUCCESS_ACHIEVEMENTS for row in results)
    return ModelSummary(
        model=model,
        experiments=tuple({row.experiment_id: row.experiment_name for row in rows}.items()),
        baseline=baseline,
        difficulty=_only({row.difficulty for row in rows}),
        started=started,
        results=len(results),
        failures=states[TrialState.FAILURE],
        infrastructure=states[TrialState.INFRASTRUCTURE],
        completed=exact_share(len(results), started) if started else None,
        success=None if score is None else exact_share(successes, len(results)),
        reward=_mean(results, "reward"),
        achievements=_mean(results, "achievements"),
        steps=_mean(results, "steps"),
        turns=_mean(results, "turns"),
        duration_s=_mean(results, "duration_s"),
        tokens=_mean(results, "tokens"),
        cost_usd=_mean(results, "cost_usd"),
        invalid_rate=_mean(results, "invalid_rate"),
        score=None if score is None else score.point,
        score_interval=score,
        actions=sum(row.actions_asked for row in results),
        malformed=sum(row.malformed_replies for row in results),
        unknown=sum(row.unknown_actions for row in results),
        no_effect=sum(row.no_effect_actions for row in results),
        asleep=sum(row.asleep_actions for row in results),
        unlocked=len(unlock_steps),
        unique=len({name for row in results for name in row.achievements}),
        early=early,
        mid=mid,
        late=len(unlock_steps) - early - mid,
        tokens_spent=sum(_tokens(row) for row in rows),
        cost_spent=_sum([row.cost_usd for row in rows]),
        troubles=_troubles(rows),
        endings=dict(Counter(row.stop_reason for row in results).most_common()),
    )


def _mean(rows: Sequence["EpisodeRow"], metric: str) -> Interval | None:
    """As `assay compare` has it; None if an episode lacks the number."""
    values = [
        len(row.achievements)
        if metric == "achievements"
        else _tokens(row)
        if metric == "tokens"
        else getattr(row, metric)
        for row in rows
    ]
    if not values or None in values:
        return None
    trials = [
        TrialOutcome(
            trial_id=row.session_id,
            pair=_world(row),
            task=row.difficulty,
            seed=row.seed,
            values={metric: float(value)},
        )
        for row, value in zip(rows, values, strict=True)
    ]
    return mean_of(trials, metric, 0.95)


def _world(row: "EpisodeRow") -> str | None:
    return None if row.seed is None else f"{row.difficulty} {row.seed}"


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _only(values: set[str | None]) -> str | None:
    return values.pop() if len(values) == 1 else None


def _tokens(row: "EpisodeRow") -> int:
    return row.prompt_tokens + row.completion_tokens


def _score(results: Sequence["EpisodeRow"]) -> Interval | None:
    # Other worlds have no difficulty, and none of the achievements.
    if not any(row.difficulty for row in results):
        return None
    unlocked_E_A = np.array(
        [[name in row.achievements for name in ACHIEVEMENTS] for row in results], bool
    )
    return score_of(unlocked_E_A, [_world(row) or row.session_id for row in results]).interval


def _troubles(rows: Sequence["EpisodeRow"]) -> tuple[ErrorGroup, ...]:
    groups: dict[tuple[TrialState, str], list[EpisodeRow]] = {}
    for row in rows:
        if row.state is not TrialState.RESULT:
            kind = row.error_type or row.stop_reason or "unknown"
            groups.setdefault((row.state, kind), []).append(row)
    return tuple(
        ErrorGroup(
            state=state,
            kind=kind,
            count=len(group),
            message=next((row.error_message for row in group if row.error_message), ""),
        )
        for (state, kind), group in sorted(groups.items())
    )


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
