"""Tests of no difference between two samples, and of a difference too small to matter.

Every test is two-sided unless told otherwise, and the sign is that of the second sample
against the first: `greater` asks whether `b` is greater. No test is chosen by the look of the
data. A single pair can reject nothing: its p-value is 1.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.differences import paired_difference, unpaired_difference
from assay.stats.flips import Tails, flip_tails, shuffle_tails
from assay.stats.intervals import Interval
from assay.stats.means import Side
from assay.stats.samples import as_sample, check_level, check_resamples
from assay.stats.two_samples import (
    Sample,
    as_pairs,
    as_side,
    as_two,
    deviation_of,
    pair_differences,
    welch,
)

__all__ = [
    "Equivalence",
    "TestResult",
    "check_margin",
    "equivalence_test",
    "mann_whitney_test",
    "paired_t_test",
    "permutation_test",
    "sign_flip_test",
    "welch_t_test",
    "wilcoxon_test",
]

Floats = NDArray[np.float64]


class TestResult(NamedTuple):
    """What a test of no difference says."""

    name: str
    """The test, as a report would name it."""
    statistic: float
    """What was tested, see the function; NaN or infinite where `note` says why."""
    p_value: float
    """In [0, 1], never NaN."""
    n: int
    """Pairs of a paired test, values of both samples of any other."""
    exact: bool
    """Whether the p-value comes from the full null distribution: no resampling, no limit."""
    note: str = ""
    """A sentence about data that the test was not made for, or nothing."""


# Else pytest would take the class for a set of tests wherever it is imported.
TestResult.__test__ = False  # type: ignore[attr-defined]


class Equivalence(NamedTuple):
    """What a test of a difference too small to matter says."""

    equivalent: bool
    """Whether the difference is shown to lie within the margin, at the level asked for."""
    p_value: float
    """The greater of the two one-sided p-values."""
    p_lower: float
    """Against a difference at or below -margin."""
    p_upper: float
    """Against a difference at or above +margin."""
    interval: Interval
    """Of the difference at 1 - 2 alpha: inside the margin exactly if equivalent."""
    margin: float
    n: int
    """Pairs, or values of both samples."""


def sign_flip_test(
    differences: Sample,
    *,
    side: Side | str = Side.TWO_SIDED,
    rng: np.random.Generator | None = None,
    n_resamples: int = 10_000,
) -> TestResult:
    """Whether paired differences are as likely positive as negative; statistic: their mean.

    Fisher, The Design of Experiments, 1935, section 21. The p-value is exact up to 16
    differences that are not zero, and for some hundreds that are whole numbers, or whole
    multiples of a half to a twelfth or of the smallest of them; beyond, `n_resamples` random
    flips of `rng` stand for all, and a tail is never below 1 / (n_resamples + 1). Differences
    of zero change nothing and are kept.
    """
    sample = as_sample(differences, "the differences")
    tails = flip_tails(sample, rng, _checked(n_resamples))
    p = _p_value(_needs_rng(tails), as_side(side))
    exact = tails is not None and tails.exact
    return TestResult("sign-flip test", float(sample.mean()), p, len(sample), exact)


def permutation_test(
    a: Sample,
    b: Sample,
    *,
    side: Side | str = Side.TWO_SIDED,
    rng: np.random.Generator | None = None,
    n_resamples: int = 10_000,
) -> TestResult:
    """Whether the labels of two samples can be exchanged; statistic: mean(b) - mean(a).

    Fisher, 1935; Pitman, "Significance tests which may be applied to samples from any
    populations", 1937. Two-sided is twice the smaller tail. Exact up to 65,536 ways to share
    out the values, else `n_resamples` random ones, counted with the one that was seen.
    """
    first, second = as_two(a, b)
    tails = shuffle_tails(
        np.concatenate([first, second]), len(second), rng, _checked(n_resamples)
    )
    p = _p_value(_needs_rng(tails), as_side(side))
    difference = float(second.mean() - first.mean())
    exact = tails is not None and tails.exact
    return TestResult("permutation test", difference, p, len(first) + len(second), exact)


def paired_t_test(a: Sample, b: Sample, *, side: Side | str = Side.TWO_SIDED) -> TestResult:
    """Student's t of the paired differences `b - a`; statistic: t.

    "Student", "The probable error of a mean", Biometrika 6, 1908. Where all differences are
    equal and not zero, t is infinite and p is 0 (or 1 on the other side) by convention, with
    a note; where all are zero, t is 0 and p is 1.
    """
    differences = pair_differences(a, b)
    n, name = len(differences), "paired t test"
    if n == 1:
        return TestResult(name, math.nan, 1.0, n, False, "one pair gives no spread to test by")
    if differences.min() == differences.max():
        return _spreadless(name, float(differences[0]), n, as_side(side))
    error = deviation_of(differences) / math.sqrt(n)
    t = float(differences.mean()) / error
    return TestResult(name, t, _t_p_value(t, n - 1, as_side(side)), n, False)


def welch_t_test(a: Sample, b: Sample, *, side: Side | str = Side.TWO_SIDED) -> TestResult:
    """Welch's t of `mean(b) - mean(a)`, for samples that may vary unequally; statistic: t.

    Welch, 1947 (see `welch`). The conventions for samples without spread are those of
    `paired_t_test`.
    """
    first, second = as_two(a, b)
    n, name = len(first) + len(second), "Welch's t test"
    if min(len(first), len(second)) == 1:
        return TestResult(name, math.nan, 1.0, n, False, "a sample of one value has no spread")
    found = welch(first, second)
    if found.error == 0:
        return _spreadless(name, found.difference, n, as_side(side))
    t = found.difference / found.error
    return TestResult(name, t, _t_p_value(t, found.freedom, as_side(side)), n, False)


def wilcoxon_test(a: Sample, b: Sample, *, side: Side | str = Side.TWO_SIDED) -> TestResult:
    """Wilcoxon's signed ranks of `b - a`; statistic: the rank sum of positive differences.

    Wilcoxon, "Individual comparisons by ranking methods", 1945. Differences of zero are left
    out, equal sizes share their mean rank, and the p-value is that of flipping the signs of
    the ranks: exact up to a few hundred pairs, ties or not, and the normal limit beyond, with
    the correction for ties and none for continuity, to the digit as SciPy has it.
    """
    differences = pair_differences(a, b)
    n, name, wanted = len(differences), "Wilcoxon signed-rank test", as_side(side)
    differences = differences[differences != 0]
    if not len(differences):
        return TestResult(name, 0.0, 1.0, n, True, "all differences are zero")
    ranks, ties = _mean_ranks(np.abs(differences))
    statistic = float(ranks[differences > 0].sum())
    tails = flip_tails(ranks * np.sign(differences), None, 1)
    if tails is not None:
        return TestResult(name, statistic, _p_value(tails, wanted), n, True)
    used = float(len(differences))
    error = math.sqrt((used * (used + 1) * (2 * used + 1) - ties / 2) / 24)
    z = (statistic - used * (used + 1) * 0.25) / error
    return TestResult(name, statistic, _normal_p_value(z, -z, wanted), n, False)


def mann_whitney_test(a: Sample, b: Sample, *, side: Side | str = Side.TWO_SIDED) -> TestResult:
    """Mann and Whitney's U: how often a value of `b` beats one of `a`, ties counting half.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically
    larger than the other", 1947. Exact without ties up to 10,000 comparisons of values, and
    with ties where the ways to share out the ranks are few; else the normal limit with the
    corrections for ties and continuity, to the digit as SciPy has it.
    """
    first, second = as_two(a, b)
    n, name, wanted = len(first) + len(second), "Mann-Whitney test", as_side(side)
    both = np.concatenate([first, second])
    ranks, ties = _mean_ranks(both)
    m = len(second)
    statistic = float(ranks[-m:].sum()) - m * (m + 1) / 2
    if both.min() == both.max():
        return TestResult(name, statistic, 1.0, n, True, "all values are equal")
    tails = shuffle_tails(ranks, m, None, 1)
    if tails is not None:
        return TestResult(name, statistic, _p_value(tails, wanted), n, True)
    pairs = m * len(first)
    if not ties and pairs <= 10_000:
        # SciPy takes a while to import, and most of assay does without.
        from scipy import stats

        found = stats.mannwhitneyu(second, first, alternative=wanted.value, method="exact")
        return TestResult(name, statistic, float(found.pvalue), n, True)
    error = math.sqrt(pairs / 12 * ((n + 1) - ties / (n * (n - 1))))
    above, below = ((sum_ - pairs / 2 - 0.5) / error for sum_ in (statistic, pairs - statistic))
    return TestResult(name, statistic, _normal_p_value(above, below, wanted), n, False)


def equivalence_test(
    a: Sample, b: Sample, *, paired: bool, margin: float, level: float = 0.95
) -> Equivalence:
    """Whether `b - a` lies within (-margin, margin): two one-sided t tests.

    Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for
    assessing the equivalence of average bioavailability", 1987; unpaired with Welch's
    standard error. alpha is 1 - level for each of the tests, and also for both together.
    """
    check_margin(margin)
    check_level(level)
    first, second = as_pairs(a, b) if paired else as_two(a, b)
    test = paired_t_test if paired else welch_t_test
    p_lower = test(first - margin, second, side=Side.GREATER).p_value
    p_upper = test(first + margin, second, side=Side.LESS).p_value
    p, alpha = max(p_lower, p_upper), 1 - level
    difference = paired_difference if paired else unpaired_difference
    # Below a level of one half the interval of 1 - 2 alpha is none.
    interval = difference(first, second, level=max(1 - 2 * alpha, 1e-9))
    n = len(first) if paired else len(first) + len(second)
    return Equivalence(p < alpha, p, p_lower, p_upper, interval, float(margin), n)


def check_margin(margin: float) -> None:
    """Refuse what is no smallest difference that matters."""
    if not (margin > 0 and math.isfinite(margin)):
        raise UsageError(
            f"margin {margin!r} is not above 0; give the smallest difference that matters"
        )


def _mean_ranks(values: Floats) -> tuple[Floats, float]:
    """Ranks from 1, equal values share the mean of theirs; and the sum of t^3 - t of ties."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last, often = np.cumsum(count), count.astype(np.float64)
    ranks = np.asarray((last - (count - 1) / 2)[place], np.float64)
    return ranks, float((often**3 - often).sum())


