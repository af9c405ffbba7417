"""Shares and their differences, over every outcome there can be: nothing here is drawn.

A part of `python -m prove.statistics`. Coverage and false verdicts are sums of probabilities,
for all shares on a grid, so that the worst of them is known and not only some.
"""

import math
from itertools import product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.stats.shares import exact_share, share_difference, share_equivalence, share_test

from .parts import Found, markdown

__all__ = ["LEAST", "MOST", "paired_tables", "shares"]

LEAST: Final = 0.94
"""The least coverage of a cell that is promised."""
MOST: Final = 0.053
"""The most false verdicts of a cell that is promised."""
_SIZES: Final = (5, 10, 15, 30)
_MARGINS: Final = (0.1, 0.2, 0.3)
_FURTHEST: Final = 0.75
"""Independent shares further apart than this are not promised anything."""

Floats = NDArray[np.float64]


class _Row(NamedTuple):
    """What one way of comparing holds at one number of trials; each the worst of a grid."""

    covered: float
    mean: float
    beyond: float
    """Coverage where shares differ by more than 0.75; NaN for pairs, promised everywhere."""
    false: float
    equivalent: float


def shares(sets: int) -> Found:
    """All tables; `sets` is of no use, since all outcomes are looked at."""
    lines, missed = [], list[str]()
    for name, find in (("pairs", _paired), ("independent", _unpaired)):
        for n in _SIZES:
            row = find(n)
            lines.append([name, str(n), *map(_percent, row)])
            missed += [f"{name}, {n}: covers {row.covered:.1%}"] * (row.covered < LEAST)
            missed += [
                f"{name}, {n}: {what} in {value:.1%}"
                for what, value in (("false verdicts", row.false), ("equal", row.equivalent))
                if value > MOST
            ]
    for n in _SIZES:
        covered = _one_share(n)
        lines.append(["one share", str(n), *(f"{100 * v:.1f}" for v in covered), "", "", ""])
        missed += [f"one share, {n}: covers {covered[0]:.1%}"] * (covered[0] < LEAST)
    head = [
        "data",
        "n",
        "covers, worst shares",
        "covers, mean",
        "worst, further than 0.75 apart",
    ]
    head += ["false verdicts, worst", "called equal at the margin, worst"]
    note = f"Over all outcomes; margins of {', '.join(f'{one:g}' for one in _MARGINS)}."
    return Found(f"{markdown(head, lines)}\n\n{note}", tuple(missed))


def paired_tables(n: int) -> tuple[NDArray[np.int64], list[tuple[Floats, Floats]]]:
    """Pairs that b won and lost, shape (T, 2), and outcomes of n pairs with so many."""
    counts = np.array([(won, lost) for won in range(n + 1) for lost in range(n + 1 - won)])
    outcomes = [
        (np.repeat([0.0, 1.0, 0.0], [won, lost, n - won - lost]), _ones(won, n))
        for won, lost in counts
    ]
    return counts, outcomes


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.1f}"


def _ones(successes: int, trials: int) -> Floats:
    return (np.arange(trials) < successes).astype(np.float64)


def _paired(n: int) -> _Row:
    counts, outcomes = paired_tables(n)
    bounds = np.array([share_difference(a, b, paired=True) for a, b in outcomes])
    rejected = np.array([share_test(a, b, paired=True).p_value <= 0.05 for a, b in outcomes])
    grid = [(p, q) for p, q in product(np.linspace(0, 1, 26), repeat=2) if p + q <= 1 + 1e-9]
    covered = [(_chances(counts, n, p, q) * _inside(bounds, p - q)).sum() for p, q in grid]
    false = max(_chances(counts, n, p, p) @ rejected for p in np.linspace(0, 0.5, 26))
    equal = 0.0
    for margin in _MARGINS:
        small = _equivalent(outcomes, margin, paired=True)
        rest = np.linspace(0, (1 - margin) / 2, 26)
        equal = max(equal, *(float(_chances(counts, n, margin + q, q) @ small) for q in rest))
    return _Row(float(min(covered)), float(np.mean(covered)), math.nan, float(false), equal)


def _unpaired(n: int) -> _Row:
    outcomes = [(_ones(a, n), _ones(b, n)) for a, b in product(range(n + 1), repeat=2)]
    bounds = np.array([share_difference(a, b, paired=False) for a, b in outcomes])
    rejected = np.array([share_test(a, b, paired=False).p_value <= 0.05 for a, b in outcomes])
    near, far = [1.0], [1.0]
    for p, q in product(np.linspace(0, 1, 51), repeat=2):
        held = float(_two(n, p, q) @ _inside(bounds, q - p))
        (near if abs(q - p) <= _FURTHEST + 1e-9 else far).append(held)
    false = max(float(_two(n, p, p) @ rejected) for p in np.linspace(0, 1, 51))
    equal = 0.0
    for margin in _MARGINS:
        small = _equivalent(outcomes, margin, paired=False)
        starts = np.linspace(0, 1 - margin, 41)
        equal = max(equal, *(float(_two(n, p, p + margin) @ small) for p in starts))
    return _Row(min(near), float(np.mean(near[1:] + far[1:])), min(far), false, equal)


def _one_share(n: int) -> tuple[float, float]:
    found = np.array([exact_share(k, n) for k in range(n + 1)])
    covered = [float(_binomial(n, p) @ _inside(found, p)) for p in np.linspace(0, 1, 101)]
    return min(covered), float(np.mean(covered))


def _equivalent(
    outcomes: list[tuple[Floats, Floats]], margin: float, *, paired: bool
) -> Floats:
    return np.array(
        [share_equivalence(a, b, paired=paired, margin=margin).equivalent for a, b in outcomes],
        np.float64,
    )


def _inside(bounds: Floats, truth: float) -> NDArray[np.bool_]:
    return np.asarray((bounds[:, 1] <= truth + 1e-12) & (truth - 1e-12 <= bounds[:, 2]))


def _binomial(n: int, p: float) -> Floats:
    return np.asarray(_chances(np.array([(k, 0) for k in range(n + 1)]), n, p, 0.0))


def _two(n: int, p: float, q: float) -> Floats:
    """The chance of every outcome of two samples, in the order of `_unpaired`."""
    return np.outer(_binomial(n, p), _binomial(n, min(1.0, q))).ravel()


def _chances(counts: NDArray[np.int64], n: int, p: float, q: float) -> Floats:
    """The chance of each number of pairs won and lost, with probabilities p and q."""
    from scipy.special import gammaln, xlogy

    won, lost = counts.T
    rest = n - won - lost
    logs = gammaln(n + 1) - sum(gammaln(one + 1) for one in (won, lost, rest))
    logs = logs + xlogy(won, p) + xlogy(lost, q) + xlogy(rest, max(0.0, 1 - p - q))
    return np.asarray(np.exp(logs))
