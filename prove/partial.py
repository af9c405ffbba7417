"""Worlds that are shared in part, unequal clusters, and counts with few values.

A part of `python -m prove.statistics`: the estimator that takes all trials of two subjects,
and intervals that stay within what is possible.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from assay.stats.clusters import clustered_difference, clustered_difference_estimate
from assay.stats.estimates import Estimate, difference_estimate, mean_estimate
from assay.stats.intervals import Side

from .cells import Cell, Floats, Row, Rows, Trial, Two, table
from .parts import Found
from .shares import LEAST, MOST

__all__ = ["partial"]

_OVERLAPS: Final = ((5, 5, 2), (5, 5, 4), (10, 10, 2), (10, 10, 5), (6, 30, 5), (30, 30, 15))
"""Worlds of a, of b, and of both."""
_COUNTS: Final = (5, 10, 30)


def partial(sets: int) -> Found:
    """All tables, one in four of the sets."""
    sets = max(100, sets // 4)
    tables = (
        (
            "Worlds shared in part, normal values: coverage of nominal 95 %, and false verdicts"
            " at 5 %. The correlation is that of a world played by both.",
            table(11, sets, ("worlds of a, b, both", "correlation"), _overlap_rows()),
        ),
        (
            "Counts of 22 that stay within their range: coverage of nominal 95 %. Few of them"
            " differ where the mean is 0.3.",
            table(12, sets, ("mean", "n"), _count_rows()),
        ),
        (
            "Pairs of which one in twenty has a jackpot of 20 on one side, and the same means:"
            " coverage of nominal 95 %, and false verdicts at 5 %. Nothing is promised.",
            table(19, sets, ("n",), _jackpot_rows()),
        ),
    )
    text = "\n\n".join(f"{title}\n\n{found.text}" for title, found in tables)
    return Found(text, tuple(sentence for _, found in tables for sentence in found.missed))


def _overlap_rows() -> Rows:
    rows: dict[tuple[str, ...], Row] = {}
    for a, b, both in _OVERLAPS:
        for correlation in (0.0, 0.8):
            labels = (range(a), range(a - both, a - both + b))

            def draw(
                rng: np.random.Generator,
                sd: float,
                labels: tuple[range, range] = labels,
                correlation: float = correlation,
            ) -> Two:
                world = math.sqrt(correlation) * rng.standard_normal(labels[1].stop)
                own = math.sqrt(1 - correlation)
                first, second = (
                    world[one] + own * rng.standard_normal(len(one)) for one in labels
                )
                return first, sd * second

            # Welch's own test finds too much where one side has five times the trials.
            alike = max(a, b) <= 3 * min(a, b)
            least, most = (LEAST, MOST) if alike else (None, None)
            rows[f"{a}, {b}, {both}", f"{correlation:g}"] = {
                "covers": Cell(_covers(draw, labels, 1.0), least),
                "covers, sd 1 and 3": Cell(_covers(draw, labels, 3.0), least),
                "false verdicts": Cell(_rejects(draw, labels), most=most),
            }
    return rows


Draw = Callable[[np.random.Generator, float], Two]


def _covers(draw: Draw, labels: tuple[range, range], sd: float) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        found = clustered_difference(*draw(rng, sd), *labels)
        return found.low <= 0 <= found.high

    return trial


def _rejects(draw: Draw, labels: tuple[range, range]) -> Trial:
    return lambda rng: clustered_difference_estimate(*draw(rng, 1.0), *labels).p_value() < 0.05


def _count_rows() -> Rows:
    rows: dict[tuple[str, ...], Row] = {}
    for mean, promised in ((3.0, True), (0.3, False)):
        for n in _COUNTS:
            least = LEAST if promised else None
            rows[f"{mean:g}", str(n)] = {
                "mean": Cell(_holds(_one(mean, n), mean, 0), least),
                "mean, without a step": Cell(_holds(_one(mean, n, step=0), mean, 0)),
                "paired difference": Cell(_holds(_two(mean, n, paired=True), 0, -22), least),
                "unpaired difference": Cell(_holds(_two(mean, n, paired=False), 0, -22), least),
                "equal at the margin of 1": Cell(
                    _equal(mean, n), most=MOST if promised else None
                ),
            }
    return rows


def _jackpot_rows() -> Rows:
    def drawn(rng: np.random.Generator, n: int) -> Estimate:
        jackpots = 20.0 * (rng.random(n) < 0.05)
        return mean_estimate(rng.standard_normal(n) - 1 + jackpots)

    def holds(n: int) -> Trial:
        def trial(rng: np.random.Generator) -> bool:
            found = drawn(rng, n).interval()
            return found.low <= 0 <= found.high

        return trial

    def rejects(n: int) -> Trial:
        return lambda rng: drawn(rng, n).p_value() < 0.05

    return {
        (str(n),): {"covers": Cell(holds(n)), "false verdicts": Cell(rejects(n))}
        for n in (5, 10, 15, 30)
    }


def _counts(rng: np.random.Generator, mean: float, n: int) -> Floats:
    return rng.binomial(22, mean / 22, n).astype(np.float64)


def _one(mean: float, n: int, step: float = 1.0) -> Callable[[np.random.Generator], Estimate]:
    return lambda rng: mean_estimate(_counts(rng, mean, n), step=step)


def _two(mean: float, n: int, *, paired: bool) -> Callable[[np.random.Generator], Estimate]:
    return lambda rng: difference_estimate(
        _counts(rng, mean, n), _counts(rng, mean, n), paired=paired, step=1
    )


def _holds(find: Callable[[np.random.Generator], Estimate], truth: float, low: float) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        found = find(rng).interval(low=low, high=22)
        return found.low < found.high and found.low <= truth <= found.high

    return trial


def _equal(mean: float, n: int) -> Trial:
    """Whether pairs that truly differ by 1 are shown to differ by less, at 5 %."""

    def trial(rng: np.random.Generator) -> bool:
        a, b = _counts(rng, mean, n), _counts(rng, mean, n) + 1
        found = difference_estimate(a, b, paired=True, step=1)
        return max(found.p_value(-1, Side.GREATER), found.p_value(1, Side.LESS)) < 0.05

    return trial
