"""Stratified resampling: runs drawn anew within each task, as counts.

A resample is told by how often it drew each run, so that a statistic needs neither copies
of the scores nor a sort of its own: scores are put in order once, and the counts follow.
Every resample of a task has as many runs as the task. It knows no statistic; `rl` and
`profiles` bring theirs. Library only, as they are: no command calls it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.samples import as_sample, check_level, check_resamples
from assay.stats.two_samples import t_quantile

__all__ = [
    "ENOUGH_RUNS",
    "Counts",
    "ScoresLike",
    "TaskScores",
    "bounds",
    "draw_counts",
    "same_tasks",
    "task_scores",
]

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
        """The same with the runs of each task in order; resampling does not mind."""
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
