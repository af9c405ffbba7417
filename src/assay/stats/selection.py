"""What an estimate is worth after it was chosen for its size: the winner's curse.

A difference is shown because it was significant, a model because it was the best of several,
a plan is made because a difference was seen: each time luck was chosen along with the effect.
The estimates here take back about as much as luck gives on average. They have no interval:
the remedy with one is to play the winner again, in worlds that had no part in the choice.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.estimates import Estimate
from assay.stats.noncentral import solve
from assay.stats.samples import as_sample, check_level
from assay.stats.two_samples import Sample

__all__ = ["after_verdict", "plan_effect", "shrunken_means"]

_NO_EFFECT_PAIRS = 8
"""So many pairs without a difference are added to a pilot: a normal prior of effects around 0
with a standard deviation of 0.35, in those of a difference."""


def after_verdict(estimate: Estimate, level: float = 0.95) -> float:
    """The difference that most likely led to one that was found significant at this level.

    The maximum of the likelihood given that the test rejected: Zhong and Prentice,
    "Bias-reduced estimators and confidence intervals for odds ratios in genome-wide association
    studies", 2008, on the normal deviate with the same p-value. Just beyond the threshold it
    is a third of the plain estimate, at twice the threshold all of it. An estimate that is not
    significant was not chosen for being so, and is given back.
    """
    check_level(level)
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import ndtr, ndtri

    p = estimate.p_value()
    if not 0 < p < 1 - level:
        return estimate.point
    z, bound = -float(ndtri(p / 2)), -float(ndtri((1 - level) / 2))

    def slope(truth: float) -> float:
        """Minus the derivative of the logarithm of the likelihood; it rises through 0."""
        above, below = bound - truth, bound + truth
        chance = float(ndtr(-above) + ndtr(-below))
        density = (math.exp(-(above**2) / 2) - math.exp(-(below**2) / 2)) / math.sqrt(math.tau)
        return truth - z + density / chance

    return estimate.point * solve(slope, 0.0, z) / z


def shrunken_means(samples: Sequence[Sample], *, paired: bool) -> NDArray[np.float64]:
    """The means of several, each moved to the mean of all by the share that is luck.

    Efron and Morris, "Data analysis using Stein's estimator and its generalizations", 1975: a
    mean keeps the share of the spread between means that their standard error does not
    explain. So the best of several equal models is not shown above the others, and one that
    leads by much more than chance stays where it is.

    Args:
        samples: The values of each, two or more of them.
        paired: Whether values at one place are of one world. What a world does to all is then
            not counted as luck.
    """
    values = [as_sample(one, "the values of a sample", least=2) for one in samples]
    sizes = {len(one) for one in values}
    if len(values) < 2 or (paired and len(sizes) > 1):
        raise UsageError(
            f"{len(values)} samples of {sorted(sizes)} values; give two or more, in pairs as"
            " many values of each"
        )
    means = np.array([one.mean() for one in values])
    if paired:
        table = np.array(values)
        rest = table - table.mean(axis=0) - means[:, None] + means.mean()
        k, n = table.shape
        errors = np.full(k, (rest**2).sum() / ((k - 1) * (n - 1)) / n)
    else:
        errors = np.array([one.var(ddof=1) / len(one) for one in values])
    spread = max(0.0, float(means.var(ddof=1) - errors.mean()))
    kept = np.divide(spread, spread + errors, out=np.ones_like(errors), where=errors > 0)
    return np.asarray(means.mean() + kept * (means - means.mean()))


def plan_effect(effect: float, n: int) -> float:
    """The effect to plan by after one was seen in n pairs, or n trials of each arm.

    effect n / (n + 8), as if eight more pairs had shown none: the mean of a normal posterior
    with a prior of effects around 0 (O'Hagan, Stevens and Campbell, "Assurance in clinical
    trial design", 2005, on why a plan by the plain effect lacks power). Over undecided pilots
    of 5 to 20 pairs such a plan for 80 % has 80 % or more on average where the true effect is
    0.2 standard deviations or more; the plan by the plain effect has 51 to 74 % at 0.2.
    """
    if n < 1 or not math.isfinite(effect):
        raise UsageError(
            f"an effect of {effect!r} in {n} trials; give a number seen in 1 or more"
        )
    return effect * n / (n + _NO_EFFECT_PAIRS)
