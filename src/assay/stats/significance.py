"""Tests of no difference between two samples, equivalence tests, and a normality diagnostic.

Every test is two-sided by default. The second sample is compared with the first: `greater`
tests whether `b` is greater. A single pair cannot reject anything: its p-value is 1.

Permutation tests use the null distribution of sums under exchange: flipped signs, or shuffled
labels. The distribution is exact if that is feasible, and sampled otherwise. A tail is the
proportion of the distribution at least as extreme as the observed sum, including it. Sums that
differ by rounding only count as equal.

`normality` is for display only: no test of this package is selected by the data. A normality
test must not decide whether to use a t test: if it passes by chance, the t test that follows
keeps its level worst (Rochon, Gondan and Kieser, "To test or not to test: preliminary
assessment of normality when comparing two independent samples", 2012).
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.differences import paired_difference, unpaired_difference
from assay.stats.estimates import (
    Sample,
    as_pairs,
    as_side,
    as_two,
    deviation_of,
    pair_differences,
    welch,
)
from assay.stats.intervals import Interval, Side, as_sample, check_level, check_resamples

Floats = NDArray[np.float64]

EXACT_LIMIT = 2**16
"""Up to this many arrangements are enumerated."""
_COUNT_LIMIT = 20_000_000
"""Maximum number of additions for counting arrangements of integers by their sums."""
_BATCH = 2**21
"""Number of values held in memory at a time."""


class Tails(NamedTuple):
    """Proportions of the null distribution on either side of the observed sum, including it."""

    below: float
    above: float
    exact: bool


def flip_tails(
    values_N: Floats, rng: np.random.Generator | None, n_resamples: int
) -> Tails | None:
    """Return the tails of the sum of the values when each may have either sign.

    Exact if 2^n is small, or if the values are integer multiples of one unit: then the sums are
    counted by convolution, one value at a time (Pagano and Tritchler, "On obtaining permutation
    distributions in polynomial time", JASA 78, 1983). Otherwise `n_resamples` random flips,
    plus the observed one (Phipson and Smyth, "Permutation p-values should never be zero",
    2010). None if random flips are needed and `rng` is None.
    """
    # A zero is the same with either sign.
    sizes = np.abs(values_N[values_N != 0])
    seen, slack = float(values_N.sum()), 1e-12 * float(sizes.sum())
    if 2 ** min(len(sizes), 64) <= EXACT_LIMIT:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums - size, sums + size])
        return _shares(sums, seen, slack)
    whole = _whole(sizes)
    if whole is not None and len(whole) * int(whole.sum()) <= _COUNT_LIMIT:
        return _counted_flips(whole, seen / float(sizes.sum()))
    if rng is None:
        return None
    drawn = np.empty(n_resamples)
    step = max(1, _BATCH // len(sizes))
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        signs = rng.integers(0, 2, (rows, len(sizes)), dtype=np.int8) * 2.0 - 1.0
        drawn[start : start + rows] = signs @ sizes
    return _sampled(drawn, seen, slack)


def shuffle_tails(
    values_N: Floats, chosen: int, rng: np.random.Generator | None, n_resamples: int
) -> Tails | None:
    """Return the tails of the sum of the last `chosen` values when any may be chosen.

    Exact if there are few ways to choose, otherwise as in `flip_tails`.
    """
    seen = float(values_N[-chosen:].sum())
    slack = 1e-12 * float(np.abs(values_N).sum())
    ways = math.comb(len(values_N), chosen)
    if ways <= EXACT_LIMIT:
        return _shares(_all_choices(values_N, chosen, ways), seen, slack)
    if rng is None:
        return None
    drawn = np.empty(n_resamples)
    step = max(1, _BATCH // len(values_N))
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        shuffled = rng.permuted(np.broadcast_to(values_N, (rows, len(values_N))), axis=1)
        drawn[start : start + rows] = shuffled[:, :chosen].sum(axis=1)
    return _sampled(drawn, seen, slack)


def _all_choices(values_N: Floats, chosen: int, ways: int) -> Floats:
    sums = np.empty(ways)
    step = max(1, _BATCH // chosen)
    choices = combinations(range(len(values_N)), chosen)
    for start in range(0, ways, step):
        rows = np.array(list(islice(choices, step)))
        sums[start : start + len(rows)] = values_N[rows].sum(axis=1)
    return sums


def _whole(sizes: Floats) -> NDArray[np.int64] | None:
    """Return the sizes as integers in a unit that divides 1 or the smallest size, or None."""
    if not len(sizes) or sizes.max() > _COUNT_LIMIT * sizes.min():
        return None
    for base in (1.0, float(sizes.min())):
        for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12):
            scaled = sizes / base * parts
            rounded = np.rint(scaled)
            if rounded.min() > 0 and (np.abs(scaled - rounded) <= 1e-9 * scaled).all():
                units = rounded.astype(np.int64)
                return np.asarray(units // np.gcd.reduce(units), np.int64)
    return None


def _counted_flips(units: NDArray[np.int64], seen_share: float) -> Tails:
    """Return exact tails from the distribution of the number of units with a positive sign."""
    total = int(units.sum())
    probability = np.zeros(total + 1)
    probability[0] = 1.0
    for unit in units:
        moved = probability[: total + 1 - unit].copy()
        probability *= 0.5
        probability[unit:] += 0.5 * moved
    positive = round((seen_share + 1) / 2 * total)
    # A sum of a million small floats may exceed 1 by a rounding error.
    below, above = probability[: positive + 1].sum(), probability[positive:].sum()
    return Tails(min(1.0, float(below)), min(1.0, float(above)), True)


def _shares(sums: Floats, seen: float, slack: float) -> Tails:
    below, above = (sums <= seen + slack).mean(), (sums >= seen - slack).mean()
    return Tails(float(below), float(above), True)


def _sampled(sums: Floats, seen: float, slack: float) -> Tails:
    below, above = (sums <= seen + slack).sum() + 1, (sums >= seen - slack).sum() + 1
    return Tails(float(below) / (len(sums) + 1), float(above) / (len(sums) + 1), False)


class Design(StrEnum):
    """Designs whose exact tests need a smallest number of trials to reject anything."""

    PAIRS = "pairs"
    """Sign-flip test of pairs; McNemar's test, in which only pairs that differ count."""
    GROUPS = "groups"
    """Permutation test of two groups; Fisher's test."""


def least_p_value(n: int, other: int | None = None, side: Side | str = Side.TWO_SIDED) -> float:
    """Return the smallest p-value that the exact test of n pairs can have.

    With `other`, of two groups of n and `other` trials. One of the 2^n ways to flip signs, or
    of the ways to divide the trials, is the most extreme (Fisher, 1935).
    """
    ways = 2**n if other is None else math.comb(n + other, n)
    return min(1.0, (2 if as_side(side) is Side.TWO_SIDED else 1) / ways)


def smallest_n(
    design: Design | str, level: float = 0.95, side: Side | str = Side.TWO_SIDED
) -> int:
    """Return the smallest n at which the exact test of a design can reject at 1 - level.

    Pairs, or trials in each of two groups (Fisher, 1935): 6 pairs or 4 and 4 trials at 95 %, 8
    pairs or 5 and 5 trials at 99 %. For m comparisons that share their error, `level` is
    1 - alpha / m.
    """
    check_level(level)
    groups, n = Design(design) is Design.GROUPS, 1
    # Rounding of 1 - level must not decide about equality.
    while least_p_value(n, n if groups else None, side) >= (1 - level) * (1 - 1e-9):
        n += 1
    return n


class TestResult(NamedTuple):
    """Result of a test of no difference."""

    name: str
    """Name of the test, as in a report."""
    statistic: float
    """Test statistic, see the function; NaN or infinite for the reason in `note`."""
    p_value: float
    """In [0, 1], never NaN."""
    n: int
    """Number of pairs in a paired test, or of values in both samples."""
    exact: bool
    """Whether the p-value is from the full null distribution: not resampled, not asymptotic."""
    note: str = ""
    """Caveat about data that the test is not made for, or empty."""


# Otherwise pytest would collect the class as tests in every module that imports it.
TestResult.__test__ = False  # type: ignore[attr-defined]


class Equivalence(NamedTuple):
    """Result of an equivalence test: whether a difference is too small to matter."""

    equivalent: bool
    """Whether the difference is shown to lie within the margin, at the requested level."""
    p_value: float
    """Larger of the two one-sided p-values."""
    p_lower: float
    """P-value of the test against a difference at or below -margin."""
    p_upper: float
    """P-value of the test against a difference at or above +margin."""
    interval: Interval
    """Interval of the difference at 1 - 2 alpha: within the margin exactly if equivalent."""
    margin: float
    n: int
    """Number of pairs, or of values in both samples."""


def sign_flip_test(
    differences: Sample,
    *,
    side: Side | str = Side.TWO_SIDED,
    rng: np.random.Generator | None = None,
    n_resamples: int = 10_000,
) -> TestResult:
    """Test whether paired differences are symmetric around 0; the statistic is their mean.

    Fisher, The Design of Experiments, 1935, section 21. The p-value is exact up to 16 nonzero
    differences, and up to some hundreds if they are integers, or integer multiples of a half to
    a twelfth or of the smallest of them. Beyond that it is estimated from `n_resamples` random
    flips drawn from `rng`, and a tail is never below 1 / (n_resamples + 1). Differences of zero
    have no effect on the p-value and are kept.
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
    """Test whether the labels of two samples are exchangeable; statistic: mean(b) - mean(a).

    Fisher, 1935; Pitman, "Significance tests which may be applied to samples from any
    populations", 1937. Two-sided is twice the smaller tail. Exact up to 65,536 ways to divide
    the values, otherwise `n_resamples` random ones plus the observed one.
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
    """Test the paired differences `b - a` with Student's t, which is the statistic.

    "Student", "The probable error of a mean", Biometrika 6, 1908. If all differences are equal
    and not zero, t is infinite and p is 0 (or 1 on the other side) by convention, with a note;
    if all are zero, t is 0 and p is 1.
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
    """Test `mean(b) - mean(a)` with Welch's t, for unequal variances; the statistic is t.

    Welch, 1947 (see `welch`). Samples without variance are treated as in `paired_t_test`.
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
    """Test the paired differences `b - a` with Wilcoxon's signed ranks.

    Wilcoxon, "Individual comparisons by ranking methods", 1945. The statistic is the rank sum
    of the positive differences. Differences of zero are left out, equal absolute differences
    share their mean rank, and the p-value is from flipping the signs of the ranks: exact up to
    a few hundred pairs, with or without ties. Beyond that it is the normal limit with the
    correction for ties and without a continuity correction, equal to SciPy's in every digit.
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
    """Test two samples with Mann and Whitney's U: how often `b` beats `a`; a tie counts half.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger
    than the other", 1947. Exact without ties up to 10,000 comparisons of values, and with ties
    if there are few ways to divide the ranks. Otherwise the normal limit with the corrections
    for ties and continuity, equal to SciPy's in every digit.
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
        # SciPy is slow to import, and most of assay does not need it.
        from scipy import stats

        found = stats.mannwhitneyu(second, first, alternative=wanted.value, method="exact")
        return TestResult(name, statistic, float(found.pvalue), n, True)
    error = math.sqrt(pairs / 12 * ((n + 1) - ties / (n * (n - 1))))
    above, below = ((sum_ - pairs / 2 - 0.5) / error for sum_ in (statistic, pairs - statistic))
    return TestResult(name, statistic, _normal_p_value(above, below, wanted), n, False)


def equivalence_test(
    a: Sample, b: Sample, *, paired: bool, margin: float, level: float = 0.95
) -> Equivalence:
    """Test whether `b - a` lies within (-margin, margin), by two one-sided t tests.

    Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for
    assessing the equivalence of average bioavailability", 1987; unpaired with Welch's standard
    error. alpha is 1 - level for each of the tests, and also for both together.
    """
    check_margin(margin)
    check_level(level)
    first, second = as_pairs(a, b) if paired else as_two(a, b)
    test = paired_t_test if paired else welch_t_test
    p_lower = test(first - margin, second, side=Side.GREATER).p_value
    p_upper = test(first + margin, second, side=Side.LESS).p_value
    p, alpha = max(p_lower, p_upper), 1 - level
    difference = paired_difference if paired else unpaired_difference
    # Below a level of one half, 1 - 2 alpha is negative.
    interval = difference(first, second, level=max(1 - 2 * alpha, 1e-9))
    n = len(first) if paired else len(first) + len(second)
    return Equivalence(p < alpha, p, p_lower, p_upper, interval, float(margin), n)


FEWEST_EQUIVALENT = 20
"""Fewest pairs, or trials of each side, for equivalence of a metric without a range."""


class OpenEquivalence(NamedTuple):
    """Equivalence of a metric without a range, as far as it can be shown."""

    test: Equivalence
    """Two one-sided t tests; `equivalent` is False if there are too few trials for them."""
    needed: int
    """Pairs, or trials of each side, with which it could be shown; about, at this spread."""

    @property
    def too_few(self) -> bool:
        """Whether equivalence cannot be shown with this number of trials."""
        return self.test.n < self.needed


def open_equivalence_test(
    a: Sample,
    b: Sample,
    *,
    paired: bool,
    margin: float,
    level: float = 0.95,
    largest: float = 0.0,
) -> OpenEquivalence:
    """Test equivalence of a metric without a range: assuming no rarer, larger differences.

    `equivalence_test` (Schuirmann, 1987), but only from 20 trials on, and only if differences
    as large as the largest one could not reach the margin in the trials that were not seen. An
    event that n trials did not show has a probability of up to about 3 / n (Hanley and
    Lippman-Hand, "If nothing goes wrong, is everything all right? Interpreting zero
    numerators", 1983), so that 3 / n times the largest difference must be below the margin; 3
    is -log(1 - level) at a level of 95 %. A rare difference beyond the largest is not covered:
    where the true difference is the margin, 14 to 18 % of lognormal sets of 20 to 50 pairs are
    called equivalent, and 7 to 34 % if 5 to 20 % of the pairs make the whole difference. A
    metric with a range has `bounded_tost`, which has no such gap.

    Args:
        a: Values of the baseline.
        b: Values of the candidate.
        paired: Whether they are paired.
        margin: Smallest difference that matters.
        level: 1 minus the type I error of the test.
        largest: Largest absolute difference that the metric has shown elsewhere; that of these
            trials counts too.
    """
    found = equivalence_test(a, b, paired=paired, margin=margin, level=level)
    first, second = as_pairs(a, b) if paired else as_two(a, b)
    if paired:
        differences = pair_differences(first, second)
        n, sd, seen = len(differences), deviation_of(differences), np.abs(differences).max()
    else:
        n = min(len(first), len(second))
        sd = math.hypot(deviation_of(first), deviation_of(second))
        seen = max(first.max() - second.min(), second.max() - first.min())
    unseen = -math.log(1 - level) * max(float(seen), largest) / margin
    from scipy.special import ndtri

    # The size at which equal means are shown to be equivalent with a power of 80 %.
    spread = (float(ndtri(level) + ndtri(0.9)) * sd / margin) ** 2
    least = max(FEWEST_EQUIVALENT, math.floor(min(unseen, 1e15)) + 1)
    if n < least:
        test = found._replace(equivalent=False, p_value=1.0, n=n)
        return OpenEquivalence(test, max(least, math.ceil(min(spread, 1e15))))
    return OpenEquivalence(found._replace(n=n), least)


def check_margin(margin: float) -> None:
    """Raise UsageError if the margin is not a finite number above 0."""
    if not (margin > 0 and math.isfinite(margin)):
        raise UsageError(
            f"margin {margin!r} is not above 0; give the smallest difference that matters"
        )


def _mean_ranks(values: Floats) -> tuple[Floats, float]:
    """Return ranks from 1, where ties share their mean rank, and the sum of t^3 - t of ties."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last, often = np.cumsum(count), count.astype(np.float64)
    ranks = np.asarray((last - (count - 1) / 2)[place], np.float64)
    return ranks, float((often**3 - often).sum())


def _normal_p_value(above: float, below: float, side: Side) -> float:
    """Return the p-value of a statistic that is standardised for both tails."""
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


_FEWEST, _MOST = 3, 5_000


class Normality(NamedTuple):
    """Diagnostics of how far a sample is from a normal distribution."""

    p_value: float
    """P-value of the Shapiro-Wilk test; NaN below 3 or above 5,000 values, or if constant."""
    skewness: float
    """Sample skewness G1; NaN if it is undefined."""
    n: int


def normality(values: Sequence[float] | NDArray[Any]) -> Normality:
    """Return the p-value of the Shapiro-Wilk test, and the bias-corrected skewness.

    Shapiro and Wilk, "An analysis of variance test for normality (complete samples)", 1965,
    with Royston's p-values (AS R94, 1995), which are valid up to n = 5,000; above it the
    p-value is NaN. G1 is the skewness of Joanes and Gill, "Comparing measures of sample
    skewness and kurtosis", 1998.
    """
    sample = as_sample(values, "values to test for normality")
    n = len(sample)
    if n < _FEWEST or sample.min() == sample.max():
        return Normality(math.nan, math.nan, n)
    centred = sample - sample.mean()
    # Scaled to at most 1, so that cubes of huge values do not overflow.
    centred = centred / abs(centred).max()
    plain = float((centred**3).mean() / (centred**2).mean() ** 1.5)
    skewness = plain * math.sqrt(n * (n - 1)) / (n - 2)
    if n > _MOST:
        return Normality(math.nan, skewness, n)
    from scipy.stats import shapiro

    return Normality(float(shapiro(centred).pvalue), skewness, n)
