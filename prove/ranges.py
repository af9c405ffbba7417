"""Means with a known range, equivalence with and without one, and their price in width.

A part of `python -m prove.statistics`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.stats.bounded import betting_interval, bounded_tost
from assay.stats.estimates import mean_estimate
from assay.stats.intervals import Interval, t_interval
from assay.stats.significance import equivalence_test, open_equivalence_test

from .cells import Cell, Contest, Floats, Row, Rows, Trial, contests, table
from .parts import Found
from .shares import LEAST, MOST

__all__ = ["ranges"]

_SIZES: Final = (5, 10, 15, 30)
_MOST: Final = 22.0
"""Largest value; the smallest is 0."""

Draw = Callable[[np.random.Generator, int], NDArray[np.floating[Any]]]


def _lognormal(rng: np.random.Generator, n: int) -> Floats:
    return np.minimum(rng.lognormal(0, 1, n), _MOST)


def _zeros(rng: np.random.Generator, n: int) -> Floats:
    return np.asarray((rng.random(n) < 0.2) * rng.uniform(0, 10, n))


DATA: Final[Mapping[str, tuple[Draw, float]]] = {
    "normal, mean 11, sd 3": (lambda rng, n: rng.normal(11, 3, n).clip(0, _MOST), 11.0),
    "counts, mean 3.3": (lambda rng, n: rng.binomial(22, 0.15, n) * 1.0, 3.3),
    "counts, mean 0.44": (lambda rng, n: rng.binomial(22, 0.02, n) * 1.0, 0.44),
    "lognormal": (_lognormal, math.exp(0.5)),
    "80 % zeros": (_zeros, 1.0),
    "85 % zeros, else 1 to 3": (
        lambda rng, n: (rng.random(n) < 0.15) * rng.uniform(1, 3, n),
        0.3,
    ),
    "22 in one of ten": (lambda rng, n: _MOST * (rng.random(n) < 0.1), 2.2),
}
"""Values from 0 to 22, and their mean; cut at 22 the lognormal's is 0.001 less."""


def ranges(sets: int) -> Found:
    """All tables, one in five of the sets."""
    sets = max(100, sets // 5)
    tables = (
        (
            "Means of values from 0 to 22: coverage of nominal 95 %, and mean width relative"
            " to the best valid method.",
            contests(20, sets, ("data", "n"), _mean_rows()),
        ),
        (
            "Called equivalent where the true difference is the margin, at 5 %. The differences"
            " are the values above, from -22 to 22, and the margin is their mean.",
            table(21, sets, ("data", "n"), _false_rows()),
        ),
        (
            "Equal models, with a margin: how often equivalence is shown.",
            table(22, sets, ("data", "margin", "n"), _shown_rows()),
        ),
    )
    text = "\n\n".join(f"{title}\n\n{found.text}" for title, found in tables)
    return Found(text, tuple(sentence for _, found in tables for sentence in found.missed))


def _mean_rows() -> dict[tuple[str, ...], Contest]:
    methods: dict[str, Callable[..., Interval]] = {
        "betting": lambda values: betting_interval(values, 0, _MOST),
        "t": t_interval,
        "t, with a step of 1": lambda values: mean_estimate(values, step=1).interval(
            low=0, high=_MOST
        ),
    }

    def drawn(draw: Draw, n: int) -> Callable[[np.random.Generator], tuple[Floats, ...]]:
        return lambda rng: (np.asarray(draw(rng, n), np.float64),)

    return {
        (name, str(n)): Contest(drawn(draw, n), truth, methods, LEAST)
        for name, (draw, truth) in DATA.items()
        for n in _SIZES
    }


def _false_rows() -> Rows:
    rows: dict[tuple[str, ...], Row] = {}
    for name, (draw, mean) in DATA.items():
        for n in (5, 20, 50):
            rows[name, str(n)] = {
                "with a range": Cell(_with_range(draw, mean, n, (n,)), most=MOST),
                "with a range, a look each 5": Cell(
                    _with_range(draw, mean, n, range(5, n + 1, 5)), most=MOST
                ),
                "without a range": Cell(_open(draw, mean, n)),
                "two t tests": Cell(_plain(draw, mean, n)),
            }
    return rows


def _with_range(
    draw: Draw, margin: float, n: int, looks: range | tuple[int, ...], shift: float = 0.0
) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        values = draw(rng, n) - shift
        return any(
            bounded_tost(values[:seen], -_MOST, _MOST, margin, planned=n).equivalent
            for seen in looks
        )

    return trial


def _open(draw: Draw, margin: float, n: int, shift: float = 0.0) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        values = draw(rng, n) - shift
        found = open_equivalence_test(np.zeros(n), values, paired=True, margin=margin)
        return found.test.equivalent

    return trial


def _plain(draw: Draw, margin: float, n: int, shift: float = 0.0) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        values = draw(rng, n) - shift
        return equivalence_test(np.zeros(n), values, paired=True, margin=margin).equivalent

    return trial


def _shown_rows() -> Rows:
    """Differences of two draws of the same data."""
    rows: dict[tuple[str, ...], Row] = {}
    for name in ("normal, mean 11, sd 3", "counts, mean 3.3", "80 % zeros"):
        draw = DATA[name][0]

        def between(rng: np.random.Generator, n: int, draw: Draw = draw) -> Floats:
            return np.asarray(draw(rng, n) - draw(rng, n), np.float64)

        for margin, n in ((2.0, 30), (2.0, 60), (1.0, 100)):
            rows[name, f"{margin:g}", str(n)] = {
                "with a range": Cell(_with_range(between, margin, n, (n,))),
                "without a range": Cell(_open(between, margin, n)),
                "two t tests": Cell(_plain(between, margin, n)),
            }
    return rows
