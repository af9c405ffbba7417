"""Curves over scores and over steps, with bands.

A performance profile says for every score how many runs, or tasks, are above it; a
sample-efficiency curve has an aggregate for every step. Bands are pointwise: at each place
they hold with their level, and all along with less. A task with one run gives bands of NaN.
It draws no picture. Library only: no command calls it.
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
    """What a performance profile counts."""

    RUNS = "runs"
    """Runs above a score: their share in each task, averaged over tasks."""
    TASKS = "tasks"
    """Tasks whose mean is above a score."""


class Band(NamedTuple):
    """A curve with its bounds; all of shape (K,)."""

    at: _Floats
    """The scores or steps the curve is known at."""
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
    """The share of runs, or of tasks' means, above each score of `taus`.

    Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice,
    2021, section 4: the run-score and the average-score distribution, with a stratified
    percentile band. Every task weighs the same, whatever its runs.

    Args:
        scores: Scores of runs by task.
        taus: The scores at which the profile is taken; they grow.
        kind: Whether runs or tasks are counted.
        rng: What the resamples are drawn from.
        level: The level of the band at each score.
        n_resamples: How many resamples the band is made of.
    """
    read, at = task_scores(scores), _growing(taus, "taus")
    if kind is ProfileKind.RUNS:
        above = (read.values[:, None] > at) * task_weights(read)[:, None]

        def statistic(counts: Counts) -> _Floats:
            # Weights that add up to 1 add up to a little more in some orders.
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
    """An aggregate at every step of training, with a band.

    The sample-efficiency curve of rliable 1.2.0, with one departure: a resample draws whole
    runs, so that its curve is one that runs could have had, where rliable draws anew at each
    step. Bands, being pointwise, estimate the same.

    Args:
        steps: The S steps at which all runs were scored; they grow.
        scores: For each task a row of S scores for each run, or an array of
            runs x tasks x S.
        which: What runs and tasks are reduced to at a step.
        rng: What the resamples are drawn from.
        gamma: The target of the optimality gap.
        level: The level of the band at each step.
        n_resamples: How many resamples the band is made of.
    """
    at = _growing(steps, "steps")
    by_step = _by_step(scores, len(at))
    statistics = [on_counts(each, which, gamma) for each in by_step]

    def statistic(counts: Counts) -> _Floats:
        return np.stack([each(counts) for each in statistics], axis=1)

    point = np.array([aggregate(each, which, gamma) for each in by_step])
    # A step at which nothing varies must not decide for those where something does.
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
