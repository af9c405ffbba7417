"""`python -m prove.looks`: what looking early and often costs and saves, by simulation."""

import argparse
import math
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.judge.looks import LATER_LOOKS
from assay.stats.intervals import t_quantile
from assay.stats.look_bounds import (
    Spending,
    error_of_looks,
    next_alpha,
    planned_alphas,
    z_bounds,
)
from assay.stats.sequential import Boundary, SequentialDesign
from assay.stats.sequential import looks as looks_at
from assay.types import Verdict

from .cells import Cell, Rows, Trial, table
from .parts import Found, markdown
from .shares import MOST

__all__ = ["looks", "stops"]

_ALPHA: Final = 0.05
_FIRST: Final = 5
_MOST: Final = (30, 200)
_EFFECT: Final = 0.8
_LEAST_POWER: Final = 0.8
"""Of the power of one look at the same largest number of pairs."""
_SEED: Final = 20_250_101
_AT_ONCE: Final = 5_000

_HEAD: Final = (
    "looks after each of",
    "rule",
    "wrong, normal",
    "wrong, exponential",
    "wrong, counts",
    "power at d = 0.8",
    "of one look's",
    "pairs at d = 0.8",
    "pairs at d = 0",
)

_FEW: Final = ((15, 30), (15, 20, 25, 30))
_FEW_EFFECT: Final = 0.6
_FEW_HEAD: Final = (
    "looks at",
    "rule",
    "alpha of each",
    "wrong, exact",
    "wrong, normal",
    "wrong, exponential",
    "power at d = 0.6",
    "of one look's",
    "pairs at d = 0.6",
)

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]


class _Stopped(NamedTuple):
    """How a rule of stopping did on many sets."""

    share: float
    """Of the sets in which it found a difference."""
    pairs: float
    """The mean number of pairs it took."""


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.standard_normal(shape)


