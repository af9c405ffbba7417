"""Tables of shares over many sets: how they are counted, held to promises, and drawn for."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.stats.intervals import Interval

from .parts import Found, markdown

__all__ = [
    "RESAMPLES",
    "SEED",
    "SIZES",
    "Cell",
    "Contest",
    "Draw",
    "Floats",
    "Kind",
    "Row",
    "Rows",
    "Trial",
    "Two",
    "contests",
    "counts",
    "covers",
    "held",
    "measured",
    "normal",
    "skewed",
    "table",
]

SIZES: Final = (5, 10, 15)
RESAMPLES: Final = 999
SEED: Final = 2_026

Floats = NDArray[np.float64]
Two = tuple[Floats, Floats]
Draw = Callable[[np.random.Generator, int], Two]
Trial = Callable[[np.random.Generator], bool | None]
"""One set: whether the interval holds the truth, or the test rejects it; None: no bounds."""


class Cell(NamedTuple):
    """What is counted in one cell of a table, and what is promised of it."""

    trial: Trial
    least: float | None = None
    """The share is at least this, up to three standard errors."""
    most: float | None = None
    """The share is at most this, up to three standard errors."""


class Kind(NamedTuple):
    """Two samples of n values: in pairs, and independent of each other."""

    pairs: Draw
    apart: Draw


Row = dict[str, Cell]
"""Cells by the name of their column."""
Rows = Mapping[tuple[str, ...], Row]
"""Rows by their labels."""


def measured(cell: Cell, rng: np.random.Generator, sets: int) -> tuple[float, float]:
    """The share of the sets with bounds that count, and the share without bounds."""
    found = [cell.trial(rng) for _ in range(sets)]
    known = [one for one in found if one is not None]
    return (sum(known) / len(known) if known else math.nan), 1 - len(known) / sets


def table(number: int, sets: int, labels: Sequence[str], rows: Rows) -> Found:
    """Measure every cell, each from a seed of its own, and name the promises missed."""
    columns = list(next(iter(rows.values())))
    lines, missed = [], []
    for at, (names, cells) in enumerate(rows.items()):
        line = list(names)
        for place, column in enumerate(columns):
            cell = cells[column]
            rng = np.random.default_rng([SEED, number, at, place])
            share, unknown = measured(cell, rng, sets)
            line.append(_text(share, unknown))
            where = f"{', '.join(names)}, {column}"
            missed += [
                f"{where}: {sentence}"
                for sentence in held(share, sets, least=cell.least, most=cell.most)
            ]
        lines.append(line)
    note = f"{sets:,} sets a cell."
    return Found(f"{markdown([*labels, *columns], lines)}\n\n{note}", tuple(missed))


def _text(share: float, unknown: float) -> str:
    return f"{100 * share:.1f}" + (f" ({100 * unknown:.1f} none)" if unknown else "")


def held(
    share: float, sets: int, *, least: float | None = None, most: float | None = None
) -> list[str]:
    """A sentence for each bound that a share misses by more than three standard errors."""
    found = []
    for bound, sign, word in ((least, 1, "at least"), (most, -1, "at most")):
        if bound is None:
            continue
        slack = 3 * math.sqrt(bound * (1 - bound) / sets)
        if not sign * (share - bound) >= -slack:
            found.append(f"{share:.2%}, {word} {bound:.0%} promised ({slack:.2%} of chance)")
    return found


def covers(find: Callable[..., Interval], draw: Draw, n: int, truth: float) -> Trial:
    """Whether the interval that is found for n values of both holds the truth."""

    def trial(rng: np.random.Generator) -> bool | None:
        found = find(*draw(rng, n))
        return found.low <= truth <= found.high if found.known else None

    return trial


def normal(
    difference: float, sd: float = 1.0, *, correlation: float = 0.6, mean: float = 0.0
) -> Kind:
    """A has a standard deviation of 1, b of `sd`."""

    def draw(rng: np.random.Generator, n: int, shared: float) -> Two:
        one, other = rng.standard_normal((2, n))
        other = shared * one + math.sqrt(1 - shared**2) * other
        return mean + one, mean + difference + sd * other

    return Kind(lambda rng, n: draw(rng, n, correlation), lambda rng, n: draw(rng, n, 0.0))


def skewed() -> Kind:
    """Means of 5 and 6; in pairs an exponential on top of the same exponential."""
    return Kind(
        lambda rng, n: ((a := rng.exponential(5, n)), a + rng.exponential(1, n)),
        lambda rng, n: (rng.exponential(5, n), rng.exponential(6, n)),
    )


def counts(more: float) -> Kind:
    """Achievements out of 22, of worlds that are easy or hard; b has 22 `more` on average."""

    def draw(ease_a: Floats, ease_b: Floats, rng: np.random.Generator) -> Two:
        a, b = rng.binomial(22, ease_a), rng.binomial(22, ease_b + more)
        return a.astype(np.float64), b.astype(np.float64)

    def ease(rng: np.random.Generator, n: int) -> Floats:
        return rng.uniform(0.04, 0.24, n)

    return Kind(
        lambda rng, n: draw((worlds := ease(rng, n)), worlds, rng),
        lambda rng, n: draw(ease(rng, n), ease(rng, n), rng),
    )


class Contest(NamedTuple):
    """Intervals of several methods for the same sets."""

    draw: Callable[[np.random.Generator], tuple[Floats, ...]]
    truth: float
    methods: Mapping[str, Callable[..., Interval]]
    """By the name of their column; the first is the one that is used."""
    least: float | None = None
    """Coverage that is promised of the one that is used."""
    widest: float | None = None
    """Its mean width is at most this, relative to the best valid method."""


def contests(
    number: int, sets: int, labels: Sequence[str], rows: Mapping[tuple[str, ...], Contest]
) -> Found:
    """Coverage and, after the stroke, mean width relative to the best valid method.

    The best valid method of a row is the one with the smallest mean width among those with a
    coverage of at least 94 %, up to three Monte Carlo errors.
    """
    lines, missed = [], []
    slack = 3 * math.sqrt(0.94 * 0.06 / sets)
    for at, (names, row) in enumerate(rows.items()):
        rng = np.random.default_rng([SEED, number, at])
        found = {name: list[tuple[bool, float]]() for name in row.methods}
        for _ in range(sets):
            data = row.draw(rng)
            for name, find in row.methods.items():
                one = find(*data)
                found[name].append((one.low <= row.truth <= one.high, one.high - one.low))
        means = {name: tuple(np.mean(all_, axis=0).tolist()) for name, all_ in found.items()}
        valid = [width for covered, width in means.values() if covered >= 0.94 - slack]
        best = min(valid, default=math.nan)
        lines.append(
            [
                *names,
                *(f"{100 * held:.1f} / {width / best:.2f}" for held, width in means.values()),
            ]
        )
        held_by, width = next(iter(means.values()))
        where = ", ".join(names)
        missed += [f"{where}: {text}" for text in held(held_by, sets, least=row.least)]
        if row.widest is not None and not width / best <= row.widest:
            missed.append(f"{where}: {width / best:.2f} times the best valid width")
    columns = list(next(iter(rows.values())).methods)
    note = f"{sets:,} sets a row; 1.00 is the best method with a coverage of 94 % or more."
    return Found(f"{markdown([*labels, *columns], lines)}\n\n{note}", tuple(missed))
