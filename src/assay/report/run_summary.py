"""Numeric summaries of the episodes of each model.

Means and totals are over completed episodes: a failure or an infrastructure error is counted
and reported, never scored. Amounts spent are over all episodes. Pure functions: rows in,
summaries out; nothing is read or drawn here.
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
_CRAFTER_FIELDS = (
    *("difficulty", "success", "achievements", "score", "score_interval", "no_effect"),
    *("asleep", "unlocked", "unique", "early", "mid", "late"),
)
"""Fields that apply only to Crafter."""
_HUMAN_DIFFICULTY = "classic"
"""The difficulty the human players had; their row is shown only with this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceScore:
    """Published results of human players in full episodes of the original game."""

    name: str
    episodes: int
    achievements: float
    """Mean number of different achievements per episode."""
    achievements_sd: float
    steps: float
    score: float
    note: str
    """Explanation of the numbers."""


HUMAN = ReferenceScore(
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
    """Episodes of one model that ended with the same problem."""

    state: TrialState
    """A failure or an infrastructure error."""
    kind: str
    """The type of the error, or the stop reason of the episode."""
    count: int
    message: str
    """Message of the first of them; untrusted text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """Summary of one model's episodes. Means are None if no episode completed."""

    model: str
    """Untrusted text, like all names."""
    experiments: tuple[tuple[str, str], ...]
    """Id and name of each experiment the rows came from."""
    baseline: bool
    """Whether it is a reference entry, left out of the rankings."""
    difficulty: str | None
    started: int
    results: int
    failures: int
    infrastructure: int
    completed: Interval | None
    """Completed episodes over started ones, with the exact interval."""
    success: Interval | None
    """Proportion of completed episodes with 3 achievements or more; None outside Crafter."""
    reward: Interval | None
    achievements: Interval | None
    """Different achievements per episode."""
    steps: Interval | None
    """Environment steps per episode."""
    turns: Interval | None
    """Turns per episode."""
    duration_s: Interval | None
    tokens: Interval | None
    cost_usd: Interval | None
    """Dollars per episode; also None if a price is unknown."""
    invalid_rate: Interval | None
    """Mean over episodes of (unknown + without effect) / requested actions."""
    score: float | None
    """The Crafter score over `results` episodes; None outside Crafter."""
    score_interval: Interval | None
    """Interval of the mean score at this number of episodes; None without a score."""
    actions: int
    """Requested actions, including unknown ones."""
    malformed: int
    """Replies that could not be parsed."""
    unknown: int
    no_effect: int
    asleep: int
    """Actions ignored because the player was asleep."""
    unlocked: int
    """Achievements unlocked, summed over episodes."""
    unique: int
    """Different achievements unlocked in any episode."""
    early: int
    """Achievements of `unlocked` within environment steps 0-25."""
    mid: int
    """Achievements of `unlocked` within steps 26-50."""
    late: int
    """Achievements of `unlocked` from step 51 on."""
    tokens_spent: int
    """Total over all episodes, whether completed or not."""
    cost_spent: float | None
    """Total over all episodes; None if a price is unknown."""
    troubles: tuple[ErrorGroup, ...]
    endings: Mapping[str, int] = field(default_factory=dict)
    """Numbers of results by the reason for their end, such as `died: zombie`, most frequent
    first."""

    @property
    def invalid(self) -> int:
        """Actions that were unknown or had no effect."""
        return self.unknown + self.no_effect

    @property
    def unended(self) -> int:
        """Episodes that started and did not end, because the run was interrupted."""
        return self.started - self.results - self.failures - self.infrastructure


def summarize(
    rows: Sequence["EpisodeRow"],
    started: Mapping[str, int],
) -> list[ModelSummary]:
    """Summarise episodes by model, in the order of `started`, then of first occurrence.

    Args:
        rows: All episodes that ended, in any state.
        started: Number of episodes each model started. If a model is missing or has more rows,
            its number of rows is used.
    """
    by_model: dict[str, list[EpisodeRow]] = {model: [] for model in started}
    for row in rows:
        by_model.setdefault(row.model, []).append(row)
    return [
        _summarize_model(
            model,
            model_rows,
            max(started.get(model, 0), len(model_rows)),
            baseline=any(row.baseline for row in model_rows),
        )
        for model, model_rows in by_model.items()
    ]


def summaries_json(summaries: Sequence[ModelSummary]) -> dict[str, Any]:
    """Return the summaries for programs; unknown values are null."""
    excluded = _CRAFTER_FIELDS if is_outside_crafter(summaries) else ()
    models = [
        {
            **{
                name: _json_value(value)
                for name, value in asdict(summary).items()
                if name not in excluded
            },
            "experiments": [{"id": id, "name": name} for id, name in summary.experiments],
            "invalid": summary.invalid,
            "unended": summary.unended,
        }
        for summary in summaries
    ]
    if excluded:
        return {"models": models}
    return {
        "models": models,
        "human": asdict(HUMAN) if has_human_reference(summaries) else None,
    }


def interval_json(interval: Interval) -> dict[str, Any]:
    """Return a mean with the bounds of its interval; unknown bounds are null."""
    return {
        "mean": interval.point,
        "low": interval.low if interval.known else None,
        "high": interval.high if interval.known else None,
    }


def summary_rows(summaries: Sequence[ModelSummary]) -> list[dict[str, Any]]:
    """Return a row per model, with intervals as three columns and errors as counts."""
    return [_csv_row(summary) for summary in summaries]


def is_outside_crafter(summaries: Sequence[ModelSummary]) -> bool:
    """Return whether the run was in an environment other than Crafter."""
    return any(summary.results for summary in summaries) and all(
        summary.score is None for summary in summaries
    )


def has_human_reference(summaries: Sequence[ModelSummary]) -> bool:
    """Return whether all episodes had the difficulty of the human players."""
    difficulties = {summary.difficulty for summary in summaries if summary.started}
    return difficulties == {_HUMAN_DIFFICULTY}


def _csv_row(summary: ModelSummary) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column in fields(summary):
        value = getattr(summary, column.name)
        if column.type == Interval | None:
            row |= interval_columns(column.name, value)
        elif not isinstance(value, tuple | dict):
            row[column.name] = value
    return {**row, "invalid": summary.invalid, "unended": summary.unended}


def _json_value(value: Any) -> Any:
    if isinstance(value, Interval):
        return interval_json(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summarize_model(
    model: str, rows: Sequence["EpisodeRow"], started: int, *, baseline: bool
) -> ModelSummary:
    results = [row for row in rows if row.state is TrialState.RESULT]
    states = Counter(row.state for row in rows)
    unlock_steps = [step for row in results for step in row.achievements.values()]
    early = sum(step <= _EARLY for step in unlock_steps)
    mid = sum(_EARLY < step <= _MID for step in unlock_steps)
    score = _compute_score(results)
    successes = sum(len(row.achievements) >= SUCCESS_ACHIEVEMENTS for row in results)
    return ModelSummary(
        model=model,
        experiments=tuple({row.experiment_id: row.experiment_name for row in rows}.items()),
        baseline=baseline,
        difficulty=_single_value({row.difficulty for row in rows}),
        started=started,
        results=len(results),
        failures=states[TrialState.FAILURE],
        infrastructure=states[TrialState.INFRASTRUCTURE],
        completed=exact_share(len(results), started) if started else None,
        success=None if score is None else exact_share(successes, len(results)),
        reward=_compute_mean(results, "reward"),
        achievements=_compute_mean(results, "achievements"),
        steps=_compute_mean(results, "steps"),
        turns=_compute_mean(results, "turns"),
        duration_s=_compute_mean(results, "duration_s"),
        tokens=_compute_mean(results, "tokens"),
        cost_usd=_compute_mean(results, "cost_usd"),
        invalid_rate=_compute_mean(results, "invalid_rate"),
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
        tokens_spent=sum(_count_tokens(row) for row in rows),
        cost_spent=_sum_if_complete([row.cost_usd for row in rows]),
        troubles=_group_errors(rows),
        endings=dict(Counter(row.stop_reason for row in results).most_common()),
    )


def _compute_mean(rows: Sequence["EpisodeRow"], metric: str) -> Interval | None:
    """Return the mean as in `assay compare`; None if an episode lacks the value."""
    values = [
        len(row.achievements)
        if metric == "achievements"
        else _count_tokens(row)
        if metric == "tokens"
        else getattr(row, metric)
        for row in rows
    ]
    if not values or None in values:
        return None
    trials = [
        TrialOutcome(
            trial_id=row.session_id,
            pair=_world_key(row),
            task=row.difficulty,
            seed=row.seed,
            values={metric: float(value)},
        )
        for row, value in zip(rows, values, strict=True)
    ]
    return mean_of(trials, metric, 0.95)


def _world_key(row: "EpisodeRow") -> str | None:
    return None if row.seed is None else f"{row.difficulty} {row.seed}"


def _sum_if_complete(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _single_value(values: set[str | None]) -> str | None:
    return values.pop() if len(values) == 1 else None


def _count_tokens(row: "EpisodeRow") -> int:
    return row.prompt_tokens + row.completion_tokens


def _compute_score(results: Sequence["EpisodeRow"]) -> Interval | None:
    # Other environments have no difficulty and no achievements.
    if not any(row.difficulty for row in results):
        return None
    unlocked_E_A = np.array(
        [[name in row.achievements for name in ACHIEVEMENTS] for row in results], bool
    )
    return score_of(
        unlocked_E_A, [_world_key(row) or row.session_id for row in results]
    ).interval


def _group_errors(rows: Sequence["EpisodeRow"]) -> tuple[ErrorGroup, ...]:
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


RANKING_TITLES = {
    "reward": "By average reward",
    "invalid_rate": "By invalid action rate (lower is better)",
}
"""The metrics by which models are ranked, with the titles of the rankings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedModel:
    """One model in a ranking."""

    model: str
    """Untrusted text."""
    place: int
    """1 plus the number of models that are shown to be better."""
    shared: bool
    """Whether another model has the same place."""
    mean: Interval
    baseline: bool = False
    """Whether it is a reference entry, played only for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Ranking of the models of a run by one metric."""

    metric: str
    places: tuple[RankedModel, ...]
    """The best mean first."""
    contrasts: tuple[Contrast, ...]
    """Every pair of models; the ids of subjects are the names of models."""


def rank_models(rows: Iterable["EpisodeRow"], *, level: float = 0.95) -> tuple[Ranking, ...]:
    """Rank the models of a run by each metric in `RANKED`.

    Reference entries are left out if at least two other models remain.
    """
    subjects = _build_subjects(rows)
    ranked = [subject for subject in subjects if not subject.baseline]
    if len(ranked) < 2:
        ranked = subjects
    if not ranked:
        return ()
    return tuple(_rank_by_metric(ranked, metric, level) for metric in RANKING_TITLES)


def _build_subjects(rows: Iterable["EpisodeRow"]) -> list[Subject]:
    """Return one subject per model that has results; its id is its name."""
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
        Subject(id=model, name=model, baseline=model in baselines, trials=tuple(subject_trials))
        for model, subject_trials in trials.items()
    ]


def _rank_by_metric(subjects: Sequence[Subject], metric: str, level: float) -> Ranking:
    setup = Setup(metrics=(metric,), baseline=subjects[0].id, level=level)
    facts = [describe(subject, [metric], level, judged=True) for subject in subjects]
    ranking = standings(facts, setup, fewest=1)
    assert ranking is not None
    means = {subject.id: subject.metrics[metric].mean for subject in facts}
    baselines = {subject.id for subject in subjects if subject.baseline}
    return Ranking(
        metric=metric,
        places=tuple(
            RankedModel(
                model=standing.subject,
                place=standing.rank,
                shared=standing.shared,
                mean=means[standing.subject],
                baseline=standing.subject in baselines,
            )
            for standing in ranking.order
        ),
        contrasts=ranking.pairs,
    )
