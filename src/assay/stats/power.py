"""Power and sample size: detectable effects, required trials, and their cost.

Tests are two-sided: t tests of normal data, and the exact tests of proportions, McNemar's and
Fisher's. `n` and every sample size is the number of pairs, or of trials in each of two equal
arms. `sd` is the standard deviation of the paired differences, or within an arm.

A plan from a pilot is as uncertain as what the pilot estimates: the standard deviation, the
proportion of pairs that differ, or the proportion of successes. So every sample size has a
range that reflects this uncertainty, and a plan can be made by assurance: the mean power over
the posterior of the pilot (O'Hagan, Stevens and Campbell, "Assurance in clinical trial design",
2005), so that 80 % of plans succeed, and not fewer because some pilots are too optimistic.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.effects import noncentral_t_cdf, noncentrality_interval, solve
from assay.stats.estimates import Floats, Sample, deviation_of
from assay.stats.intervals import Interval, as_sample, check_level
from assay.stats.shares import as_outcomes
from assay.stats.variance import checked_sd, sd_interval

_MOST = 10**15
"""Upper limit of a sample size; it means this many or more."""
_MOST_EXACT = 200
"""Up to this many trials, the power of an exact test is computed exactly."""
_POINTS = 24
"""Number of points of a posterior over which power is averaged."""
_MOST_ROLLOUTS = 100
"""Rollouts of a task that a plan considers."""


class TrialPrice(NamedTuple):
    """Cost of the trials, with the range that follows from the range of the sample size."""

    dollars: Interval | None
    """Cost in USD; None if the cost of a trial is unknown."""
    hours: Interval | None
    """Duration in hours; None if the duration of a trial is unknown."""
    trials: Interval
    """Number of trials of all arms together."""


@dataclass(frozen=True)
class Needed:
    """Required sample size, and its range given the uncertainty of a small pilot."""

    trials: int
    """Pairs, or trials in each arm; 10^15 means this many or more."""
    low: int | None
    """Smallest number compatible with the pilot; None without a pilot of at least two."""
    high: int | None
    """Largest number compatible with the pilot; None also if it is unlimited."""
    plain: float
    """Number before rounding up to whole trials, and to at least two."""
    pilot_n: int | None
    """Pairs, or trials in each arm, from which the standard deviation was estimated."""
    level: float
    """Confidence level of the range."""

    def cost(
        self,
        cost_per_trial: float | None,
        seconds_per_trial: float | None,
        *,
        arms: int = 2,
        at_once: int = 1,
    ) -> TrialPrice:
        """Return the cost in dollars and hours of all arms, with `at_once` trials in parallel.

        An unknown bound of the range is NaN in the costs.
        """
        if arms < 1 or at_once < 1:
            raise UsageError(f"{arms} arms, {at_once} at once: both are 1 or more")
        counts = [math.nan if n is None else float(n) for n in (self.low, self.high)]
        trials = Interval(*(arms * n for n in (float(self.trials), *counts)))
        return TrialPrice(
            _priced(trials, "cost", cost_per_trial, 1.0),
            _priced(trials, "duration", seconds_per_trial, 1 / (3600 * at_once)),
            trials,
        )


def power_of(n: float, effect: float, sd: float, *, paired: bool, alpha: float = 0.05) -> float:
    """Return the probability that a t test at alpha detects a true difference of `effect`.

    The noncentral t, both tails: Cohen, Statistical Power Analysis for the Behavioral Sciences,
    2nd ed. 1988, chapter 2. Without variance any effect is detected.
    """
    _check_alpha(alpha)
    if not (n >= 2 and math.isfinite(n)):
        raise UsageError(f"power of {n!r} trials; a t test takes 2 or more")
    if not math.isfinite(effect):
        raise UsageError(f"effect {effect!r} is not a finite number")
    if checked_sd(sd) == 0:
        return 1.0 if effect else alpha
    return _power(n, abs(effect) / sd, paired, alpha)


def minimum_detectable_effect(
    n: float, sd: float, *, paired: bool, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the smallest true difference that n trials detect with this power.

    It has the unit of sd. `power_of` equals `power` at this effect (Cohen, 1988, chapter 2).
    """
    _check_alpha(alpha)
    _check_power(power, alpha)
    if not (n >= 2 and math.isfinite(n)):
        raise UsageError(f"the effect that {n!r} trials can show; a t test takes 2 or more")
    # Two trials at a small alpha may need more than a thousand standard deviations.
    most = 1e4 / alpha
    return checked_sd(sd) * solve(lambda d: _power(n, d, paired, alpha) - power, 0.0, most)


