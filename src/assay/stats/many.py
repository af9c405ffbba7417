"""Many comparisons at once: adjusted p-values, all pairs, ranks and groups.

A p-value is adjusted so that it can be held against the level as it stands. What cannot be
told apart is shown so: models share a rank or a group unless the data separate them, and
sharing a group is no proof that they are equal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay._util.names import unknown_name
from assay.errors import UsageError
from assay.stats.differences import paired_difference, unpaired_difference
from assay.stats.intervals import Interval
from assay.stats.samples import check_level
from assay.stats.significance import paired_t_test, sign_flip_test, welch_t_test
from assay.stats.two_samples import as_two, pair_differences

__all__ = [
    "Correction",
    "PairwiseResult",
    "against_baseline",
    "all_pairs",
    "benjamini_hochberg",
    "holm",
]

Values = Mapping[Any, float] | Sequence[float] | NDArray[Any]
"""The values of one model: by the key of their pair, or in pair order."""


class Correction(StrEnum):
    """What is kept at 1 - level over all comparisons together."""

    HOLM = "holm"
    """The chance of even one false difference, whatever the comparisons have in common."""
    BENJAMINI_HOCHBERG = "bh"
    """The expected share of false ones among the differences that are named."""


@dataclass(frozen=True)
class PairwiseResult:
    """One comparison among many."""

    a: str
    b: str
    difference: Interval
    """mean(b) - mean(a), with the interval of this comparison by itself."""
    simultaneous: Interval
    """The same at 1 - alpha / comparisons (Bonferroni): all of them hold at once."""
    p_value: float
    p_adjusted: float
    significant: bool
    """Whether the adjusted p-value is at most 1 - level."""
    n: int
    """Pairs, or values of both where they are not paired."""
    paired: bool

    @property
    def names(self) -> tuple[str, str]:
        """Both names, as they were given."""
        return self.a, self.b


def holm(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    """Adjusted p-values that keep the chance of any false rejection; in the order given.

    Holm, "A simple sequentially rejective multiple test procedure", 1979: the k-th smallest
    of m is multiplied by m - k + 1, and none may be below a smaller one.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def benjamini_hochberg(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    """Adjusted p-values that keep the false discovery rate; in the order given.

    Benjamini and Hochberg, "Controlling the false discovery rate", 1995: the k-th smallest
    of m is multiplied by m / k, and none may be above a larger one. It holds for independent
    comparisons and for positively dependent ones, not for any.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")[::-1]
    steps = p[order] * len(p) / np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(steps))
    return adjusted


def all_pairs(
    samples: Mapping[str, Values],
    *,
    paired: bool = True,
    correction: Correction | str = Correction.HOLM,
    level: float = 0.95,
) -> tuple[PairwiseResult, ...]:
    """Every model against every other one, corrected over all of the comparisons.

    Pairs come in the order of the names: (first, second), (first, third), ... Values given by
    key are paired where two models share at least two keys, and only those pairs count;
    values without keys are paired by place, and then have to be equally many. What is not
    paired is compared by Welch's t with all its values.

    The p-value is that of the t test, or of the exact sign-flip or permutation test where
    there is no spread and a t test has nothing to say; 1 where a sample has one value.
    """
    return _compared(samples, list(combinations(samples, 2)), paired, correction, level)


def against_baseline(
    samples: Mapping[str, Values],
    baseline: str,
    *,
    paired: bool = True,
    correction: Correction | str = Correction.HOLM,
    level: float = 0.95,
) -> tuple[PairwiseResult, ...]:
    """Every other model against the baseline, as in `all_pairs`; `a` is the baseline."""
    if baseline not in samples:
        raise UsageError(unknown_name("baseline", baseline, samples))
    pairs = [(baseline, name) for name in samples if name != baseline]
    return _compared(samples, pairs, paired, correction, level)


def _compared(
    samples: Mapping[str, Values],
    pairs: list[tuple[str, str]],
    paired: bool,
    correction: Correction | str,
    level: float,
) -> tuple[PairwiseResult, ...]:
    check_level(level)
    if len(samples) < 2:
        raise UsageError(f"{len(samples)} model cannot be compared; give two or more")
    try:
        adjust = _ADJUST[Correction(correction)]
    except ValueError:
        raise UsageError(unknown_name("correction", str(correction), Correction)) from None
    matched = [_matched(samples[a], samples[b], paired) for a, b in pairs]
    p_values = [_p_value(*one) for one in matched]
    strict = 1 - (1 - level) / len(pairs)
    results = []
    for (a, b), one, p, adjusted in zip(
        pairs, matched, p_values, adjust(p_values), strict=True
    ):
        n = len(one[0]) if one[2] else len(one[0]) + len(one[1])
        results.append(
            PairwiseResult(
                a=a,
                b=b,
                difference=_difference(*one, level),
                simultaneous=_difference(*one, strict),
                p_value=p,
                p_adjusted=float(adjusted),
                # 1 - level has a rounding error that must not decide.
                significant=bool(adjusted <= 1 - level + 1e-12),
                n=n,
                paired=one[2],
            )
        )
    return tuple(results)


_ADJUST = {Correction.HOLM: holm, Correction.BENJAMINI_HOCHBERG: benjamini_hochberg}

_Matched = tuple[NDArray[np.float64], NDArray[np.float64], bool]


def _matched(a: Values, b: Values, paired: bool) -> _Matched:
    """Both samples, and whether the values at one place belong together."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        shared = [key for key in a if key in b]
        if paired and len(shared) >= 2:
            return *as_two([a[key] for key in shared], [b[key] for key in shared]), True
        return *as_two(list(a.values()), list(b.values())), False
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        raise UsageError("some models have values by key and some have not; give one kind")
    return *as_two(a, b), paired


def _p_value(a: NDArray[np.float64], b: NDArray[np.float64], paired: bool) -> float:
    result = paired_t_test(a, b) if paired else welch_t_test(a, b)
    if not result.note:
        return result.p_value
    # Equal values have few distinct sums, so that no generator is needed to be exact.
    if paired:
        return sign_flip_test(pair_differences(a, b)).p_value
    if min(len(a), len(b)) == 1 or a[0] == b[0]:
        return result.p_value
    # All of one sample lies above the other: one way in so many to share the values out.
    return min(1.0, 2 / math.comb(len(a) + len(b), len(a)))


def _difference(
    a: NDArray[np.float64], b: NDArray[np.float64], paired: bool, level: float
) -> Interval:
    return (paired_difference if paired else unpaired_difference)(a, b, level=level)


def _p_values(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise UsageError(
            "p-values are a flat list of numbers in [0, 1]; leave out what has none"
        )
    return p
