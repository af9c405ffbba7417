"""Proportions of successful trials: intervals, tests, equivalence, pass@k.

Values are 0 and 1 (or booleans), one per independent trial. Every interval has nonzero width
and stays within the possible values. The tests are exact, so their type I error is at most
alpha. The intervals are built to have at least their nominal coverage, which makes them
slightly wider. Replicates of a world are not independent: average them by world and use
`assay.stats.intervals`.

pass@k and pass^k are the probabilities that at least one, or all, of k attempts at a task
succeed. From n attempts, of which c succeeded, both are estimated without bias for every k up
to n; (c / n)^k would be biased. All tasks have the same weight. Attempts at a task are assumed
to be independent.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

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
    """Return a proportion with its exact interval, whose coverage is at least `level`.

    Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of the
    binomial, 1934, with the bounds as quantiles of beta distributions. A proportion of 0 has
    the lower bound 0, and a proportion of 1 the upper bound 1.
    """
    check_level(level)
    check_share(successes, trials)
    low, high = exact_bounds(successes, trials, (1 - level) / 2)
    return Interval(successes / trials, low, high)


def share_difference(
    a: Sample,
    b: Sample,
    *,
    paired: bool,
    level: float = 0.95,
    side: Side | str = Side.TWO_SIDED,
) -> Interval:
    """Return the proportion of `b` minus the proportion of `a`, with an interval in [-1, 1].

    Pairs: Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data", 2012, which adds one pair of each discordant kind. With
    their normal quantile the coverage is 89 to 93 % for some proportions below 30 pairs, so the
    quantile is Student's with n - 1 degrees of freedom, and half a pair is added as a
    continuity correction: then no proportions on a grid have a coverage below 94.9 %.

    Unpaired: Newcombe, "Interval estimation for the difference between independent
    proportions", 1998, method 10, from the exact intervals of both proportions in place of
    Wilson's, with which the coverage is 83 to 92 % for some proportions.

    The interval always has nonzero width. One pair has the bounds -1 and 1.
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
    """Test whether two proportions differ; the statistic is `share(b) - share(a)`.

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
    # SciPy is slow to import, and most of assay does not need it.
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
    """Return the p-value of Fisher's exact test; `greater` tests whether `b` is greater.

    Fisher, "The logic of inductive inference", 1935: the hypergeometric distribution of the
    successes of `b` given the total number of successes. Two-sided, it sums over all counts
    that are no more probable than the observed one.
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
        # Equal probabilities may differ in the last digits.
        seen = weights[k == successes_b] * (1 + 1e-7)
        return min(1.0, float(weights[weights <= seen].sum()))
    tail = k >= successes_b if wanted is Side.GREATER else k <= successes_b
    return min(1.0, float(weights[tail].sum()))


def share_equivalence(
    a: Sample, b: Sample, *, paired: bool, margin: float, level: float = 0.95
) -> Equivalence:
    """Test whether two proportions differ by less than the margin, by two one-sided tests.

    Schuirmann, 1987 (see `equivalence_test`), with the bounds of `share_difference` at
    1 - 2 alpha; for pairs with a continuity correction of one pair. If the true difference
    equals the margin, the type I error was at most 5 % for proportions on a grid and for every
    number of trials tried, from 5 to 150. A few trials cannot show equivalence, even if all
    outcomes are equal: with a margin of 0.1 it takes 32 pairs.
    """
    check_margin(margin)
    check_level(level)
    first, second = _outcomes(a, b, paired)
    point, alpha = float(second.mean() - first.mean()), 1 - level

    def bounds(tail: float) -> tuple[float, float]:
        return (
            _paired_bounds(first, second, tail, 1.0) if paired else _hybrid(first, second, tail)
        )

    p_lower = least_tail(lambda tail: bounds(tail)[0] + margin)
    p_upper = least_tail(lambda tail: margin - bounds(tail)[1])
    p = max(p_lower, p_upper)
    low, high = bounds(min(alpha, 0.5 - 1e-9))
    interval = Interval(point, min(point, low), max(point, high))
    n = len(first) if paired else len(first) + len(second)
    return Equivalence(p < alpha, p, p_lower, p_upper, interval, float(margin), n)


def as_outcomes(values: Sample, what: str = "the outcomes") -> NDArray[np.float64]:
    """Convert the values to an array, and raise UsageError if one is not 0 or 1."""
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


def exact_bounds(successes: float, trials: float, tail: float) -> tuple[float, float]:
    """Return the bounds of `exact_share`; counts of effective trials need not be integers."""
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import betaincinv

    failures = trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return low, high


def bonett_price(
    won: int, lost: int, n: int, quantile: float, step: float
) -> tuple[float, float]:
    """Return the bounds of `share_difference` for n pairs, given how many b won and lost.

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
    """Return Newcombe's bounds of b - a, from the exact bounds of both proportions."""
    share_a, share_b = float(a.mean()), float(b.mean())
    low_a, high_a = exact_bounds(float(a.sum()), len(a), tail)
    low_b, high_b = exact_bounds(float(b.sum()), len(b), tail)
    difference = share_b - share_a
    low = difference - math.hypot(share_b - low_b, high_a - share_a)
    high = difference + math.hypot(high_b - share_b, share_a - low_a)
    return max(-1.0, low), min(1.0, high)


def least_tail(room: Callable[[float], float]) -> float:
    """Return the smallest tail at which a bound is within the margin: a one-sided p-value."""
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
    """Return pass@k: the probability that at least one of k attempts at a task succeeds.

    1 - C(n - c, k) / C(n, k) by task, and the mean over tasks: Chen et al., "Evaluating large
    language models trained on code", 2021. With several tasks the interval is Student's over
    tasks, as a sample of many, within [0, 1] and of nonzero width. With one task the exact
    bounds of its proportion of failures (Clopper and Pearson, 1934) are raised to the power k
    and subtracted from 1.

    Args:
        successes: Number of successful attempts, by task.
        attempts: Number of attempts, by task; at least k.
        k: Number of attempts allowed.
        level: Confidence level.
    """
    failures = [int(n) - int(c) for c, n in zip(successes, attempts, strict=True)]
    found = pass_all(failures, attempts, k, level=level)
    return Interval(1 - found.point, 1 - found.high, 1 - found.low)


def pass_all(successes: Counts, attempts: Counts, k: int, *, level: float = 0.95) -> Interval:
    """Return pass^k: the probability that all of k attempts at a task succeed.

    C(c, k) / C(n, k) by task, and the mean over tasks: Yao et al., "tau-bench: a benchmark for
    tool-agent-user interaction in real-world domains", 2024. Arguments and interval are as for
    `pass_any`, but with one task the bounds of the proportion of successes are raised to the
    power k.
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