def trials_needed(
    effect: float,
    sd: float,
    *,
    pilot_n: int | None = None,
    paired: bool,
    power: float = 0.8,
    alpha: float = 0.05,
    level: float = 0.95,
    assurance: bool = False,
) -> Needed:
    """Return the sample size for a t test to detect a true difference with this power.

    The smallest n with `power_of(n, ...) >= power`. The range is computed from the bounds of
    `sd_interval` for the standard deviation (compare Browne, "On the use of a pilot sample for
    sample size determination", 1995). It does not include the uncertainty of an observed
    `effect`.

    Args:
        effect: Difference to detect, in the unit of the metric.
        sd: Standard deviation of the paired differences, or within an arm (pooled over both).
        pilot_n: Pairs, or trials in each of two arms, from which sd was estimated.
        paired: Whether the trials will be paired.
        power: Probability of detecting the effect.
        alpha: Type I error of the two-sided test.
        level: Confidence level of the range.
        assurance: Whether `power` is the mean over the posterior of the pilot's variance (a
            scaled inverse chi-square), in place of the power at the pilot's variance.
    """
    _check_alpha(alpha)
    _check_power(power, alpha)
    check_level(level)
    if not (math.isfinite(effect) and effect):
        raise UsageError(
            f"an effect of {effect!r} takes endless trials to show; give the smallest"
            " difference that matters"
        )

    def trials(deviation: float) -> float:
        if deviation == 0:
            return 2.0
        return _trials(abs(effect) / deviation, paired, power, alpha)

    plain = trials(checked_sd(sd))
    if pilot_n is None or pilot_n < 2:
        return Needed(_whole(plain), None, None, plain, pilot_n, level)
    freedom = pilot_n - 1 if paired else 2 * (pilot_n - 1)
    spread = sd_interval(sd, freedom + 1, level=level)
    low, high = _whole(trials(spread.low)), _whole(trials(spread.high))
    wanted = plain
    if assurance and sd:
        from scipy.special import chdtri

        shares = freedom / chdtri(freedom, _quantiles())
        sizes = [abs(effect) / (sd * math.sqrt(share)) for share in shares.tolist()]

        def spare(n: float) -> float:
            return sum(_power(n, size, paired, alpha) for size in sizes) / len(sizes) - power

        wanted = solve(spare, 2.0, max(4.0 * high, 4.0)) if spare(2.0) < 0 else 2.0
    return Needed(_whole(wanted), low, high, plain, pilot_n, level)


def mcnemar_power(n: int, won: float, lost: float, *, alpha: float = 0.05) -> float:
    """Return the probability that McNemar's exact test rejects, over all outcomes of n pairs.

    Unconditional: the number of pairs that differ is binomial, and given it the wins are
    (Connor, "Sample size for testing differences in proportions for the paired-sample design",
    1987, without his approximation). The test rejects if its p-value is below alpha.

    Args:
        n: Number of pairs.
        won: Probability that a pair is a success of the second side only.
        lost: Probability that a pair is a success of the first side only.
        alpha: Type I error of the two-sided test.
    """
    _check_alpha(alpha)
    if min(won, lost) < 0 or won + lost > 1 or n < 1:
        raise UsageError(f"{won!r} and {lost!r} of {n!r} pairs are not proportions of pairs")
    return float(_mcnemar(n, np.array([won]), np.array([lost]), alpha)[0])


