"""One number for the scores of runs on many tasks, with its interval.

The aggregates are those of Agarwal, Schwarzer, Castro, Courville and Bellemare, Deep
Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021, section 4,
carried over to tasks with unequal numbers of runs, each task weighing the same. Intervals
come from a bootstrap that draws runs within each task: percentiles, and with fewer than ten
runs of a task Student's with the bootstrap's standard error. Tasks are taken as given, not as
a sample of more. A task with one run has no spread to be seen: bounds are NaN then. Every
interval is a function of the scores and the generator.

Library only: no command calls it.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.counting import iqm_on_counts, means_on_counts, task_weights, wins_on_counts
from assay.stats.intervals import Interval
from assay.stats.resampling import (
    ENOUGH_RUNS,
    Counts,
    ScoresLike,
    TaskScores,
    bounds,
    same_tasks,
    task_scores,
)

__all__ = [
    "Aggregate",
    "aggregate",
    "aggregate_difference",
    "aggregate_intervals",
    "average_probability_of_improvement",
    "iqm",
    "on_counts",
    "optimality_gap",
    "runs_note",
    "task_mean",
    "task_median",
]


class Aggregate(StrEnum):
    """What scores of runs x tasks are reduced to."""

    IQM = "iqm"
    """The mean of the middle half of all scores."""
    MEDIAN = "median"
    """The median of the tasks' means."""
    MEAN = "mean"
    """The mean of the tasks' means."""
    OPTIMALITY_GAP = "optimality_gap"
    """By how much scores fall short of a target on average; less is better."""


def iqm(scores: ScoresLike) -> float:
    """The interquartile mean: the mean of all runs of all tasks without both outer quarters.

    A quarter is rounded down to whole scores, as `scipy.stats.trim_mean` does. Every task
    weighs the same, whatever its runs: where they are unequal, a run of a task with more of
    them counts for less than one score, and the score at a cut for the part that is inside.
    """
    read = task_scores(scores)
    return float(iqm_on_counts(read)(np.ones((1, len(read.values)), np.int64))[0])


def task_mean(scores: ScoresLike) -> float:
    """The mean of the tasks' means; every task weighs the same, whatever its runs."""
    return float(np.mean(_task_means(scores)))


def task_median(scores: ScoresLike) -> float:
    """The median of the tasks' means."""
    return float(np.median(_task_means(scores)))


def optimality_gap(scores: ScoresLike, gamma: float = 1.0) -> float:
    """By how much scores fall short of `gamma`, what is above it counting as `gamma`.

    `gamma` minus the mean over tasks of the mean over runs of min(score, gamma).
    """
    _check_gamma(gamma)
    runs = task_scores(scores).by_task()
    return float(gamma - np.mean([np.minimum(each, gamma).mean() for each in runs]))


def aggregate(
    scores: ScoresLike, which: Aggregate = Aggregate.IQM, gamma: float = 1.0
) -> float:
    """The aggregate that is named; `gamma` is the target of the optimality gap."""
    match which:
        case Aggregate.IQM:
            return iqm(scores)
        case Aggregate.MEDIAN:
            return task_median(scores)
        case Aggregate.MEAN:
            return task_mean(scores)
        case Aggregate.OPTIMALITY_GAP:
            return optimality_gap(scores, gamma)


def aggregate_intervals(
    scores: ScoresLike,
    which: Sequence[Aggregate] = tuple(Aggregate),
    *,
    rng: np.random.Generator,
    gamma: float = 1.0,
    level: float = 0.95,
    n_resamples: int = 10_000,
) -> dict[Aggregate, Interval]:
    """Aggregates with bootstrap intervals, all of them from the same resamples.

    Agarwal et al. 2021, section 4, and from ten runs of every task on the percentile method of
    rliable 1.2.0, whose draws cannot be seeded; these can. With fewer runs it is Student's
    with the bootstrap's standard error, see `bounds` in `assay.stats.resampling`.
    """
    _check_gamma(gamma)
    read = task_scores(scores)
    points = np.array([aggregate(scores, each, gamma) for each in which])
    statistics = [on_counts(read, each, gamma) for each in which]

    def statistic(counts: Counts) -> NDArray[np.float64]:
        return np.stack([each(counts) for each in statistics], axis=1)

    ends = bounds(
        points,
        statistic,
        [read],
        rng=rng,
        level=level,
        n_resamples=n_resamples,
        student=True,
    )
    rows = zip(which, points, *ends, strict=True)
    return {name: Interval(float(p), float(low), float(high)) for name, p, low, high in rows}


