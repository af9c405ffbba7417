"""How often tests reject what is true, and what plans from a small pilot are worth."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Final

import numpy as np

from assay.stats.multiplicity import benjamini_hochberg, holm
from assay.stats.power import Needed, power_of, trials_for_precision, trials_needed
from assay.stats.significance import (
    TestResult,
    equivalence_test,
    mann_whitney_test,
    paired_t_test,
    permutation_test,
    sign_flip_test,
    welch_t_test,
    wilcoxon_test,
)

from .cells import (
    RESAMPLES,
    SEED,
    SIZES,
    Cell,
    Draw,
    Floats,
    Kind,
    Row,
    Rows,
    Trial,
    counts,
    held,
    normal,
)
from .parts import Found, markdown

__all__ = ["many_rows", "plans", "rejection_rows"]

_EFFECT: Final = 0.5
"""What plans are made for, in true standard deviations."""
_PRECISION: Final = 0.05
_PILOTS: Final = (5, 10, 15, 30)

Test = Callable[[Floats, Floats, np.random.Generator], float]
"""A p-value."""


def rejection_rows() -> Rows:
    """Two samples that differ in nothing, or in everything but their means."""
    bent = Kind(*[lambda rng, n: (rng.standard_normal(n), rng.exponential(1, n) - 1)] * 2)
    wide = Kind(
        normal(0, 3, correlation=0).pairs,
        lambda rng, n: (rng.standard_normal(3 * n), 3 * rng.standard_normal(n)),
    )
    kinds = {
        "normal, sd 1 and 1": (normal(0, correlation=0), True, True),
        "counts": (counts(0), True, True),
        "normal, sd 1 and 3; unpaired 3n and n values": (wide, True, False),
        "normal and exponential": (bent, False, False),
    }
    rows: dict[tuple[str, ...], Row] = {}
    for name, (kind, symmetric, alike) in kinds.items():
        for n in SIZES if alike else (SIZES[0], SIZES[-1]):
            rows[name, str(n)] = _test_cells(kind, n, symmetric=symmetric, alike=alike)
    return rows


def _test_cells(kind: Kind, n: int, *, symmetric: bool, alike: bool) -> Row:
    pairs, apart = kind
    paired, unpaired = 0.05 if symmetric else None, 0.05 if alike else None

    def rejects(test: Callable[..., float], draw: Draw) -> Trial:
        return lambda rng: test(*draw(rng, n), rng) <= 0.05

    return {
        "paired t": Cell(rejects(_p(paired_t_test), pairs), most=paired),
        "sign-flip": Cell(
            rejects(lambda a, b, rng: sign_flip_test(b - a).p_value, pairs), most=paired
        ),
        "Wilcoxon": Cell(rejects(_p(wilcoxon_test), pairs), most=paired),
        "equivalence at the margin": Cell(rejects(_equivalence, pairs), most=paired),
        "Welch": Cell(rejects(_p(welch_t_test), apart), most=unpaired),
        "permutation": Cell(rejects(_permutation, apart), most=unpaired),
        "Mann-Whitney": Cell(rejects(_p(mann_whitney_test), apart), most=unpaired),
    }


def _p(test: Callable[[Floats, Floats], TestResult]) -> Test:
    return lambda a, b, rng: test(a, b).p_value


def _permutation(a: Floats, b: Floats, rng: np.random.Generator) -> float:
    return permutation_test(a, b, rng=rng, n_resamples=RESAMPLES).p_value


def _equivalence(a: Floats, b: Floats, rng: np.random.Generator) -> float:
    """Of a true difference that just matters: 10, where the data differ by 0."""
    return equivalence_test(a, b + 10, paired=True, margin=10).p_value


def many_rows() -> Rows:
    """Four equal models, compared in all six pairs of n worlds."""
    return {
        (str(n),): {
            "six tests at 5 %": Cell(_told_apart(n, np.asarray)),
            "Holm": Cell(_told_apart(n, holm), most=0.05),
            "Benjamini-Hochberg": Cell(_told_apart(n, benjamini_hochberg), most=0.05),
        }
        for n in (SIZES[0], SIZES[-1])
    }


def _told_apart(n: int, adjust: Callable[[list[float]], Floats]) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        worlds = rng.standard_normal(n)
        models = [worlds + rng.standard_normal(n) for _ in range(4)]
        p_values = [paired_t_test(a, b).p_value for a, b in combinations(models, 2)]
        return bool(min(adjust(p_values)) <= 0.05)

    return trial


def plans(sets: int) -> Found:
    """Numbers of trials that pilots of normal values lead to, beside the right ones."""
    pairs, arms = (trials_needed(_EFFECT, 1, paired=paired).trials for paired in (True, False))
    steady, loose = (math.ceil((cv / _PRECISION) ** 2 - 1e-9) for cv in (0.2, 0.5))
    head = (
        "pilot",
        f"range holds {pairs} pairs",
        "the middle range",
        "planned, 80 % of pilots",
        "power it has, mean",
        "power below 50 %",
        f"range holds {arms} of each arm",
        f"range holds {steady} for a precise mean, sd / mean 0.2",
        f"{loose}, sd / mean 0.5",
        "without an upper end",
    )
    lines, missed = [], list[str]()
    for at, pilot in enumerate(_PILOTS):
        rng = np.random.default_rng([SEED, 8, at])
        found = [_planned(rng.standard_normal(pilot), True) for _ in range(sets)]
        trials = np.array([one.trials for one in found])
        power = _powers(trials)
        apart = [_planned(rng.standard_normal((2, pilot)), False) for _ in range(sets)]
        precise = [_precise(rng.normal(1, 0.2, pilot)) for _ in range(sets)]
        rough = [_precise(rng.normal(1, 0.5, pilot)) for _ in range(sets)]
        holds = {
            "pairs": _holding(found, pairs),
            "arms": _holding(apart, arms),
            "sd / mean 0.2": _holding(precise, steady),
            "sd / mean 0.5": _holding(rough, loose),
        }
        missed += [
            f"plans from {pilot} values, {name}: {sentence}"
            for name, share in holds.items()
            for sentence in held(share, sets, least=0.95)
        ]
        shares = [f"{100 * share:.1f}" for share in holds.values()]
        low, high = (np.median([getattr(one, end) for one in found]) for end in ("low", "high"))
        lines.append(
            [
                str(pilot),
                shares[0],
                f"{low:.0f} to {high:.0f}",
                f"{np.quantile(trials, 0.1):.0f} to {np.quantile(trials, 0.9):.0f}",
                f"{100 * power.mean():.1f}",
                f"{100 * (power < 0.5).mean():.1f}",
                *shares[1:],
                f"{100 * np.mean([one.high is None for one in rough]):.1f}",
            ]
        )
    return Found(f"{markdown(head, lines)}\n\n{sets:,} pilots a row.", tuple(missed))


def _planned(values: Floats, paired: bool) -> Needed:
    """A plan from differences, or from two rows of values."""
    sd = math.sqrt(float(values.var(axis=-1, ddof=1).mean()))
    return trials_needed(_EFFECT, sd, pilot_n=values.shape[-1], paired=paired)


def _precise(values: Floats) -> Needed:
    sd, mean = float(values.std(ddof=1)), float(values.mean())
    return trials_for_precision(sd, mean, _PRECISION, len(values))


def _powers(trials: Floats) -> Floats:
    """The power that so many pairs have if the standard deviation is what it truly is."""
    known = {n: power_of(n, _EFFECT, 1, paired=True) for n in set(trials.tolist())}
    return np.array([known[n] for n in trials.tolist()])


def _holding(found: list[Needed], right: int) -> float:
    return sum(
        one.low is not None and one.low <= right <= (one.high or math.inf) for one in found
    ) / len(found)