def fisher_power(n: int, share_a: float, share_b: float, *, alpha: float = 0.05) -> float:
    """Return the probability that Fisher's exact test rejects, n trials in each arm.

    Unconditional: summed over all outcomes of both arms (Bennett and Hsu, "On the power
    function of the exact test for the 2 x 2 contingency table", 1960).
    """
    _check_alpha(alpha)
    if not (0 <= share_a <= 1 and 0 <= share_b <= 1 and n >= 1):
        raise UsageError(f"{share_a!r} and {share_b!r} of {n!r} trials are not proportions")
    return float(_fisher(n, np.array([share_a]), np.array([share_b]), alpha)[0])


def share_trials_needed(
    a: Sample,
    b: Sample,
    effect: float,
    *,
    paired: bool,
    power: float = 0.8,
    alpha: float = 0.05,
    level: float = 0.95,
    assurance: bool = True,
) -> Needed:
    """Return the sample size for the exact test to detect a difference of proportions.

    The smallest n from which the unconditional power of McNemar's test (Connor, 1987), or of
    Fisher's (Bennett and Hsu, 1960), stays at least `power`: the power of an exact test falls
    at some steps of n. Above 200 trials it is the normal approximation with the continuity
    correction. The pilot tells what the effect does not: the proportion of pairs that differ,
    or of successes of both arms. Its posterior is a beta distribution with the prior of
    Jeffreys, within the values that the effect allows; the range is from its quantiles.

    Args:
        a: Outcomes of the pilot's first side, 0 or 1.
        b: Outcomes of the second side; if paired, in pair order.
        effect: Difference of proportions to detect, `b` minus `a`.
        paired: Whether the trials will be paired.
        power: Probability of detecting the effect.
        alpha: Type I error of the two-sided test.
        level: Confidence level of the range.
        assurance: Whether `power` is also the mean over the posterior of the pilot.
    """
    _check_alpha(alpha)
    _check_power(power, alpha)
    check_level(level)
    if not 0 < abs(effect) <= 1:
        raise UsageError(f"effect {effect!r} is not a difference of proportions above 0")
    first, second = as_outcomes(a), as_outcomes(b)
    if paired and len(first) != len(second):
        raise UsageError(f"{len(first)} outcomes cannot be paired with {len(second)}")
    hits = first != second if paired else np.concatenate([first, second])
    yes, no = float(hits.sum()), float((1 - hits).sum())
    # Pairs differ at least as often as the effect says, and no proportion is beyond 0 and 1.
    ends = (abs(effect), 1.0) if paired else (abs(effect) / 2, 1 - abs(effect) / 2)

    def trials(shares: Floats) -> int:
        if paired:
            sides = (shares + effect) / 2, (shares - effect) / 2
            return _smallest(lambda n: float(_mcnemar(n, *sides, alpha).mean()), power)
        arms = shares - effect / 2, shares + effect / 2
        return _smallest(lambda n: float(_fisher(n, *arms, alpha).mean()), power)

    plain = trials(np.array([min(max(yes / (yes + no), ends[0]), ends[1])]))
    tail = (1 - level) / 2
    reach = [
        trials(np.array([share]))
        for share in _posterior(yes, no, ends, np.array([tail, 0.5, 1 - tail])).tolist()
    ]
    wanted = max(plain, trials(_posterior(yes, no, ends, _quantiles()))) if assurance else plain
    pilot = len(first) if paired else (len(first) + len(second)) // 2
    return Needed(wanted, min(reach), max(reach), float(plain), pilot, level)


class Allocation(NamedTuple):
    """Number of tasks and of rollouts of each that detect an effect."""

    tasks: int
    rollouts: int
    """Rollouts of a task by each side."""
    cost: float
    """In the unit of the costs."""


