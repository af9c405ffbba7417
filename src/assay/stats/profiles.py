"""Performance profiles and sample-efficiency curves, with confidence bands.

A performance profile has the proportion of runs, or tasks, above each score. A
sample-efficiency curve has an aggregate at each step. Bands are pointwise: they have their
coverage at each point, and less over the whole curve. A task with one run has bands of NaN. The
module draws no figure. Library only: no command calls it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.aggregates import (
    Aggregate,
    Counts,
    ScoresLike,
    TaskScores,
    aggregate,
    bounds,
    means_on_counts,
    on_counts,
    task_scores,
    task_weights,
)
from assay.stats.intervals import as_sample

_Floats = NDArray[np.float64]


class ProfileKind(StrEnum):
    """Unit that a performance profile counts."""

    RUNS = "runs"
    """Runs above a score: their proportion in each task, averaged over tasks."""
    TASKS = "tasks"
    """Tasks whose mean is above a score."""


class Band(NamedTuple):
    """Curve with its bounds; all of shape (K,)."""

    at: _Floats
    """Scores or steps at which the curve is evaluated."""
    point: _Floats
    low: _Floats
    high: _Floats


def performance_profile(
    scores: ScoresLike,
    taus: Sequence[float] | NDArray[Any],
    *,
    kind: ProfileKind = ProfileKind.RUNS,
    rng: np.random.Generator,
    level: float = 0.95,
    n_resamples: int = 2_000,
) -> Band:
    """Return the proportion of runs, or of task means, above each score in `taus`.

    Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, 2021,
    section 4: the run-score and the average-score distribution, with a stratified percentile
    band. All tasks have the same weight.

    Args:
        scores: Scores of runs by task.
        taus: Scores at which the profile is evaluated, increasing.
        kind: Whether runs or tasks are counted.
        rng: Random generator for the resamples.
        level: Confidence level of the band at each score.
        n_resamples: Number of resamples.
    """
    read, at = task_scores(scores), _growing(taus, "taus")
    if kind is ProfileKind.RUNS:
        above = (read.values[:, None] > at) * task_weights(read)[:, None]

        def statistic(counts: Counts) -> _Floats:
            # Depending on the order of summation, weights may add up to slightly more than 1.
            return np.minimum(counts @ above, 1.0)
    else:

        def statistic(counts: Counts) -> _Floats:
            return np.asarray((means_on_counts(read, counts)[:, :, None] > at).mean(axis=1))

    point = statistic(np.ones((1, len(read.values)), np.int64))[0]
    ends = bounds(point, statistic, [read], rng=rng, level=level, n_resamples=n_resamples)
    return Band(at, point, ends[0], ends[1])


def sample_efficiency(
    steps: Sequence[float] | NDArray[Any],
    scores: Mapping[str, NDArray[Any] | Sequence[Sequence[float]]] | NDArray[Any],
    which: Aggregate = Aggregate.IQM,
    *,
    rng: np.random.Generator,
    gamma: float = 1.0,
    level: float = 0.95,
    n_resamples: int = 2_000,
) -> Band:
    """Return an aggregate at every step of training, with a band.

    The sample-efficiency curve of rliable 1.2.0, with one departure: a resample draws whole
    runs, so that its curve is one that runs could have had, where rliable draws anew at each
    step. Because bands are pointwise, both estimate the same band.

    Args:
        steps: The S steps at which all runs were scored, increasing.
        scores: For each task one row of S scores per run, or an array of runs x tasks x S.
        which: Aggregate over runs and tasks at a step.
        rng: Random generator for the resamples.
        gamma: Target of the optimality gap.
        level: Confidence level of the band at each step.
        n_resamples: Number of resamples.
    """
    at = _growing(steps, "steps")
    by_step = _by_step(scores, len(at))
    statistics = [on_counts(each, which, gamma) for each in by_step]

    def statistic(counts: Counts) -> _Floats:
        return np.stack([each(counts) for each in statistics], axis=1)

    point = np.array([aggregate(each, which, gamma) for each in by_step])
    # `bounds` checks one step for variation, so it gets a step whose scores vary, if any.
    widest = next((each for each in by_step if not each.constant), by_step[0])
    ends = bounds(
        point,
        statistic,
        [widest],
        rng=rng,
        level=level,
        n_resamples=n_resamples,
        student=True,
    )
    return Band(at, point, ends[0], ends[1])


def _by_step(
    scores: Mapping[str, NDArray[Any] | Sequence[Sequence[float]]] | NDArray[Any], steps: int
) -> list[TaskScores]:
    if isinstance(scores, Mapping):
        named = {name: np.asarray(each) for name, each in scores.items()}
    else:
        named = _cut(np.asarray(scores))
    for name, each in named.items():
        if each.ndim != 2 or each.shape[1] != steps:
            raise UsageError(
                f"task {name!r} has scores of shape {each.shape} for {steps} steps; give a row"
                " for each run with a score for each step"
            )
    return [
        task_scores({name: each[:, step] for name, each in named.items()})
        for step in range(steps)
    ]


def _cut(scores: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if scores.ndim != 3:
        raise UsageError(
            f"scores by step have shape {scores.shape}; give runs x tasks x steps, or by task"
            " an array of runs x steps"
        )
    return {str(number + 1): scores[:, number] for number in range(scores.shape[1])}


def _growing(values: Sequence[float] | NDArray[Any], what: str) -> _Floats:
    found = as_sample(values, what)
    if (np.diff(found) <= 0).any():
        raise UsageError(f"{what} have to grow; sort them and keep each once")
    return found
