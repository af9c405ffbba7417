"""One number for the scores of runs on many tasks, with its interval.

The aggregates are those of Agarwal, Schwarzer, Castro, Courville and Bellemare, Deep
Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021, section 4,
carried over to tasks with unequal numbers of runs, each task weighing the same. Intervals
come from a bootstrap that draws runs within each task: percentiles, and with fewer than ten
runs of a task Student's with the bootstrap's standard error. Tasks are taken as given, not as
a sample of more. A task with one run has no spread to be seen: bounds are NaN then. Every
interval is a function of the scores and the generator.

Library only: no command calls it.

Statistics of resamples that are told as counts.

Each takes counts, shape (B, N), and gives a value for each of B resamples without a loop or a
sort. What the statistics mean is said in `rl`. Library only, as it is: no command calls it.

Stratified resampling: runs drawn anew within each task, as counts.

A resample is told by how often it drew each run, so that a statistic needs neither copies
of the scores nor a sort of its own: scores are put in order once, and the counts follow.
Every resample of a task has as many runs as the task. It knows no statistic; `rl` and
`profiles` bring theirs. Library only, as they are: no command calls it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.intervals import Interval, as_sample, check_level, check_resamples, t_quantile

Counts = NDArray[np.int64]
"""How often each run was drawn; shape (resamples, runs of all tasks), task after task."""

ENOUGH_RUNS: Final = 10
"""With fewer runs of a task, percentiles of a bootstrap are too close together."""
_AT_ONCE: Final = 1 << 16
"""Counts made at once; about what the second cache of a processor holds."""
_SMALL: Final = 1 << 12
"""Numbers below this are drawn from 16 bits: quicker, and few of them are thrown away."""


class TaskScores(NamedTuple):
    """Scores of runs on tasks, each of which may have another number of runs."""

    tasks: tuple[str, ...]
    values: NDArray[np.float64]
    """Shape (N,), task after task."""
    sizes: NDArray[np.int64]
    """The runs of each task; shape (T,)."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each task begins among the values; shape (T,)."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def repeated(self) -> bool:
        """Whether every task has two runs or more, so that its spread can be seen at all."""
        return bool(self.sizes.min() > 1)

    @property
    def constant(self) -> bool:
        """Whether within each task all runs are equal, so that every resample is the same."""
        low = np.minimum.reduceat(self.values, self.starts)
        return bool((low == np.maximum.reduceat(self.values, self.starts)).all())

    def by_task(self) -> list[NDArray[np.float64]]:
        """The scores of each task."""
        return np.split(self.values, self.starts[1:])

    def sorted_in_tasks(self) -> "TaskScores":
        """The scores with the runs of each task in order; resampling does not mind."""
        return self._replace(values=np.concatenate([np.sort(each) for each in self.by_task()]))


ScoresLike = (
    TaskScores | Mapping[str, Sequence[float] | NDArray[Any]] | NDArray[Any] | Sequence[Any]
)
"""The scores of the runs by task, or a matrix with a row for each run, a column for each
task."""


def task_scores(scores: ScoresLike, what: str = "scores") -> TaskScores:
    """Read scores by task, or a matrix of runs x tasks.

    Raises:
        UsageError: There are no tasks, a task has no runs, or a score is not finite.
    """
    if isinstance(scores, TaskScores):
        return scores
    named = scores if isinstance(scores, Mapping) else _columns(scores, what)
    if not named:
        raise UsageError(f"{what} have no task; give the scores of one task or more")
    runs = [as_sample(each, f"{what} of task {name!r}") for name, each in named.items()]
    sizes = np.array([len(each) for each in runs], np.int64)
    return TaskScores(tuple(named), np.concatenate(runs), sizes)


def same_tasks(a: TaskScores, b: TaskScores) -> TaskScores:
    """The scores `b` with its tasks in the order of `a`.

    Raises:
        UsageError: One has a task that the other has not.
    """
    only = sorted({*a.tasks} ^ {*b.tasks})
    if only:
        raise UsageError(
            f"task {only[0]!r} has scores on one side only; both sides need the same tasks"
        )
    runs = dict(zip(b.tasks, b.by_task(), strict=True))
    sizes = np.array([len(runs[task]) for task in a.tasks], np.int64)
    return TaskScores(a.tasks, np.concatenate([runs[task] for task in a.tasks]), sizes)


