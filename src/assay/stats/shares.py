"""Shares of trials that succeeded, and differences of two shares: intervals, tests, margins.

Values are 0 and 1 (or truth values), one per independent trial. Every interval has width and
stays within what is possible. The tests are exact, so they find a difference where there is
none in at most alpha of all cases; the intervals are made to hold at least their level, which
costs a little width. Replicates of a world are not independent: average them by world and use
`assay.stats.intervals`.

pass@k and pass^k: the chance that one of k attempts succeeds, and that all of them do.

From n attempts of a task, of which c succeeded, both are estimated without bias for every
k up to n; to put c / n to the power of k would be biased. Tasks weigh the same. The attempts of
a task are taken to be independent of each other.

What trials that were lost could have changed.

A trial that ended by an infrastructure error has no value, and those that are lost are not
always like the rest: the harder worlds may be the ones that break. Nothing here guesses what
they were worth; it says what the extremes would have made of the answer.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.effects import solve
from assay.stats.estimates import Sample, as_side, mean_estimate
from assay.stats.intervals import (
    Interval,
    Side,
    as_sample,
    check_level,
    check_share,
    open_side,
    t_quantile,
)
from assay.stats.significance import Equivalence, TestResult, check_margin


def exact_share(successes: int, trials: int, level: float = 0.95) -> Interval:
    """A share with the exact interval, which holds the truth at least as often as `level`.

    Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, 1934, with the bounds as quantiles of beta distributions. A share of 0 has
    the lower bound 0 and a share of 1 the upper bound 1.
    """
    check_level(level)
    check_share(successes, trials)
    low, high = _exact_bounds(successes, trials, (1 - level) / 2)
    return Interval(successes / trials, low, high)


def share_difference(
    a: Sample,
    b: Sample,
    *,
    paired: bool,
    level: float = 0.95,
    side: Side | str = Side.TWO_SIDED,
) -> Interval:
    """The share of `b` less that of `a`, with an interval within [-1, 1] that has width.

    Pairs: Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data", 2012: one pair more of each kind that differs. Their
    normal quantile holds 89 to 93 % for some shares below 30 pairs, so the quantile is
    Student's with n - 1 degrees of freedom, and half a pair is added as a correction for
    continuity: with it no shares on a grid hold less than 94.9 %.

    Unpaired: Newcombe, "Interval estimation for the difference between independent
    proportions", 1998, method 10, from the exact intervals of both shares in place of
    Wilson's, with which it holds 83 to 92 % for some shares.

    One pair has the bounds -1 and 1.
    """
    check_level(level)
    first, second = _outcomes(a, b, paired)
    point, wanted = float(second.mean() - first.mean()), as_side(side)
    tail = (1 - level) / (2 if wanted is Side.TWO_SIDED else 1)
    low, high = (
        _paired_bounds(first, second, tail, 0.5) if paired else _hybrid(first, second, tail)
    )
    return open_side(Interval(point, min(point, low), max(point, high)), wanted)


def share_test(
    a: Sample, b: Sample, *, paired: bool, side: Side | str = Side.TWO_SIDED
) -> TestResult:
    """Whether two shares differ; the statistic is `share(b) - share(a)`.

    Pairs: the exact test of McNemar, "Note on the sampling error of the difference between
    correlated proportions or percentages", 1947: a sign test of the pairs that differ.
    Unpaired: Fisher's exact test, see `fisher_exact`.
    """
    first, second = _outcomes(a, b, paired)
    point, wanted = float(second.mean() - first.mean()), as_side(side)
    if not paired:
        counts = (int(first.sum()), len(first), int(second.sum()), len(second))
        p = fisher_exact(*counts, side=wanted)
        return TestResult("Fisher's exact test", point, p, len(first) + len(second), True)
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import bdtr, bdtrc

    won, lost = int((second > first).sum()), int((second < first).sum())
    n, name = len(first), "McNemar's exact test"
    if won + lost == 0:
        return TestResult(name, point, 1.0, n, True, "no pair differs")
    below = float(bdtr(won, won + lost, 0.5))
    above = float(bdtrc(won - 1, won + lost, 0.5)) if won else 1.0
    return TestResult(name, point, _of_tails(below, above, wanted), n, True)


def fisher_exact(
    successes_a: int,
    trials_a: int,
    successes_b: int,
    trials_b: int,
    *,
    side: Side | str = Side.TWO_SIDED,
) -> float:
    """The p-value of Fisher's exact test of two shares; `greater`: that of `b` is greater.

    Fisher, "The logic of inductive inference", 1935: the hypergeometric distribution of the
    successes of `b` given those of both; two-sided, all counts that are no more probable than
    the one seen.
    """
    check_share(successes_a, trials_a)
    check_share(successes_b, trials_b)
    wanted = as_side(side)
    from scipy.special import gammaln

    successes = successes_a + successes_b
    k = np.arange(max(0, successes - trials_a), min(successes, trials_b) + 1)
    logs = -sum(
        gammaln(count + 1)
        for count in (k, trials_b - k, successes - k, trials_a - successes + k)
    )
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    if wanted is Side.TWO_SIDED:
        # Equal probabilities differ in the last digits.
        seen = weights[k == successes_b] * (1 + 1e-7)
        return min(1.0, float(weights[weights <= seen].sum()))
    tail = k >= successes_b if wanted is Side.GREATER else k <= successes_b
    return min(1.0, float(weights[tail].sum()))


def share_equivalence(
    a: Sample, b: Sample, *, paired: bool, margin: float, level: float = 0.95
) -> Equivalence:
    """Whether two shares differ by less than the margin: two one-sided tests of shares.

    Schuirmann, 1987 (see `equivalence_test`), with the bounds of `share_difference` at
    1 - 2 alpha; for pairs with a whole pair as correction for continuity. Where the true
    difference is the margin, shares on a grid are called equivalent in at most 5 % of cases
    for every number of trials tried, from 5 to 150. A few trials can show no equivalence, not
    even where all are alike: with a margin of 0.1 it takes 32 pairs.
    """
    check_margin(margin)
    check_level(level)
    first, second = _outcomes(a, b, paired)
    point, alpha = float(second.mean() - first.mean()), 1 - level

    def bounds(tail: float) -> tuple[float, float]:
        return (
            _paired_bounds(first, second, tail, 1.0) if paired else _hybrid(first, second, tail)
        )

    p_lower = _least_tail(lambda tail: bounds(tail)[0] + margin)
    p_upper = _least_tail(lambda tail: margin - bounds(tail)[1])
    p = max(p_lower, p_upper)
    low, high = bounds(min(alpha, 0.5 - 1e-9))
    interval = Interval(point, min(point, low), max(point, high))
    n = len(first) if paired else len(first) + len(second)
    return Equivalence(p < alpha, p, p_lower, p_upper, interval, float(margin), n)


def as_outcomes(values: Sample, what: str = "the outcomes") -> NDArray[np.float64]:
    """The values as an array, each of which has to be 0 or 1."""
    sample = as_sample(values, what)
    if not np.isin(sample, (0, 1)).all():
        bad = sample[~np.isin(sample, (0, 1))][0]
        raise UsageError(f"{what} are 0 or 1, and one is {bad:g}; give one outcome per trial")
    return sample


def _outcomes(
    a: Sample, b: Sample, paired: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first = as_outcomes(a, "the outcomes of the first sample")
    second = as_outcomes(b, "the outcomes of the second sample")
    if paired and len(first) != len(second):
        raise UsageError(
            f"{len(first)} outcomes cannot be paired with {len(second)}; give one of each per"
            " pair, or compare them unpaired"
        )
    return first, second


def _exact_bounds(successes: float, trials: int, tail: float) -> tuple[float, float]:
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import betaincinv

    failures = trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return low, high


def bonett_price(
    won: int, lost: int, n: int, quantile: float, step: float
) -> tuple[float, float]:
    """The bounds of `share_difference` of n pairs, of which b won and lost so many.

    Bonett and Price, 2012, at a quantile of t, moved outwards by `step` pairs.
    """
    more, less = (won + 1) / (n + 2), (lost + 1) / (n + 2)
    middle = more - less
    half = quantile * math.sqrt((more + less - middle**2) / (n + 2)) + step / (n + 2)
    return max(-1.0, middle - half), min(1.0, middle + half)


def _paired_bounds(
    a: NDArray[np.float64], b: NDArray[np.float64], tail: float, step: float
) -> tuple[float, float]:
    n = len(a)
    if n == 1:
        return -1.0, 1.0
    quantile = t_quantile(n - 1, 1 - tail)
    return bonett_price(int((b > a).sum()), int((b < a).sum()), n, quantile, step)


def _hybrid(a: NDArray[np.float64], b: NDArray[np.float64], tail: float) -> tuple[float, float]:
    """Newcombe's bounds of b - a, from the exact ones of both shares."""
    share_a, share_b = float(a.mean()), float(b.mean())
    low_a, high_a = _exact_bounds(float(a.sum()), len(a), tail)
    low_b, high_b = _exact_bounds(float(b.sum()), len(b), tail)
    difference = share_b - share_a
    low = difference - math.hypot(share_b - low_b, high_a - share_a)
    high = difference + math.hypot(high_b - share_b, share_a - low_a)
    return max(-1.0, low), min(1.0, high)


