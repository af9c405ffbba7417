"""Differences, sizes, clusters, tests and plans, on data whose truth is known.

A part of `python -m prove.statistics`. It calls the public functions, as anyone would. Every
cell of a table draws its own sets, from a seed that follows from its place.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from assay.stats.clusters import clustered_difference, clustered_mean, hierarchical_bootstrap
from assay.stats.differences import (
    paired_difference,
    ratio_of_means,
    relative_change,
    unpaired_difference,
)
from assay.stats.effects import cliffs_delta, cohens_d, cohens_dz, probability_of_improvement
from assay.stats.intervals import Interval, t_interval

from .cells import (
    RESAMPLES,
    SIZES,
    Cell,
    Draw,
    Floats,
    Kind,
    Row,
    Rows,
    Trial,
    Two,
    counts,
    covers,
    normal,
    skewed,
    table,
)
from .parts import Found
from .rejections import many_rows, plans, rejection_rows
from .shares import LEAST

__all__ = ["differences"]

_ENDS = (SIZES[0], SIZES[-1])
_QUICK, _SLOW = 4, 10
"""One of so many sets is enough: for what takes little time, and for the rest."""


def differences(sets: int) -> Found:
    """Measure all tables, and hold them against what is promised."""
    quick, slow = max(100, sets // _QUICK), max(100, sets // _SLOW)
    tables = (
        (
            "Differences and ratios: coverage in percent of nominal 95 %.",
            table(1, quick, ("data", "n"), _difference_rows()),
        ),
        (
            "Sizes of an effect: coverage in percent of nominal 95 %.",
            table(2, slow, ("data", "true d", "n"), _size_rows()),
        ),
        (
            "Pairing, normal data: in how many sets of 100 the paired interval is wider than"
            " Welch's, and how many intervals hold the truth.",
            table(3, slow, ("correlation", "n"), _pairing_rows()),
        ),
        (
            "A mean of runs x tasks x episodes, with standard deviations between runs, between"
            " tasks of a run, and between episodes: coverage in percent of nominal 95 %.",
            table(4, slow, ("runs x tasks x episodes", "sd"), _nested_rows()),
        ),
        (
            "A difference of trials in clusters: coverage in percent of nominal 95 %.",
            table(5, quick, ("clusters", "trials in each"), _cluster_rows()),
        ),
        (
            "Tests where there is nothing to find: rejections in percent at nominal 5 %.",
            table(6, slow, ("data", "n"), rejection_rows()),
        ),
        (
            "Four models that are equal: in how many sets of 100 some pair is told apart.",
            table(7, slow, ("n",), many_rows()),
        ),
        ("Plans from a pilot.", plans(slow)),
    )
    text = "\n\n".join(f"{title}\n\n{found.text}" for title, found in tables)
    return Found(text, tuple(sentence for _, found in tables for sentence in found.missed))


def _difference_rows() -> Rows:
    kinds = {
        "normal, sd 1 and 1": (normal(1, mean=5), 5.0, 6.0, True),
        "normal, sd 1 and 3": (normal(1, 3, mean=5), 5.0, 6.0, True),
        "exponential": (skewed(), 5.0, 6.0, False),
        "counts": (counts(0.06), 22 * 0.14, 22 * 0.2, False),
    }
    rows: dict[tuple[str, ...], Row] = {}
    for name, (kind, a, b, promised) in kinds.items():
        exact, near = (0.95, 0.94) if promised else (None, None)
        for n in SIZES:
            rows[name, str(n)] = {
                "paired": Cell(covers(paired_difference, kind.pairs, n, b - a), exact),
                "unpaired": Cell(covers(unpaired_difference, kind.apart, n, b - a), near),
                "ratio, paired": Cell(
                    covers(_with(ratio_of_means, paired=True), kind.pairs, n, b / a), exact
                ),
                "relative change, unpaired": Cell(
                    covers(_with(relative_change, paired=False), kind.apart, n, (b - a) / a),
                    near,
                ),
            }
    return rows


Compare = Callable[[Floats, Floats], Interval]


def _with(
    find: Callable[..., Interval], *, paired: bool
) -> Callable[[Floats, Floats], Interval]:
    return lambda a, b: find(a, b, paired=paired)


def _poisson() -> Kind:
    """Means of 2 and 3 with many ties; pairs have a part of mean 1 in common."""

    def count(rng: np.random.Generator, mean: float, n: int) -> Floats:
        return rng.poisson(mean, n).astype(np.float64)

    def pairs(rng: np.random.Generator, n: int) -> Two:
        shared = count(rng, 1, n)
        return shared + count(rng, 1, n), shared + count(rng, 2, n)

    return Kind(pairs, lambda rng, n: (count(rng, 2, n), count(rng, 3, n)))


def _size_rows() -> Rows:
    from scipy.special import ndtr

    rows: dict[tuple[str, ...], Row] = {}
    for sd, d in ((1.0, 0.8), (1.0, 2.0), (3.0, 0.8)):
        by = d * math.sqrt((1 + sd**2) / 2)
        within = math.sqrt(1 + sd**2 - 2 * 0.6 * sd)
        truth = (d, by / within, ndtr(by / math.hypot(1, sd)), ndtr(by / within))
        for n in _ENDS:
            name = (f"normal, sd 1 and {sd:.0f}", f"{d:g}", str(n))
            rows[name] = _size_cells(normal(by, sd), n, truth, exact=sd == 1)
    a, b = (_poisson_chances(mean) for mean in (2, 3))
    less, more = (_poisson_chances(mean) for mean in (1, 2))
    d = 1 / math.sqrt(2.5)
    truth = (d, 1 / math.sqrt(3), _beats(a, b), _beats(less, more))
    for n in _ENDS:
        cells = _size_cells(_poisson(), n, truth, exact=False)
        rows["counts with ties", f"{d:.1f}", str(n)] = cells
    return rows


def _size_cells(
    kind: Kind, n: int, truth: tuple[float, float, float, float], *, exact: bool
) -> Row:
    d, dz, apart, pairs = truth
    share = _with(probability_of_improvement, paired=False)
    delta = _with(cliffs_delta, paired=True)
    least = 0.95 if exact else None
    return {
        "d": Cell(covers(cohens_d, kind.apart, n, d), least),
        "d_av, paired": Cell(covers(_with(cohens_d, paired=True), kind.pairs, n, d)),
        "dz, paired": Cell(covers(cohens_dz, kind.pairs, n, dz), least),
        "P(b > a)": Cell(covers(share, kind.apart, n, apart), 0.94 if exact else None),
        "Cliff's delta, paired": Cell(covers(delta, kind.pairs, n, 2 * pairs - 1)),
    }


def _poisson_chances(mean: float) -> Floats:
    return np.array([math.exp(-mean) * mean**k / math.factorial(k) for k in range(40)])


def _beats(a: Floats, b: Floats) -> float:
    """P(b > a) + P(tie) / 2 of two counts."""
    both = np.outer(b, a)
    return float(np.tril(both, -1).sum() + np.trace(both) / 2)


def _pairing_rows() -> Rows:
    rows: dict[tuple[str, ...], Row] = {}
    for correlation in (0.0, 0.3, 0.6):
        draw = normal(1, correlation=correlation).pairs
        for n in _ENDS:
            rows[f"{correlation:g}", str(n)] = {
                "the paired one is wider": Cell(_wider(draw, n)),
                "paired holds": Cell(covers(paired_difference, draw, n, 1), 0.95),
                "Welch's holds": Cell(covers(unpaired_difference, draw, n, 1)),
                "the shorter holds": Cell(covers(_shorter, draw, n, 1)),
            }
    return rows


def _wider(draw: Draw, n: int) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        a, b = draw(rng, n)
        return paired_difference(a, b).half_width > unpaired_difference(a, b).half_width

    return trial


def _shorter(a: Floats, b: Floats) -> Interval:
    both = (paired_difference(a, b), unpaired_difference(a, b))
    return min(both, key=lambda interval: interval.half_width)


def _nested_rows() -> Rows:
    rows: dict[tuple[str, ...], Row] = {}
    far, near = (1.0, 0.5, 1.0), (0.2, 0.2, 1.0)
    for (runs, tasks, episodes), sds in (
        ((5, 3, 4), far),
        ((5, 3, 4), near),
        ((15, 3, 4), far),
    ):
        drawn = _nested(runs, tasks, episodes, sds)
        by_run = np.repeat(np.arange(runs), tasks * episodes)
        by_task = np.tile(np.repeat(np.arange(tasks), episodes), runs)
        rows[f"{runs} x {tasks} x {episodes}", ", ".join(f"{sd:g}" for sd in sds)] = {
            "t, as if independent": Cell(_holds_zero(drawn, lambda y, _: t_interval(y))),
            "clustered by run": Cell(_holds_zero(drawn, _by_cluster(by_run)), 0.95),
            "all levels drawn": Cell(_holds_zero(drawn, _bootstrap([by_run, by_task])), 0.95),
            "runs alone drawn": Cell(
                _holds_zero(drawn, _bootstrap([by_run, by_task], 1)), 0.90
            ),
        }
    return rows


Nested = Callable[[np.random.Generator], Floats]
Find = Callable[[Floats, np.random.Generator], Interval]


def _nested(runs: int, tasks: int, episodes: int, sds: Sequence[float]) -> Nested:
    shapes = ((runs, 1, 1), (runs, tasks, 1), (runs, tasks, episodes))
    return lambda rng: np.ravel(
        sum(sd * rng.standard_normal(shape) for sd, shape in zip(sds, shapes, strict=True))
    )


def _holds_zero(drawn: Nested, find: Find) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        found = find(drawn(rng), rng)
        return found.low <= 0 <= found.high

    return trial


def _by_cluster(labels: NDArray[np.int64]) -> Find:
    return lambda y, rng: clustered_mean(y, labels)


def _bootstrap(groups: list[NDArray[np.int64]], resampled: int | None = None) -> Find:
    return lambda y, rng: hierarchical_bootstrap(
        y, groups, resampled=resampled, rng=rng, n_resamples=RESAMPLES
    )


def _cluster_rows() -> Rows:
    rows: dict[tuple[str, ...], Row] = {}
    for clusters in (5, 10, 20):
        for sizes in ([4] * clusters, [1 + 7 * (at % 2) for at in range(clusters)]):
            labels = np.repeat(np.arange(clusters), sizes)
            equal = len(set(sizes)) == 1
            rows[str(clusters), "4" if equal else "1 or 8"] = {
                "Welch, as if independent": _clustered(labels, _unclustered, 0.5),
                "pairs": _clustered(labels, _pairs, 0.5, 0.95 if equal else LEAST),
                "the same clusters": _clustered(labels, _same, 0.5, 0.95 if equal else LEAST),
                "other clusters": _clustered(labels, _other, 0.0, LEAST),
            }
    return rows


Clustered = Callable[[Floats, Floats, NDArray[np.int64]], Interval]


def _clustered(
    labels: NDArray[np.int64], find: Clustered, common: float, least: float | None = None
) -> Cell:
    """Clusters differ by 1, of which a share is common to both sides; trials by 1."""

    def trial(rng: np.random.Generator) -> bool:
        world, *own = rng.standard_normal((3, labels.max() + 1))
        a, b = (
            (math.sqrt(common) * world + math.sqrt(1 - common) * one)[labels]
            + rng.standard_normal(len(labels))
            for one in own
        )
        found = find(a, b, labels)
        return found.low <= 0 <= found.high

    return Cell(trial, least)


def _unclustered(a: Floats, b: Floats, labels: NDArray[np.int64]) -> Interval:
    return unpaired_difference(a, b)


def _pairs(a: Floats, b: Floats, labels: NDArray[np.int64]) -> Interval:
    return clustered_difference(a, b, labels)


def _same(a: Floats, b: Floats, labels: NDArray[np.int64]) -> Interval:
    return clustered_difference(a, b, labels, labels)


def _other(a: Floats, b: Floats, labels: NDArray[np.int64]) -> Interval:
    return clustered_difference(a, b, labels, labels + 1_000)