def draw_counts(
    sizes: Sequence[NDArray[np.int64]], rng: np.random.Generator, n_resamples: int
) -> Iterator[tuple[Counts, ...]]:
    """Draw runs with replacement within each task, some resamples at a time.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 8.3 (several
    samples); Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical
    Precipice, 2021, section 4 (tasks as strata). How many resamples come at once depends
    on the sizes alone, so that the same generator gives the same counts.

    Args:
        sizes: The runs of each task, shape (T,), for each side; sides are independent.
        rng: What is drawn from.
        n_resamples: How many resamples there are in all.
    """
    most = max(1, _AT_ONCE // max(int(each.sum()) for each in sizes))
    sides = [_Side(each, most) for each in sizes]
    for done in range(0, n_resamples, most):
        rows = min(most, n_resamples - done)
        yield tuple(side.draw(rows, rng) for side in sides)


def bounds(
    points: NDArray[np.float64],
    statistic: Callable[..., NDArray[np.float64]],
    scores: Sequence[TaskScores],
    *,
    rng: np.random.Generator,
    level: float,
    n_resamples: int,
    paired: bool = False,
    student: bool = False,
) -> NDArray[np.float64]:
    """The bounds of bootstrap intervals; shape (2, K) for K points.

    Percentiles: Efron and Tibshirani 1993, section 13.3. With `student`, and where a task has
    fewer than ten runs, Student's around the point with the standard error of the resamples
    (section 12.4): n runs drawn again have (n - 1) / n of their variance, which percentiles
    lack; degrees of freedom are half of those of the runs in all tasks, as quarters that are
    cut off carry none. Bounds are NaN where a task has one run, and the points themselves
    where no resample can differ from the scores.

    Args:
        points: What the statistic comes to on the scores themselves; shape (K,).
        statistic: Takes counts of each side, shape (B, N), and gives values, shape (B, K).
        scores: One set for each side.
        rng: What is drawn from.
        level: The share of resamples between the bounds.
        n_resamples: How many resamples are drawn.
        paired: Whether run i of a task is the same draw on all sides.
        student: Whether few runs get Student's interval.
    """
    check_level(level)
    check_resamples(n_resamples)
    if not all(each.repeated for each in scores):
        return np.full((2, len(points)), np.nan)
    if all(each.constant for each in scores):
        return np.stack([points, points])
    sizes = [each.sizes for each in (scores[:1] if paired else scores)]
    times = len(scores) if paired else 1
    values = [statistic(*(drawn * times)) for drawn in draw_counts(sizes, rng, n_resamples)]
    drawn_B_K = np.concatenate(values)
    fewest = min(int(each.sizes.min()) for each in scores)
    if student and fewest < ENOUGH_RUNS:
        freedom = min(len(each.sizes) for each in scores) * (fewest - 1) / 2
        half = t_quantile(freedom, (1 + level) / 2) * drawn_B_K.std(axis=0)
        half *= math.sqrt(fewest / (fewest - 1))
        return np.stack([points - half, points + half])
    tails = [(1 - level) / 2, (1 + level) / 2]
    return np.asarray(np.quantile(drawn_B_K, tails, axis=0))


class _Group(NamedTuple):
    """The tasks that have as many runs; a bound for each draw of its own would be slow."""

    runs: int
    starts: NDArray[np.int64]
    """Shape (tasks, 1)."""


class _Side:
    """Draws the counts of one side; its memory is asked for once, since pages cost more."""

    def __init__(self, sizes: NDArray[np.int64], most: int) -> None:
        starts = np.cumsum(sizes) - sizes
        self._total = int(sizes.sum())
        self._groups = [_Group(int(n), starts[sizes == n][:, None]) for n in np.unique(sizes)]
        self._places = np.empty(most * self._total, np.int64)

    def draw(self, rows: int, rng: np.random.Generator) -> Counts:
        size = rows * self._total
        begin, filled = np.arange(0, size, self._total)[:, None, None], 0
        for runs, starts in self._groups:
            shape = (rows, len(starts), runs)
            part = self._places[filled : filled + rows * len(starts) * runs].reshape(shape)
            if runs <= _SMALL:
                np.add(starts + begin, rng.integers(0, runs, shape, np.uint16), out=part)
            else:
                np.add(starts + begin, rng.integers(0, runs, shape), out=part)
            filled += part.size
        return np.bincount(self._places[:size], minlength=size).reshape(rows, self._total)


def _columns(scores: NDArray[Any] | Sequence[Any], what: str) -> dict[str, NDArray[Any]]:
    try:
        matrix = np.asarray(scores, np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.ndim != 2:
        raise UsageError(
            f"{what} are no matrix with a row for each run and a column for each task; where"
            " tasks have unequal runs, give them by task"
        )
    return {str(number + 1): column for number, column in enumerate(matrix.T)}


def task_weights(scores: TaskScores) -> NDArray[np.float64]:
    """What each run weighs where tasks weigh the same; shape (N,), the sum is 1."""
    return np.repeat(1 / (len(scores.sizes) * scores.sizes), scores.sizes)


def means_on_counts(scores: TaskScores, counts: Counts) -> NDArray[np.float64]:
    """The tasks' means in each resample; shape (B, T)."""
    return np.add.reduceat(counts * scores.values, scores.starts, axis=1) / scores.sizes


def iqm_on_counts(scores: TaskScores) -> Callable[[Counts], NDArray[np.float64]]:
    """The interquartile mean of resamples of these scores, which are sorted once."""
    order = np.argsort(scores.values, kind="stable")
    ordered, size, cut = scores.values[order], len(order), len(order) // 4
    equal = bool((scores.sizes == scores.sizes[0]).all())
    # Where tasks have unequal runs, a run counts for more or less than one score.
    worth = None if equal else size * task_weights(scores)[order]
    room = _Room(size, np.int64 if equal else np.float64)

    def statistic(counts: Counts) -> NDArray[np.float64]:
        taken, reached, kept = room.of(len(counts))
        # Of the resample in order, score i fills the places up to reached[i]; those that
        # lie between both cuts count.
        if worth is None:
            np.take(counts, order, axis=1, out=taken, mode="clip")
        else:
            np.multiply(counts[:, order], worth, out=taken)
        reached[:, 0] = cut
        np.cumsum(taken, axis=1, out=reached[:, 1:])
        np.clip(reached, cut, size - cut, out=reached)
        np.subtract(reached[:, 1:], reached[:, :-1], out=kept)
        return np.asarray(kept @ ordered / (size - 2 * cut))

    return statistic


class _Room:
    """Arrays that are used again for every piece of counts; asking for memory costs more."""

    def __init__(self, size: int, kind: type) -> None:
        self._size, self._kind = size, kind
        self._make(0)

    def of(self, rows: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
        if rows > len(self._taken):
            self._make(rows)
        return self._taken[:rows], self._reached[:rows], self._kept[:rows]

    def _make(self, rows: int) -> None:
        self._taken: NDArray[Any] = np.empty((rows, self._size), self._kind)
        self._reached: NDArray[Any] = np.empty((rows, self._size + 1), self._kind)
        self._kept = np.empty((rows, self._size))


def wins_on_counts(
    a: TaskScores, b: TaskScores
) -> Callable[[Counts, Counts], NDArray[np.float64]]:
    """How probable it is that b beats a; the runs of a are in order within their tasks.

    A run of b beats as many draws of a as the counts of a reach below it, and half of those
    it ties with.
    """
    pairs = list(zip(a.by_task(), b.by_task(), a.starts, strict=True))
    below, upto = (
        np.concatenate([begin + np.searchsorted(x, y, side) for x, y, begin in pairs])
        for side in ("left", "right")
    )
    # Every resample has n runs of a task with n, so that a task's counts begin at its start.
    before = 2 * np.repeat(a.starts, b.sizes)
    starts, possible = b.starts, 2 * a.sizes * b.sizes

    def statistic(counts_a: Counts, counts_b: Counts) -> NDArray[np.float64]:
        reached = np.zeros((len(counts_a), counts_a.shape[1] + 1), np.int64)
        np.cumsum(counts_a, axis=1, out=reached[:, 1:])
        beaten = np.take(reached, below, axis=1)
        beaten += np.take(reached, upto, axis=1)
        beaten -= before
        beaten *= counts_b
        # Whole numbers up to here, so that a side that always wins wins with exactly 1.
        won = np.add.reduceat(beaten, starts, axis=1) / possible
        return np.asarray(won.mean(axis=1, keepdims=True))

    return statistic


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
    with the bootstrap's standard error, see `bounds` in `assay.stats.aggregates`.
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