def _least_tail(room: Callable[[float], float]) -> float:
    """The least tail at which a bound leaves room to the margin: a one-sided p-value."""
    least, most = 1e-12, 0.5 - 1e-9
    if room(most) <= 0:
        return 1.0
    return least if room(least) > 0 else solve(room, least, most)


def _of_tails(below: float, above: float, side: Side) -> float:
    if side is Side.TWO_SIDED:
        return min(1.0, 2 * min(below, above))
    return above if side is Side.GREATER else below


Counts = Sequence[int] | NDArray[Any]


def pass_any(successes: Counts, attempts: Counts, k: int, *, level: float = 0.95) -> Interval:
    """pass@k: the chance that at least one of k attempts at a task succeeds.

    1 - C(n - c, k) / C(n, k) by task, and the mean over tasks: Chen et al., "Evaluating large
    language models trained on code", 2021. The interval of several tasks is Student's over
    tasks, as a sample of many, within [0, 1] and with width; that of one task is the exact one
    of its share of successes (Clopper and Pearson, 1934), put to the power.

    Args:
        successes: How many attempts succeeded, by task.
        attempts: How many there were, by task; k or more.
        k: How many attempts somebody has.
        level: Of confidence.
    """
    failures = [int(n) - int(c) for c, n in zip(successes, attempts, strict=True)]
    found = pass_all(failures, attempts, k, level=level)
    return Interval(1 - found.point, 1 - found.high, 1 - found.low)