def _skewed(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.standard_exponential(shape) - 1


def _counts(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Differences of two counts out of 22, each about 3: small whole numbers with many ties."""
    one, other = rng.binomial(22, 0.14, shape), rng.binomial(22, 0.14, shape)
    return (one - other).astype(np.float64)


def looks(sets: int = 20_000) -> Found:
    """Simulate; the targets are an error of 5 % and power at an effect of 0.8."""
    allowed = _ALPHA + 2 * math.sqrt(_ALPHA * (1 - _ALPHA) / sets)
    rows: list[list[str]] = []
    missed: list[str] = []
    for most in _MOST:
        fixed = _simulate(_one_look(most), _normal, _EFFECT, sets).share
        for name, bounds, has_targets in _rules(most):
            none = _simulate(bounds, _normal, 0.0, sets)
            found = _simulate(bounds, _normal, _EFFECT, sets)
            others = [_simulate(bounds, draw, 0.0, sets).share for draw in (_skewed, _counts)]
            rows.append(
                [
                    f"{_FIRST} to {most}",
                    name,
                    *(f"{share:.2%}" for share in (none.share, *others)),
                    f"{found.share:.1%}",
                    f"{found.share / fixed:.2f}",
                    f"{found.pairs:.1f}",
                    f"{none.pairs:.1f}",
                ]
            )
            if has_targets and none.share > allowed:
                missed.append(
                    f"{name} to {most}: {none.share:.2%} wrong, {allowed:.2%} allowed"
                )
            if has_targets and found.share < _LEAST_POWER * fixed:
                missed.append(
                    f"{name} to {most}: power {found.share:.1%}, one look {fixed:.1%}"
                )
    note = (
        f"{sets:,} sets in each cell; a share of 5 % is known to within "
        f"{allowed - _ALPHA:.2%} (two standard errors). Targets, for the first three rules: "
        f"normal data at most 5 % wrong within that error, and {_LEAST_POWER:.2f} of the power "
        "of one look."
    )
    shares = table(10, max(100, sets // 20), ("looks after each of", "rule"), _share_rows())
    few, more = _few_looks(sets)
    text = f"{markdown(_HEAD, rows)}\n\n{note}\n\nShares, in percent.\n\n{shares.text}"
    return Found(f"{text}\n\nA few looks.\n\n{few}", (*missed, *shares.missed, *more))


def _few_looks(sets: int) -> tuple[str, list[str]]:
    """Looks of `assay analysis` while 15 pairs become 30; targets are what they promise."""
    rows: list[list[str]] = []
    missed: list[str] = []
    for counts in _FEW:
        fixed = _simulate(_one_look(counts[-1]), _normal, _FEW_EFFECT, sets).share
        for name, alphas, promised in _few_rules(counts):
            bounds = np.full(counts[-1], math.inf)
            for count, alpha in zip(counts, alphas, strict=True):
                bounds[count - 1] = t_quantile(count - 1, 1 - alpha / 2)
            none = _simulate(bounds, _normal, 0.0, sets)
            skewed = _simulate(bounds, _skewed, 0.0, sets).share
            found = _simulate(bounds, _normal, _FEW_EFFECT, sets)
            exact = error_of_looks(list(zip(counts, alphas, strict=True)))
            rows.append(
                [
                    ", ".join(map(str, counts)),
                    name,
                    ", ".join(f"{alpha:.4f}" for alpha in alphas),
                    *(f"{share:.2%}" for share in (exact, none.share, skewed)),
                    f"{found.share:.1%}",
                    f"{found.share / fixed:.2f}",
                    f"{found.pairs:.1f}",
                ]
            )
            if promised and none.share > promised + 2 * math.sqrt(promised / sets):
                missed.append(f"{name} {counts}: {none.share:.2%} wrong, {promised:.2%} said")
    return markdown(_FEW_HEAD, rows), missed


def _few_rules(counts: tuple[int, ...]) -> list[tuple[str, list[float], float | None]]:
    """Names, the alpha of each look, and what is promised of all of them."""
    unplanned = [_ALPHA]
    for number, count in enumerate(counts[1:], start=2):
        before = list(zip(counts, unplanned, strict=False))
        spend = _ALPHA * LATER_LOOKS / 2 ** (number - 1)
        unplanned.append(min(_ALPHA, next_alpha(before, count, spend)))
    return [
        ("5 % at each", [_ALPHA] * len(counts), None),
        *((f"planned, {k}", planned_alphas(k, counts, _ALPHA), _ALPHA) for k in Spending),
        ("not planned", unplanned, _ALPHA * (1 + LATER_LOOKS)),
    ]


def _share_rows() -> Rows:
    """Shares that are equal, and shares that differ by the margin."""
    return {
        (f"{_FIRST} to {most}", kind.value): {
            "wrong, both 0.5": Cell(
                _decides(kind, most, 0.2, 0.5, 0.5, differ=True), most=MOST
            ),
            **{
                f"called equal at the margin {margin:g}": Cell(
                    _decides(kind, most, margin, 1, 1 - margin, differ=False), most=MOST
                )
                for margin in (0.1, 0.2)
            },
        }
        for most in (30, 60)
        for kind in Boundary
    }


def _decides(
    kind: Boundary, most: int, margin: float, a: float, b: float, *, differ: bool
) -> Trial:
    """Whether looks end with a difference, or else with none that matters."""
    design = SequentialDesign(kind=kind, most=most, min_effect=margin, shares=True)

    def trial(rng: np.random.Generator) -> bool:
        won, lost = rng.random(most) < b, rng.random(most) < a
        drawn = won.astype(np.float64) - lost.astype(np.float64)
        found = looks_at(drawn, design, ended=True)[-1]
        if differ:
            return found.decision in (Verdict.BETTER, Verdict.WORSE)
        return found.decision is Verdict.NO_DIFFERENCE

    return trial


def _rules(most: int) -> list[tuple[str, NDArray[np.float64], bool]]:
    """Names, bounds of |t| at 1 to `most` pairs, and whether the targets are for them."""
    from scipy.special import ndtr, stdtrit

    pairs = np.arange(_FIRST, most + 1)
    rules = [
        (
            kind.value,
            _padded(SequentialDesign(kind=kind, most=most).bounds(pairs.tolist())),
            True,
        )
        for kind in Boundary
    ]
    z = z_bounds(Spending.POCOCK, list(pairs / most), _ALPHA)
    usual = -stdtrit(pairs - 1, ndtr(-z))
    naive = stdtrit(pairs - 1, 1 - _ALPHA / 2)
    rules.append(("pocock, bounds of z by p-value", _padded(usual), False))
    rules.append(("paired t at every look", _padded(naive), False))
    rules.append(("paired t, one look at the end", _one_look(most), False))
    return rules


def _padded(bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([np.full(_FIRST - 1, math.inf), bounds])


def _one_look(most: int) -> NDArray[np.float64]:
    from scipy.special import stdtrit

    bounds = np.full(most, math.inf)
    bounds[-1] = stdtrit(most - 1, 1 - _ALPHA / 2)
    return bounds


def _simulate(bounds: NDArray[np.float64], draw: Draw, effect: float, sets: int) -> _Stopped:
    """Look at sets of differences until |t| passes its bound; the same sets for all rules."""
    rng = np.random.Generator(np.random.PCG64(_SEED))
    found = [
        stops(draw(rng, (min(_AT_ONCE, sets - start), len(bounds))) + effect, bounds)
        for start in range(0, sets, _AT_ONCE)
    ]
    stopped = np.concatenate(found)
    taken = np.where(stopped > 0, stopped, len(bounds))
    return _Stopped(float((stopped > 0).mean()), float(taken.mean()))


def stops(
    differences_S_N: NDArray[np.float64], bounds: NDArray[np.float64]
) -> NDArray[np.int_]:
    """After how many pairs each set stopped; 0 if it never did."""
    n = np.arange(1, len(bounds) + 1)
    sums, squares = differences_S_N.cumsum(axis=1), (differences_S_N**2).cumsum(axis=1)
    spread = np.maximum(squares - sums**2 / n, 0.0)
    # Sets without any spread are not looked at; `SequentialDesign` looks if pairs are many.
    known = spread > 1e-9 * np.maximum(squares, 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(sums) * np.sqrt((n - 1) / (n * spread))
    passed = known & (t > bounds)
    return np.where(passed.any(axis=1), passed.argmax(axis=1) + 1, 0)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m prove.looks", description=__doc__)
    parser.add_argument("--sets", type=int, default=20_000, help="simulated sets for each cell")
    found = looks(parser.parse_args(arguments).sets)
    print(found.text)
    for sentence in found.missed:
        print(f"MISSED: {sentence}")
    return 1 if found.missed else 0


if __name__ == "__main__":
    sys.exit(main())