def cheapest_allocation(
    effect: float,
    between_sd: float,
    within_sd: float,
    *,
    task_cost: float = 0.0,
    rollout_cost: float = 1.0,
    most_tasks: int | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> Allocation | None:
    """Return how many tasks and rollouts detect a difference at the lowest cost, or None.

    Two-stage sampling (Cochran, Sampling Techniques, 3rd ed. 1977, section 10.6; Miller,
    "Adding error bars to evals", 2024): the difference in a task with r rollouts has the
    variance between_sd^2 + within_sd^2 / r, and the paired t test is over tasks. More rollouts
    reduce only the second part. None if no number of rollouts up to 100 is enough with
    `most_tasks` tasks.

    Args:
        effect: Difference to detect.
        between_sd: Standard deviation between tasks of the true differences.
        within_sd: Standard deviation of the difference of two single rollouts of a task.
        task_cost: Cost of a further task, without its rollouts.
        rollout_cost: Cost of a rollout of one side.
        most_tasks: Number of tasks there are; None if more can be made.
        power: Probability of detecting the effect.
        alpha: Type I error of the two-sided test.
    """
    for sd in (between_sd, within_sd):
        checked_sd(sd)
    best: Allocation | None = None
    for rollouts in range(1, _MOST_ROLLOUTS + 1):
        sd = math.hypot(between_sd, within_sd / math.sqrt(rollouts))
        tasks = trials_needed(effect, sd, paired=True, power=power, alpha=alpha).trials
        cost = tasks * (task_cost + 2 * rollouts * rollout_cost)
        allowed = most_tasks is None or tasks <= most_tasks
        if allowed and (best is None or cost < best.cost):
            best = Allocation(tasks, rollouts, cost)
    return best


def trials_for_precision(
    sd: float,
    mean: float,
    relative_error: float,
    pilot_n: int | None = None,
    *,
    level: float = 0.95,
) -> Needed:
    """Return the sample size for a standard error of `relative_error` times the mean.

    (sd / (mean e))^2 with e the relative error, at least 2. The range is exact for normal data:
    it inverts the noncentral t of the pilot, whose noncentrality is sqrt(n) mean / sd (Johnson
    and Welch, "Applications of the non-central t-distribution", 1940), so it includes the error
    of the mean. `high` is None if the interval of the pilot's mean contains 0.
    """
    check_level(level)
    if not (math.isfinite(mean) and mean):
        raise UsageError(
            f"a share of a mean of {mean!r} is no precision; name an absolute one instead"
        )
    if not 0 < relative_error < math.inf:
        raise UsageError(f"relative error {relative_error!r} is not above 0; 0.05 is usual")
    variation = checked_sd(sd) / abs(mean)
    plain = _square(variation / relative_error)
    if pilot_n is None or pilot_n < 2:
        return Needed(_whole(plain), None, None, plain, pilot_n, level)
    low, high = _variation_interval(variation, pilot_n, level)
    fewest = _whole(_square(low / relative_error))
    most = _whole(_square(high / relative_error)) if math.isfinite(high) else None
    return Needed(_whole(plain), fewest, most, plain, pilot_n, level)


def first_n_below(values: Sequence[float] | NDArray[Any], threshold: float) -> int | None:
    """Return the first n >= 2 at which |sd / mean| of the first n values is below threshold.

    None if there is none; a mean within 1e-10 of 0 never passes. This rule is common, but
    should not be used for planning: sd / mean, the coefficient of variation (Pearson,
    "Regression, heredity, and panmixia", 1896), estimates a constant and does not shrink with
    n, and the first crossing happens by chance, most often at n = 2. Use `trials_for_precision`
    instead.
    """
    sample = as_sample(values, "the values of the runs")
    if not threshold > 0:
        raise UsageError(f"threshold {threshold!r} is not above 0; 0.05 is usual")
    for n in range(2, len(sample) + 1):
        mean = abs(float(sample[:n].mean()))
        if mean > 1e-10 and deviation_of(sample[:n]) / mean < threshold:
            return n
    return None


def _quantiles() -> Floats:
    """Return the probabilities of the points that stand for a distribution."""
    return np.asarray((np.arange(_POINTS) + 0.5) / _POINTS)


def _posterior(
    yes: float, no: float, ends: tuple[float, float], probabilities: Floats
) -> Floats:
    """Return quantiles of the posterior of a proportion, within the ends."""
    from scipy.special import betainc, betaincinv

    below, above = betainc(yes + 0.5, no + 0.5, np.array(ends))
    at = below + probabilities * (above - below)
    return np.asarray(np.clip(betaincinv(yes + 0.5, no + 0.5, at), *ends))


def _mcnemar(n: int, won: Floats, lost: Floats, alpha: float) -> Floats:
    """Return the power of McNemar's test for each pair of probabilities."""
    from scipy.special import bdtr, bdtrc, ndtr, ndtri

    differ = np.minimum(won + lost, 1.0)
    if n > _MOST_EXACT:
        gap = np.maximum(np.abs(won - lost) - 1 / n, 0)
        error = np.sqrt(np.maximum(differ - (won - lost) ** 2, 1e-300))
        room = gap * math.sqrt(n) - float(ndtri(1 - alpha / 2)) * np.sqrt(differ)
        return np.asarray(ndtr(room / error))
    wins = np.divide(won, differ, out=np.full_like(won, 0.5), where=differ > 0)
    most, part = _most_losses(alpha)[: n + 1, None], np.arange(n + 1)[:, None]
    few = np.maximum(most, 0)
    found = bdtr(few, part, wins) + np.where(
        part - few > 0, bdtrc(np.maximum(part - few - 1, 0), part, wins), 1.0
    )
    chance = bdtr(part, n, differ)
    chance[1:] -= bdtr(part[1:] - 1, n, differ)
    return np.asarray((chance * found * (most >= 0)).sum(axis=0))


@lru_cache(maxsize=64)
def _most_losses(alpha: float) -> NDArray[np.int64]:
    """Return the most losses with which each number of differing pairs rejects, or -1."""
    from scipy.special import bdtr

    pairs, losses = np.arange(_MOST_EXACT + 1)[:, None], np.arange(_MOST_EXACT // 2 + 1)
    rejects = 2 * bdtr(np.minimum(losses, pairs), pairs, 0.5) < alpha
    return np.asarray(rejects.sum(axis=1) - 1)


def _fisher(n: int, share_a: Floats, share_b: Floats, alpha: float) -> Floats:
    """Return the power of Fisher's test with n trials in each arm, for each pair of shares."""
    from scipy.special import ndtr, ndtri

    if n > _MOST_EXACT:
        gap = np.maximum(np.abs(share_b - share_a) - 1 / n, 0)
        both = (share_a + share_b) / 2
        error = np.sqrt(share_a * (1 - share_a) + share_b * (1 - share_b) + 1e-300)
        room = gap * math.sqrt(n) - float(ndtri(1 - alpha / 2)) * np.sqrt(2 * both * (1 - both))
        return np.asarray(ndtr(room / error))
    region = _fisher_region(n, alpha)
    # Rounding may leave a proportion outside by 1e-17.
    chances_a, chances_b = (_binomial(n, np.clip(side, 0, 1)) for side in (share_a, share_b))
    return np.asarray(np.einsum("xk,xy,yk->k", chances_a, region, chances_b, optimize=True))


@lru_cache(maxsize=64)
def _fisher_region(n: int, alpha: float) -> Floats:
    """Return 1 for the successes of both arms with which Fisher's test rejects, else 0."""
    from scipy.special import gammaln

    counts = np.arange(n + 1)
    logs = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    # Row: successes of both arms together; column: those of one. Arms are equal, so the
    # distribution is symmetric and the two-sided p-value is twice the smaller tail.
    total = np.arange(2 * n + 1)[:, None]
    other = total - counts
    weights = np.where(
        (other >= 0) & (other <= n), logs + logs[np.clip(other, 0, n)], -math.inf
    )
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    tails = weights.cumsum(axis=1)
    few = 2 * tails * (1 - 1e-12) < alpha * tails[:, -1:]
    region = few[counts[:, None] + counts, counts]
    return np.asarray(region | region.T, np.float64)


def _binomial(n: int, shares: Floats) -> Floats:
    """Return the probabilities of 0 to n successes; shape (n + 1, shares)."""
    from scipy.special import gammaln, xlog1py, xlogy

    counts = np.arange(n + 1)[:, None]
    ways = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    return np.asarray(np.exp(ways + xlogy(counts, shares) + xlog1py(n - counts, -shares)))


def _smallest(power_at: Callable[[int], float], power: float) -> int:
    """Return the smallest n from which the power stays at least `power`."""
    high = 4
    while power_at(high) < power and high < _MOST:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_at(middle) >= power else (middle, high)
    # The power is not monotonic: it falls where a step of n allows no further rejection.
    ahead = high
    while ahead <= min(high + 8 + high // 8, _MOST_EXACT):
        if power_at(ahead) < power:
            high = ahead + 1
        ahead += 1
    return high


def _power(n: float, d: float, paired: bool, alpha: float) -> float:
    from scipy.special import stdtrit

    freedom = n - 1 if paired else 2 * (n - 1)
    # Larger effects are always detected, and squares would overflow.
    d = min(d, 1e100)
    noncentrality = d * math.sqrt(n if paired else n / 2)
    critical = float(stdtrit(freedom, 1 - alpha / 2))
    missed = noncentral_t_cdf(critical, freedom, noncentrality)
    missed -= noncentral_t_cdf(-critical, freedom, noncentrality)
    return min(1.0, max(0.0, 1 - missed))


def _trials(d: float, paired: bool, power: float, alpha: float) -> float:
    """Return the n at which the power is reached, at least 2; not rounded."""
    from scipy.special import ndtri

    # The normal limit is close to n, and always below it.
    root = float(ndtri(1 - alpha / 2) + ndtri(power)) / max(d, 1e-100)
    rough = (1 if paired else 2) * root * root
    if rough > 1e7:
        return rough
    high = 4 * max(rough, 2.0) + 100
    return solve(lambda n: _power(n, d, paired, alpha) - power, 2.0, high)


def _variation_interval(variation: float, n: int, level: float) -> tuple[float, float]:
    """Return bounds of sd / |mean|; the upper one is infinite if the mean may be 0."""
    if variation == 0:
        return 0.0, 0.0
    t = math.sqrt(n) / variation
    low, high = noncentrality_interval(t, n - 1, level)
    return math.sqrt(n) / high, math.sqrt(n) / low if low > 0 else math.inf


def _whole(plain: float) -> int:
    # 4.000000000000001 is four with a rounding error.
    return max(2, math.ceil(min(plain * (1 - 1e-12), _MOST)))


def _square(number: float) -> float:
    # Far above any sample size, and its square does not overflow.
    return min(number, 1e100) ** 2


def _priced(trials: Interval, what: str, each: float | None, scale: float) -> Interval | None:
    if each is None:
        return None
    if not (each >= 0 and math.isfinite(each)):
        raise UsageError(f"{what} {each!r} of a trial is not a finite number from 0 on")
    return Interval(*(n * each * scale for n in trials))


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"alpha {alpha!r} is not between 0 and 1; 0.05 is usual")


def _check_power(power: float, alpha: float) -> None:
    if not alpha < power < 1:
        raise UsageError(f"power {power!r} is not between alpha ({alpha}) and 1; 0.8 is usual")