def pass_all(successes: Counts, attempts: Counts, k: int, *, level: float = 0.95) -> Interval:
    """pass^k: the chance that all of k attempts at a task succeed.

    C(c, k) / C(n, k) by task, and the mean over tasks: Yao et al., "tau-bench: a benchmark for
    tool-agent-user interaction in real-world domains", 2024. Arguments and interval are those
    of `pass_any`.
    """
    pairs = [(int(c), int(n)) for c, n in zip(successes, attempts, strict=True)]
    if not pairs:
        raise UsageError("pass^k of no task; give successes and attempts of one or more")
    for c, n in pairs:
        check_share(c, n)
        if not 1 <= k <= n:
            raise UsageError(
                f"{k} attempts cannot be judged from {n} of a task; give 1 to {n}, or run more"
            )
    shares = [math.comb(c, k) / math.comb(n, k) for c, n in pairs]
    if len(pairs) > 1:
        return mean_estimate(np.array(shares), step=1.0).interval(level, low=0, high=1)
    low, high = (bound**k for bound in exact_share(*pairs[0], level)[1:])
    return Interval(shares[0], min(low, shares[0]), max(high, shares[0]))


_MANY = 0.05
_UNLIKE = 0.1


class Filled(NamedTuple):
    """Two samples in which a value stands for every trial that was lost."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]


def losses_matter(lost_a: int, trials_a: int, lost_b: int, trials_b: int) -> bool:
    """Whether so many trials are lost that an answer has to hold at the extremes.

    From 5 % of either side's trials on, or where the shares of lost trials differ (Fisher's
    exact test, 1935, below 0.1). `trials` are all that were begun, lost ones among them.
    """
    if max(lost_a / trials_a, lost_b / trials_b) >= _MANY:
        return True
    return fisher_exact(lost_a, trials_a, lost_b, trials_b) < _UNLIKE


def worst_cases(
    a: Sample,
    b: Sample,
    *,
    low: float | None = None,
    high: float | None = None,
) -> tuple[Filled, Filled]:
    """Both samples with their lost trials at the values worst for `b`, and at the best for it.

    The bounds of Horowitz and Manski, "Nonparametric analysis of randomized experiments with
    missing covariate and outcome data", 2000: whatever the lost trials were worth, the
    difference of the means lies between those of the two. An answer that both give does not
    hang on what was lost.

    Args:
        a: One value per trial, NaN where it was lost.
        b: The same; for pairs both are in pair order.
        low: The least possible value; None: the least that was seen on either side.
        high: The greatest possible value; None: the greatest that was seen.
    """
    first, second = (np.asarray(side, np.float64) for side in (a, b))
    seen = np.concatenate([side[~np.isnan(side)] for side in (first, second)])
    as_sample(seen, "values that were not lost")
    least = float(seen.min()) if low is None else low
    most = float(seen.max()) if high is None else high
    if not least <= seen.min() <= seen.max() <= most or math.isinf(most - least):
        raise UsageError(
            f"values go from {seen.min():g} to {seen.max():g}, beyond the bounds {least:g} and"
            f" {most:g}; give the least and the greatest value that is possible"
        )

    def filled(for_a: float, for_b: float) -> Filled:
        return Filled(
            np.where(np.isnan(first), for_a, first), np.where(np.isnan(second), for_b, second)
        )

    return filled(most, least), filled(least, most)