def aggregate_difference(
    a: ScoresLike,
    b: ScoresLike,
    which: Aggregate = Aggregate.IQM,
    *,
    paired: bool,
    rng: np.random.Generator,
    gamma: float = 1.0,
    level: float = 0.95,
    n_resamples: int = 10_000,
) -> Interval:
    """The aggregate of `b` minus that of `a`, with its interval.

    Paired, run i of a task shares its seed on both sides, and a resample draws pairs of
    runs: what a seed does to both cancels. Unpaired, both sides are drawn on their own. The
    bootstrap of a difference of two samples is Efron and Tibshirani 1993, section 8.3.

    Raises:
        UsageError: The tasks differ, or paired sides have unequal runs of a task.
    """
    _check_gamma(gamma)
    first = task_scores(a, "scores of a")
    second = same_tasks(first, task_scores(b, "scores of b"))
    if paired:
        _check_pairs(first, second)
    of_a, of_b = on_counts(first, which, gamma), on_counts(second, which, gamma)

    def statistic(counts_a: Counts, counts_b: Counts) -> NDArray[np.float64]:
        return (of_b(counts_b) - of_a(counts_a))[:, None]

    point = aggregate(b, which, gamma) - aggregate(a, which, gamma)
    ends = bounds(
        np.array([point]),
        statistic,
        [first, second],
        rng=rng,
        level=level,
        n_resamples=n_resamples,
        paired=paired,
        student=True,
    )
    return Interval(point, *ends[:, 0].tolist())


def average_probability_of_improvement(
    a: ScoresLike,
    b: ScoresLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    n_resamples: int = 2_000,
) -> Interval:
    """How probable it is that a run of `b` beats one of `a` on the same task.

    P(b > a) + P(tie) / 2 for each task, which is Mann and Whitney's U (1947) divided by the
    number of pairs, and the mean over tasks: Agarwal et al. 2021, section 4, where the side
    that may be better is named first. Both sides are drawn on their own.
    """
    first = task_scores(a, "scores of a").sorted_in_tasks()
    second = same_tasks(first, task_scores(b, "scores of b"))
    statistic, sides = wins_on_counts(first, second), [first, second]
    point = statistic(*(np.ones((1, len(side.values)), np.int64) for side in sides))[0]
    ends = bounds(point, statistic, sides, rng=rng, level=level, n_resamples=n_resamples)
    return Interval(float(point[0]), *ends[:, 0].tolist())


def runs_note(scores: ScoresLike) -> str | None:
    """What to say of percentile intervals from few runs; None where there are enough.

    It is for profiles and the probability of improvement. A resample of n runs has (n - 1) / n
    of their variance (Efron and Tibshirani 1993, section 5.3), so that percentiles are too
    close together: for the IQM of 26 tasks at a nominal 95 % they held 83, 89, 91, 93 and 94 %
    of the time with 2, 3, 5, 10 and 20 runs a task (docs/design/statistics.md).
    """
    fewest = int(task_scores(scores).sizes.min())
    if fewest >= ENOUGH_RUNS:
        return None
    if fewest == 1:
        return "a task has one run, which has no interval; add runs of it"
    return (
        f"a task has {fewest} runs; with fewer than {ENOUGH_RUNS} percentiles of a bootstrap"
        " are narrower than their level says (at 5 runs, 95 % holds about 91 % of the time)"
    )


def on_counts(
    scores: TaskScores, which: Aggregate, gamma: float = 1.0
) -> Callable[[Counts], NDArray[np.float64]]:
    """The aggregate as a function of counts, shape (B, N), that gives values, shape (B,)."""
    match which:
        case Aggregate.IQM:
            return iqm_on_counts(scores)
        case Aggregate.MEDIAN:
            return lambda counts: np.median(means_on_counts(scores, counts), axis=1)
        case Aggregate.MEAN:
            share = task_weights(scores) * scores.values
            return lambda counts: counts @ share
        case Aggregate.OPTIMALITY_GAP:
            short = task_weights(scores) * np.minimum(scores.values, gamma)
            return lambda counts: gamma - counts @ short


def _task_means(scores: ScoresLike) -> list[float]:
    return [float(each.mean()) for each in task_scores(scores).by_task()]


def _check_pairs(a: TaskScores, b: TaskScores) -> None:
    unequal = np.flatnonzero(a.sizes != b.sizes)
    if len(unequal):
        at = unequal[0]
        raise UsageError(
            f"task {a.tasks[at]!r} has {a.sizes[at]} runs on one side and {b.sizes[at]} on the"
            " other; pairs need as many, in the same order of seeds"
        )


def _check_gamma(gamma: float) -> None:
    if not np.isfinite(gamma):
        raise UsageError(f"gamma {gamma!r} is not a score; give a finite number, 1 is usual")
