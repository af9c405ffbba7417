"""Statistics of resamples that are told as counts.

Each takes counts, shape (B, N), and gives a value for each of B resamples without a loop or a
sort. What the statistics mean is said in `rl`. Library only, as it is: no command calls it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.stats.resampling import Counts, TaskScores

__all__ = ["iqm_on_counts", "means_on_counts", "task_weights", "wins_on_counts"]


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
