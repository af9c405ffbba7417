"""Power and sample size: detectable effects, required trials, and their cost.

Tests are two-sided t tests of normal data. `n` and every sample size is the number of pairs, or
of trials in each of two equal arms. `sd` is the standard deviation of the paired differences,
or within an arm. A plan from a pilot is as uncertain as the pilot's standard deviation, so
every sample size has a range that reflects this uncertainty.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.effects import noncentral_t_cdf, noncentrality_interval, solve
from assay.stats.estimates import deviation_of
from assay.stats.intervals import Interval, as_sample, check_level
from assay.stats.variance import checked_sd, sd_interval

_MOST = 10**15
"""Upper limit of a sample size; it means this many or more."""


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
    return Needed(_whole(plain), low, high, plain, pilot_n, level)


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
