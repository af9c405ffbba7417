"""Multiple comparisons: adjusted p-values, estimates after selection, and ranks.

The adjusted p-values are each compared with the significance level. Which models are compared,
and what is concluded, is decided by `assay.judge`.

Estimates are biased if they were selected for their size (the winner's curse): a difference is
shown because it was significant, a model because it was the best of several, and a plan is made
because a difference was observed. The estimates after selection here are shrunk by about the
average bias. They have no interval. For an interval, run the winner again in worlds that were
not used for the selection.

Models that the data cannot distinguish share a rank.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.stats.effects import solve
from assay.stats.estimates import Estimate, Sample
from assay.stats.intervals import as_sample, check_level


class Correction(StrEnum):
    """Error rate that is limited to 1 - level over all comparisons together."""

    HOLM = "holm"
    """Probability of at least one false difference, under any dependence."""
    BENJAMINI_HOCHBERG = "bh"
    """Expected proportion of false differences among those reported (false discovery rate)."""


def holm(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    """Return p-values adjusted for the probability of any false rejection, in input order.

    Holm, "A simple sequentially rejective multiple test procedure", 1979: the k-th smallest of
    m is multiplied by m - k + 1, and a running maximum makes the results monotone.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def benjamini_hochberg(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    """Return p-values adjusted for the false discovery rate, in input order.

    Benjamini and Hochberg, "Controlling the false discovery rate", 1995: the k-th smallest of m
    is multiplied by m / k, and a running minimum from the largest makes the results monotone.
    It holds for independent and for positively dependent comparisons, not for any dependence.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")[::-1]
    steps = p[order] * len(p) / np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(steps))
    return adjusted


def _p_values(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise UsageError(
            "p-values are a flat list of numbers in [0, 1]; leave out what has none"
        )
    return p


_NO_EFFECT_PAIRS = 8
"""Number of pairs without a difference that are added to a pilot. It is a normal prior of
effects around 0 with a standard deviation of 0.35, in standard deviations of a difference."""


def after_verdict(estimate: Estimate, level: float = 0.95) -> float:
    """Return the most likely true difference, given that the estimate was significant.

    The maximum of the likelihood given that the test rejected: Zhong and Prentice,
    "Bias-reduced estimators and confidence intervals for odds ratios in genome-wide association
    studies", 2008, on the normal deviate with the same p-value. Just beyond the threshold it is
    a third of the plain estimate, at twice the threshold all of it. An estimate that is not
    significant was not selected for significance, and is returned unchanged.
    """
    check_level(level)
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import ndtr, ndtri

    p = estimate.p_value()
    if not 0 < p < 1 - level:
        return estimate.point
    z, bound = -float(ndtri(p / 2)), -float(ndtri((1 - level) / 2))

    def slope(truth: float) -> float:
        """Return minus the derivative of the log-likelihood, which is increasing."""
        above, below = bound - truth, bound + truth
        chance = float(ndtr(-above) + ndtr(-below))
        density = (math.exp(-(above**2) / 2) - math.exp(-(below**2) / 2)) / math.sqrt(math.tau)
        return truth - z + density / chance

    return estimate.point * solve(slope, 0.0, z) / z


def shrunken_means(samples: Sequence[Sample], *, paired: bool) -> NDArray[np.float64]:
    """Return the means of several samples, each shrunk towards the mean of all.

    Efron and Morris, "Data analysis using Stein's estimator and its generalizations", 1975: a
    mean keeps the proportion of the variance between means that their standard error does not
    explain. So the best of several equal models is not shown above the others, and one that
    leads by much more than chance keeps its mean.

    Args:
        samples: Values of each model, at least two models and two values of each.
        paired: Whether values at one position are from one world. The effect of a world on all
            models is then not counted as error.
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
    """Return the effect to plan with, after one was observed in n pairs, or n trials per arm.

    effect n / (n + 8), as if eight more pairs had shown none: the mean of a normal posterior
    with a prior of effects around 0 (O'Hagan, Stevens and Campbell, "Assurance in clinical
    trial design", 2005, on why a plan with the observed effect lacks power). Over undecided
    pilots of 5 to 20 pairs, such a plan for 80 % power has 80 % or more on average if the true
    effect is 0.2 standard deviations or more; a plan with the observed effect has 51 to 74 % at
    0.2.
    """
    if n < 1 or not math.isfinite(effect):
        raise UsageError(
            f"an effect of {effect!r} in {n} trials; give a number seen in 1 or more"
        )
    return effect * n / (n + _NO_EFFECT_PAIRS)


def ranks(
    means: Mapping[str, float],
    *,
    higher_is_better: bool = True,
    significant: Iterable[tuple[str, str]] | None = None,
) -> dict[str, int]:
    """Return the rank of each model, from 1; ties share their best rank (1, 2, 2, 4).

    Without `significant` only equal means tie. `significant` has the pairs of models that
    differ significantly. With it, a rank is 1 plus the number of models shown to be better: a
    model is second only if another one beats it. That is the best rank compatible with the data
    (Mogstad, Romano, Shaikh and Wilhelm, "Inference for ranks", 2024).
    """
    sign = 1 if higher_is_better else -1
    scores = {name: sign * float(mean) for name, mean in means.items()}
    for name, score in scores.items():
        if not np.isfinite(score):
            raise UsageError(f"the mean of {name!r} is {score}; rank models that have one")
    apart = None if significant is None else _told_apart(means, significant)
    return {
        name: 1
        + sum(
            score < other and (apart is None or frozenset((name, rival)) in apart)
            for rival, other in scores.items()
        )
        for name, score in scores.items()
    }


def indistinguishable_groups(
    names: Sequence[str], significant: Iterable[tuple[str, str]]
) -> tuple[tuple[str, ...], ...]:
    """Return the largest groups within which no two models differ significantly.

    Two models share a group exactly if they do not differ significantly, as in a compact letter
    display (Piepho, "An algorithm for a letter-based representation of all-pairwise
    comparisons", 2004): the groups are the maximal cliques of the graph of pairs that do not
    differ (Bron and Kerbosch, "Algorithm 457", 1973). If names are ordered by mean, groups are
    usually runs of neighbours. A model that differs from all others is a group of one.

    Args:
        names: All models, best first; groups and their members keep this order.
        significant: Pairs that differ, in either order.
    """
    if len(set(names)) < len(names):
        raise UsageError(f"a model is named twice among {', '.join(names)}; name each once")
    apart = _told_apart(names, significant)
    near = {
        name: {other for other in names if other != name and {name, other} not in apart}
        for name in names
    }
    place = {name: at for at, name in enumerate(names)}
    groups: list[list[int]] = []

    def grow(group: set[str], open_: set[str], closed: set[str]) -> None:
        if not open_ and not closed:
            groups.append(sorted(place[name] for name in group))
            return
        pivot = max(open_ | closed, key=lambda name: (len(near[name] & open_), -place[name]))
        for name in sorted(open_ - near[pivot], key=place.__getitem__):
            grow(group | {name}, open_ & near[name], closed & near[name])
            open_, closed = open_ - {name}, closed | {name}

    if names:
        grow(set(), set(names), set())
    return tuple(tuple(names[at] for at in group) for group in sorted(groups))


def _told_apart(
    names: Iterable[str], significant: Iterable[tuple[str, str]]
) -> set[frozenset[str]]:
    known = list(names)
    apart = set()
    for pair in significant:
        for name in pair:
            if name not in known:
                raise UsageError(unknown_name("model", name, known))
        apart.add(frozenset(pair))
    return apart
