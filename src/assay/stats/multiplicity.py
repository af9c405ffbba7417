"""Many comparisons at once: p-values adjusted so that each can be held against the level.

Who is compared with whom, and what follows from it, is decided by `assay.judge`.

What an estimate is worth after it was chosen for its size: the winner's curse.

A difference is shown because it was significant, a model because it was the best of several,
a plan is made because a difference was seen: each time luck was chosen along with the effect.
The estimates here take back about as much as luck gives on average. They have no interval:
the remedy with one is to play the winner again, in worlds that had no part in the choice.

Places of models, where those that the data do not tell apart share one.
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
    """What is kept at 1 - level over all comparisons together."""

    HOLM = "holm"
    """The chance of even one false difference, whatever the comparisons have in common."""
    BENJAMINI_HOCHBERG = "bh"
    """The expected share of false ones among the differences that are named."""


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


def _p_values(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise UsageError(
            "p-values are a flat list of numbers in [0, 1]; leave out what has none"
        )
    return p


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


def ranks(
    means: Mapping[str, float],
    *,
    higher_is_better: bool = True,
    significant: Iterable[tuple[str, str]] | None = None,
) -> dict[str, int]:
    """The rank of each model, from 1; ties share the best rank of theirs (1, 2, 2, 4).

    Without `significant` only equal means tie. With it, the pairs of models that the data
    told apart, a rank is 1 plus the number of models that are shown to be better: a model is
    second only if there is one that beats it. That is the best rank the data leave open
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
    """The largest groups within which no two models differ significantly.

    Two models share a group exactly if the data do not tell them apart, as in a compact
    letter display (Piepho, "An algorithm for a letter-based representation of all-pairwise
    comparisons", 2004): the groups are the maximal cliques of the graph of pairs that do not
    differ (Bron and Kerbosch, "Algorithm 457", 1973). With names ordered by their mean the
    groups are as a rule runs of neighbours. A model alone is a group of one.

    Args:
        names: All models, best first; groups and their members keep this order.
        significant: The pairs that differ, in either order.
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
