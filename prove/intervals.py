"""Coverage and width of the intervals of a mean, on data whose true mean is known.

A part of `python -m prove.statistics`. It calls the public function, as anyone would.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.stats.intervals import Interval, Method, mean_interval, skewness_note

from .parts import Found, markdown

__all__ = ["Cell", "intervals", "measure", "plain_studentised"]

SIZES = (5, 10, 15, 30)
METHODS = (Method.AUTO, Method.T, Method.PERCENTILE, Method.BCA, Method.STUDENTISED)
RESAMPLES = 999
"""So many that the tails of 2.5 % are whole numbers of resamples."""
_ORACLE_PART = 10
"""One set of so many goes through the plain loop too."""


class Data(NamedTuple):
    """A distribution with a known mean."""

    draw: Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
    mean: float


DATA = {
    "normal": Data(lambda rng, shape: rng.normal(0, 1, shape), 0.0),
    "exponential": Data(lambda rng, shape: rng.exponential(1, shape), 1.0),
    "lognormal": Data(lambda rng, shape: rng.lognormal(0, 1, shape), math.exp(0.5)),
}


class Cell(NamedTuple):
    """What one distribution at one size gave."""

    data: str
    n: int
    sets: int
    coverage: dict[Method, float]
    width: dict[Method, float]
    """The mean width over that of Student's t."""
    noted: float
    """The share of sets that get the note on skewness."""
    oracle: tuple[int, float, float]
    """Sets, and the share of them that `studentised` and the plain loop cover."""


def measure(data: str, n: int, sets: int, resamples: int = RESAMPLES) -> Cell:
    """Draw sets of n values and see which intervals hold the true mean."""
    which = list(DATA).index(data)
    rng = np.random.default_rng([2026, which, n])
    samples_S_N, truth = DATA[data].draw(rng, (sets, n)), DATA[data].mean
    found: dict[Method, list[Interval]] = {
        method: [
            mean_interval(sample, method=method, rng=rng, n_resamples=resamples)
            for sample in samples_S_N
        ]
        for method in METHODS
    }
    widths = {m: float(np.mean([i.high - i.low for i in found[m]])) for m in METHODS}
    some = samples_S_N[: max(1, sets // _ORACLE_PART)]
    loop = random.Random(f"{data} {n}")
    plain = [plain_studentised(sample.tolist(), resamples, loop) for sample in some]
    return Cell(
        data,
        n,
        sets,
        {method: _share(found[method], truth) for method in METHODS},
        {method: widths[method] / widths[Method.T] for method in METHODS},
        float(np.mean([skewness_note(sample) is not None for sample in samples_S_N])),
        (
            len(some),
            _share(found[Method.STUDENTISED][: len(some)], truth),
            _share(plain, truth),
        ),
    )


def plain_studentised(values: Sequence[float], resamples: int, loop: random.Random) -> Interval:
    """The studentised bootstrap at 95 % as a textbook says it, one resample at a time.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5. It shares
    nothing with `assay.stats`: other random numbers, other sums, order statistics in place
    of quantiles between them, and resamples without spread are drawn again.
    """
    n = len(values)
    mean, error = _mean_and_error(values)
    found: list[float] = []
    while len(found) < resamples:
        again, spread = _mean_and_error(loop.choices(values, k=n))
        if spread > 0:
            found.append((again - mean) / spread)
    found.sort()
    cut = round(0.025 * (resamples + 1))
    return Interval(mean, mean - found[-cut] * error, mean - found[cut - 1] * error)


def intervals(sets: int) -> Found:
    """Measure all cells, and hold them against what is promised."""
    cells = [measure(data, n, sets) for data in DATA for n in SIZES]
    missed = [sentence for cell in cells for sentence in _missed(cell)]
    error = 100 * math.sqrt(0.05 * 0.95 / sets)
    text = "\n\n".join(
        [
            f"Coverage in percent of nominal 95 % and, after the stroke, mean width over that"
            f" of Student's t. {sets:,} sets a cell, {RESAMPLES:,} resamples; one Monte Carlo"
            f" standard error at 95 % is {error:.2f}.",
            markdown(["data", "n", *METHODS], [_row(cell) for cell in cells]),
            "`studentised` beside a plain loop on the same sets, and the share of sets that"
            " get the note on skewness.",
            markdown(
                ["data", "n", "sets", "studentised", "plain loop", "note"],
                [_oracle_row(cell) for cell in cells],
            ),
        ]
    )
    return Found(text, tuple(missed))


def _missed(cell: Cell) -> list[str]:
    where = f"{cell.data} data, n = {cell.n}"
    default, student = cell.coverage[Method.AUTO], cell.coverage[Method.T]
    _, ours, plain = cell.oracle
    checks = [
        (cell.data != "normal" or default >= 0.94, f"the default covers {default:.2%} < 94 %"),
        (cell.width[Method.AUTO] <= 1.10, f"the default is {cell.width[Method.AUTO]:.2f}x t"),
        (default >= student - 0.005, f"the default covers {default:.2%}, t {student:.2%}"),
        (abs(ours - plain) <= 0.01, f"studentised covers {ours:.2%}, the loop {plain:.2%}"),
    ]
    return [f"{where}: {sentence}" for holds, sentence in checks if not holds]


def _row(cell: Cell) -> list[str]:
    figures = [f"{100 * cell.coverage[m]:.1f} / {cell.width[m]:.2f}" for m in METHODS]
    return [cell.data, str(cell.n), *figures]


def _oracle_row(cell: Cell) -> list[str]:
    sets, ours, plain = cell.oracle
    shares = [f"{100 * share:.1f}" for share in (ours, plain, cell.noted)]
    return [cell.data, str(cell.n), f"{sets:,}", *shares]


def _share(found: Sequence[Interval], truth: float) -> float:
    return sum(one.low <= truth <= one.high for one in found) / len(found)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    squares = sum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1) / len(values))
