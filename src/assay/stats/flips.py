"""Null distributions of sums under exchange: signs flipped, or labels shuffled.

The exact distribution where it can be had, else a sample of it. A tail is the share of the
distribution at least as far out as what was seen, so that the one that was seen counts.
Equal sums that differ in their last digits count as equal.
"""

import math
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tails", "flip_tails", "shuffle_tails"]

Floats = NDArray[np.float64]

EXACT_LIMIT = 2**16
"""So many arrangements are listed one by one."""
_COUNT_LIMIT = 20_000_000
"""So many additions are made to count arrangements of whole numbers by their sums."""
_BATCH = 2**21
"""So many values are held at a time."""


class Tails(NamedTuple):
    """Shares of the null distribution on either side of what was seen, it included."""

    below: float
    above: float
    exact: bool


def flip_tails(
    values_N: Floats, rng: np.random.Generator | None, n_resamples: int
) -> Tails | None:
    """Tails of the sum of the values when each may have either sign.

    Exact where 2^n is small, or where the values are whole multiples of one unit: then the
    sums are counted by convolution, one value at a time (Pagano and Tritchler, "On obtaining
    permutation distributions in polynomial time", JASA 78, 1983). Else `n_resamples` random
    flips, the observed one added to them (Phipson and Smyth, "Permutation p-values should
    never be zero", 2010). None where those are needed and there is no generator.
    """
    # A zero stays what it is under either sign.
    sizes = np.abs(values_N[values_N != 0])
    seen, slack = float(values_N.sum()), 1e-12 * float(sizes.sum())
    if 2 ** min(len(sizes), 64) <= EXACT_LIMIT:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums - size, sums + size])
        return _shares(sums, seen, slack)
    whole = _whole(sizes)
    if whole is not None and len(whole) * int(whole.sum()) <= _COUNT_LIMIT:
        return _counted_flips(whole, seen / float(sizes.sum()))
    if rng is None:
        return None
    drawn = np.empty(n_resamples)
    step = max(1, _BATCH // len(sizes))
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        signs = rng.integers(0, 2, (rows, len(sizes)), dtype=np.int8) * 2.0 - 1.0
        drawn[start : start + rows] = signs @ sizes
    return _sampled(drawn, seen, slack)


def shuffle_tails(
    values_N: Floats, chosen: int, rng: np.random.Generator | None, n_resamples: int
) -> Tails | None:
    """Tails of the sum of the last `chosen` values when any of all may be among them.

    Exact where there are few ways to choose, else as in `flip_tails`.
    """
    seen = float(values_N[-chosen:].sum())
    slack = 1e-12 * float(np.abs(values_N).sum())
    ways = math.comb(len(values_N), chosen)
    if ways <= EXACT_LIMIT:
        return _shares(_all_choices(values_N, chosen, ways), seen, slack)
    if rng is None:
        return None
    drawn = np.empty(n_resamples)
    step = max(1, _BATCH // len(values_N))
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        shuffled = rng.permuted(np.broadcast_to(values_N, (rows, len(values_N))), axis=1)
        drawn[start : start + rows] = shuffled[:, :chosen].sum(axis=1)
    return _sampled(drawn, seen, slack)


def _all_choices(values_N: Floats, chosen: int, ways: int) -> Floats:
    sums = np.empty(ways)
    step = max(1, _BATCH // chosen)
    choices = combinations(range(len(values_N)), chosen)
    for start in range(0, ways, step):
        rows = np.array(list(islice(choices, step)))
        sums[start : start + len(rows)] = values_N[rows].sum(axis=1)
    return sums


def _whole(sizes: Floats) -> NDArray[np.int64] | None:
    """The sizes in a common unit, if that is a part of 1 or of the smallest size."""
    if not len(sizes) or sizes.max() > _COUNT_LIMIT * sizes.min():
        return None
    for base in (1.0, float(sizes.min())):
        for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12):
            scaled = sizes / base * parts
            rounded = np.rint(scaled)
            if rounded.min() > 0 and (np.abs(scaled - rounded) <= 1e-9 * scaled).all():
                units = rounded.astype(np.int64)
                return np.asarray(units // np.gcd.reduce(units), np.int64)
    return None


def _counted_flips(units: NDArray[np.int64], seen_share: float) -> Tails:
    """Exact tails from probabilities of the number of units with a positive sign."""
    total = int(units.sum())
    probability = np.zeros(total + 1)
    probability[0] = 1.0
    for unit in units:
        moved = probability[: total + 1 - unit].copy()
        probability *= 0.5
        probability[unit:] += 0.5 * moved
    positive = round((seen_share + 1) / 2 * total)
    # Sums of a million small floats may pass 1 by a rounding error.
    below, above = probability[: positive + 1].sum(), probability[positive:].sum()
    return Tails(min(1.0, float(below)), min(1.0, float(above)), True)


def _shares(sums: Floats, seen: float, slack: float) -> Tails:
    below, above = (sums <= seen + slack).mean(), (sums >= seen - slack).mean()
    return Tails(float(below), float(above), True)


def _sampled(sums: Floats, seen: float, slack: float) -> Tails:
    below, above = (sums <= seen + slack).sum() + 1, (sums >= seen - slack).sum() + 1
    return Tails(float(below) / (len(sums) + 1), float(above) / (len(sums) + 1), False)