def _normal_p_value(above: float, below: float, side: Side) -> float:
    """The p-value of a standardised statistic, as seen from either end."""
    from scipy.special import ndtr

    if side is Side.TWO_SIDED:
        return min(1.0, 2 * float(ndtr(-max(above, below))))
    return float(ndtr(-above if side is Side.GREATER else -below))


def _checked(n_resamples: int) -> int:
    check_resamples(n_resamples)
    return n_resamples


def _needs_rng(tails: Tails | None) -> Tails:
    if tails is None:
        raise UsageError(
            "there are too many arrangements to list; give rng=np.random.default_rng(SEED) to"
            " draw some of them"
        )
    return tails


def _p_value(tails: Tails, side: Side) -> float:
    if side is Side.GREATER:
        return tails.above
    if side is Side.LESS:
        return tails.below
    return min(1.0, 2 * min(tails.below, tails.above))


def _t_p_value(t: float, freedom: float, side: Side) -> float:
    from scipy.special import stdtr

    if side is Side.TWO_SIDED:
        return float(2 * stdtr(freedom, -abs(t)))
    return float(stdtr(freedom, -t if side is Side.GREATER else t))


def _spreadless(name: str, difference: float, n: int, side: Side) -> TestResult:
    if difference == 0:
        return TestResult(name, 0.0, 1.0, n, False, "there is no difference and no spread")
    against = (difference < 0) if side is Side.GREATER else (difference > 0)
    p = 1.0 if side is not Side.TWO_SIDED and against else 0.0
    note = (
        "the values have no spread, so this p-value is a convention; go by the"
        " sign-flip or the permutation test"
    )
    return TestResult(name, math.copysign(math.inf, difference), p, n, False, note)
