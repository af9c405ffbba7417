"""Means and differences of trials that are not independent: clusters, strata, bootstrap.

A cluster is a set of trials that share a task, a seed or a run, where that task, seed or run is
one of a sample of many. Clusters are assumed to be independent of each other. The number of
clusters, not of trials, limits the precision: with one cluster the bounds are NaN.

A stratum is also a set of trials that share something, but the strata are fixed: they are the
ones of interest, not a sample. So only the variance within strata counts. `difference_within`
compares two groups of trials within strata.

Labels are compared for equality; their order has no meaning.

Replicates of a world (a task with a seed) are the extreme case: a deterministic agent repeats
itself, and ten plays of a world may be one observation. Every world has the same weight,
however often it was played, and the unit is the world: values are averaged by world first, then
Student's t over worlds applies, which is the cluster-robust estimate (CR2) for these weights.
Proportions have bounds of their own here, because a world mean of 0 or 1 shows no spread.

`hierarchical_bootstrap` is library only: no command calls it.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.estimates import (
    Estimate,
    Sample,
    as_side,
    as_two,
    combined,
    deviation_of,
    least_error,
    pair_differences,
    scaled,
)
from assay.stats.intervals import (
    Interval,
    Side,
    as_sample,
    check_level,
    check_resamples,
    open_side,
    t_quantile,
)
from assay.stats.shares import exact_bounds, least_tail
from assay.stats.significance import TestResult

Labels = Sequence[Hashable] | NDArray[Any]
"""One label per value; values with equal labels are in one cluster."""
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

_MOST_UNITS = 400
"""With more clusters, degrees of freedom change no interval and the matrices are large."""


def clustered_mean(values: Sample, clusters: Labels, level: float = 0.95) -> Interval:
    """Return the mean of all values, with the interval of `clustered_estimate`."""
    return clustered_estimate(values, clusters).interval(level)


def clustered_difference(
    a: Sample,
    b: Sample,
    clusters_a: Labels,
    clusters_b: Labels | None = None,
    *,
    level: float = 0.95,
) -> Interval:
    """Return `mean(b) - mean(a)` with the interval of `clustered_difference_estimate`.

    Without `clusters_b` the samples are paired, and `clusters_a` labels the pairs.
    """
    return clustered_difference_estimate(a, b, clusters_a, clusters_b).interval(level)


def clustered_estimate(values: Sample, clusters: Labels, *, step: float = 0.0) -> Estimate:
    """Return the mean of all values, with a standard error that allows for clusters.

    The variance is the sum over clusters of their squared influence on the mean, which is the
    sum of the cluster's deviations over n: Miller, "Adding error bars to evals", 2024, section
    2.2. As in Bell and McCaffrey, "Bias reduction in standard errors for linear regression with
    multi-stage samples", 2002, it is divided by its expected proportion of the true variance
    and has Satterthwaite's degrees of freedom. Both assume that values within a cluster are
    equal: C clusters of equal size give the correction C / (C - 1) of Cameron and Miller, "A
    practitioner's guide to cluster-robust inference", 2015, and C - 1 degrees of freedom. If
    each value is its own cluster, the result is Student's. For `step` see `mean_estimate`.

    The usual CR2 assumes independent values within a cluster instead. Then the coverage of ten
    clusters of 1 or 8 values was 93.9 % if values within a cluster are equal, here 95.2 %.
    """
    sample = as_sample(values, "the values")
    codes = codes_of(clusters, len(sample), "the values")
    weights, pulls = _pulls(sample, codes, codes.max() + 1)
    return Estimate(float(sample.mean()), *_side(weights, pulls, step))


def clustered_difference_estimate(
    a: Sample,
    b: Sample,
    clusters_a: Labels,
    clusters_b: Labels | None = None,
    *,
    step: float = 0.0,
) -> Estimate:
    """Return `mean(b) - mean(a)` with a standard error that allows for clusters.

    Without `clusters_b` the values are paired and `clusters_a` labels the pairs: the result is
    the clustered mean of their differences. With `clusters_b`, a label that occurs on both
    sides is one cluster, and its effect on both sides cancels. Use the world as the label to
    compare all trials of two models that share only some worlds. One value of each sample per
    label gives the paired t test, and samples without a common label give Welch's. In between,
    the variance is

        var(mean a) + var(mean b) - 2 cov(mean a, mean b),

    each computed from the influence of clusters (Cameron and Miller, 2015) and divided by its
    expected proportion of the true value (Bell and McCaffrey, 2002), as in
    `clustered_estimate`. The degrees of freedom are Satterthwaite's at the estimated variances,
    as are Welch's. Compare Derrick, Russ, Toher and White, "Test statistics for the comparison
    of means for two samples that include both paired and independent observations", 2017.
    """
    if clusters_b is None:
        return clustered_estimate(pair_differences(a, b), clusters_a, step=step)
    (first, second), exponent = scaled(*as_two(a, b))
    codes_of(clusters_a, len(first), "the first sample")
    codes_of(clusters_b, len(second), "the second sample")
    both = [*clusters_a, *clusters_b]
    codes = codes_of(both, len(both), "both samples")
    units = int(codes.max()) + 1
    side_a = _pulls(first, codes[: len(first)], units)
    side_b = _pulls(second, codes[len(first) :], units)
    step = float(np.ldexp(step, -exponent))
    shared = bool((side_a[0] * side_b[0]).any())
    parts = [_side(*side, 0.0 if shared else step) for side in (side_a, side_b)]
    found = combined(float(second.mean() - first.mean()), parts)
    if shared and not math.isnan(found.error):
        found = Estimate(found.point, *_shared(side_a, side_b, parts, step))
    point, error = (float(np.ldexp(one, exponent)) for one in found[:2])
    return Estimate(point, error, found.freedom)


def stratified_estimate(values: Sample, strata: Labels, *, step: float = 0.0) -> Estimate:
    """Return the mean of all values, with a standard error from the variance within strata.

    Cochran, Sampling Techniques, 3rd ed. 1977, section 5.4: strata are weighted by their number
    of values, each has its own variance, and the degrees of freedom are Satterthwaite's. A
    stratum of one value has no variance: such strata are collapsed into one (section 5A.12). If
    there is only one of them, it joins the smallest other stratum. Both widen the interval.
    With one stratum, or if no stratum has two values, the result is Student's. For `step` see
    `mean_estimate`.
    """
    sample = as_sample(values, "the values")
    found = combined(float(sample.mean()), _within(sample, strata, "the values"))
    return found._replace(error=least_error(found.error, len(sample), step))


def stratified_difference_estimate(
    a: Sample,
    b: Sample,
    strata_a: Labels,
    strata_b: Labels | None = None,
    *,
    worlds_a: Labels | None = None,
    worlds_b: Labels | None = None,
    step: float = 0.0,
) -> Estimate:
    """Return `mean(b) - mean(a)` with a standard error from the variance within strata.

    Without `strata_b` the values are paired, and the result is the stratified mean of their
    differences. With `strata_b` the variances of both sides add up (Cochran, 1977, as in
    `stratified_estimate`); with one stratum per side the result is Welch's. If the worlds of
    the values are given, a world on both sides is one cluster, and each stratum has the
    variance of `clustered_difference_estimate`. Strata with fewer than two values on a side are
    then merged.
    """
    if strata_b is None:
        return stratified_estimate(pair_differences(a, b), strata_a, step=step)
    first, second = as_two(a, b)
    if worlds_a is None or worlds_b is None:
        parts: Sequence[tuple[float, float]] = [
            *_within(first, strata_a, "the first sample"),
            *_within(second, strata_b, "the second sample"),
        ]
    else:
        parts = _between(first, second, (strata_a, strata_b), (worlds_a, worlds_b))
    found = combined(float(second.mean() - first.mean()), parts)
    n = min(len(first), len(second))
    return found._replace(error=least_error(found.error, n, step))


def _between(
    a: Floats, b: Floats, strata: tuple[Labels, Labels], worlds: tuple[Labels, Labels]
) -> list[tuple[float, float]]:
    """Return the error and degrees of freedom that each stratum adds to a difference."""
    both = [*strata[0], *strata[1]]
    codes = codes_of(both, len(a) + len(b), "both samples")
    sizes = np.stack(
        [np.bincount(side, minlength=codes.max() + 1) for side in np.split(codes, [len(a)])]
    )
    few = np.asarray((sizes < 2).any(axis=0))
    if few.any() and not few.all() and (sizes[:, few].sum(axis=1) < 2).any():
        # Too few even when merged: they join the smallest other stratum.
        few[np.where(few, sizes.sum() + 1, sizes.sum(axis=0)).argmin()] = True
    codes_a, codes_b = np.split(np.where(few[codes], -1, codes), [len(a)])
    return [
        clustered_difference_estimate(
            a[in_a] * in_a.mean(),
            b[in_b] * in_b.mean(),
            [world for world, inside in zip(worlds[0], in_a, strict=True) if inside],
            [world for world, inside in zip(worlds[1], in_b, strict=True) if inside],
        )[1:]
        for in_a, in_b in ((codes_a == code, codes_b == code) for code in np.unique(codes_a))
    ]


def codes_of(labels: Labels, n: int, what: str) -> Codes:
    """Return an integer code from 0 for each label, in order of appearance."""
    if len(labels) != n:
        raise UsageError(f"{what} are {n} and have {len(labels)} labels; give one per value")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)


_Side = tuple[Floats, Floats]
"""Weight of each cluster in a mean, and its influence ("pull") on the mean; 0 if absent."""


def _pulls(sample: Floats, codes: Codes, units: int) -> _Side:
    weights = np.bincount(codes, minlength=units) / len(sample)
    return weights, np.bincount(codes, sample - sample.mean(), units) / len(sample)


def _kept(u: Floats, v: Floats) -> float:
    """Return the expected proportion of a variance or covariance that the pulls capture."""
    shared = float(u @ v)
    return (shared - float((u * v) @ (u + v)) + shared**2) / shared


def _side(weights: Floats, pulls: Floats, step: float) -> tuple[float, float]:
    """Return the standard error of a mean and its degrees of freedom."""
    clusters = int((weights > 0).sum())
    if clusters < 2:
        return math.nan, math.nan
    error = math.hypot(*pulls.tolist()) / math.sqrt(_kept(weights, weights))
    two, three, four, five = (float((weights**power).sum()) for power in (2, 3, 4, 5))
    # Traces of Q and of its square, where Q is the matrix of the sum of squared pulls.
    trace = two - 2 * three + two**2
    square = four - 4 * five + 4 * two * four + 2 * three**2 - 4 * two**2 * three + two**4
    return least_error(error, clusters, step), trace**2 / square


def _shared(
    side_a: _Side, side_b: _Side, parts: list[tuple[float, float]], step: float
) -> tuple[float, float]:
    """Return the error and degrees of freedom of a difference with clusters on both sides."""
    (weights_a, pulls_a), (weights_b, pulls_b) = side_a, side_b
    (error_a, freedom_a), (error_b, freedom_b) = parts
    scale = 1 / _kept(weights_a, weights_b)
    covariance = scale * float(pulls_a @ pulls_b)
    # Never below the uncorrected sum of squared pulls, which is not negative.
    plain = float(((pulls_b - pulls_a) ** 2).sum())
    variance = max(error_a**2 + error_b**2 - 2 * covariance, plain)
    error = least_error(math.sqrt(variance), len(weights_a), step)
    if len(weights_a) > _MOST_UNITS or not plain:
        return error, min(freedom_a, freedom_b)
    on_a, on_b = weights_a > 0, weights_b > 0
    within_a, within_b = (
        variance / float(weights @ weights)
        for variance, weights in ((error_a**2, weights_a), (error_b**2, weights_b))
    )
    between = np.diag((on_a & on_b) * covariance / float(weights_a @ weights_b))
    model = np.block([[np.diag(within_a * on_a), between], [between, np.diag(within_b * on_b)]])
    pull_a, pull_b = (np.diag(one) - np.outer(one, one) for one in (weights_a, weights_b))
    cross = -scale * pull_a @ pull_b
    form = np.block(
        [
            [pull_a @ pull_a / _kept(weights_a, weights_a), cross],
            [cross.T, pull_b @ pull_b / _kept(weights_b, weights_b)],
        ]
    )
    product = form @ model
    return error, float(np.trace(product) ** 2 / (product * product.T).sum())


def _within(sample: Floats, strata: Labels, what: str) -> list[tuple[float, int]]:
    """Return the error and degrees of freedom that each stratum adds to a mean."""
    codes = codes_of(strata, len(sample), what)
    sizes = np.bincount(codes)
    single = sizes[codes] == 1
    if single.sum() == 1 and len(sizes) > 1:
        others = np.where(sizes > 1, sizes, len(sample))
        codes = np.where(single, others.argmin(), codes)
    else:
        codes = np.where(single, len(sizes), codes)
    groups = [sample[codes == code] for code in np.unique(codes)]
    return [
        (
            math.sqrt(len(group)) * deviation_of(group) / len(sample)
            if len(group) > 1
            else math.nan,
            len(group) - 1,
        )
        for group in groups
    ]


def difference_within(
    values: Sample, marked: Sequence[bool], strata: Labels, clusters: Labels
) -> Estimate:
    """Return the mean of the marked values minus the mean of the others, within strata.

    The differences within strata are weighted by n1 n0 / (n1 + n0): the least-squares estimate
    with a constant for every stratum. The error allows for clusters (Liang and Zeger,
    "Longitudinal data analysis using generalized linear models", 1986), with the correction
    C / (C - 1) and C - 1 degrees of freedom for C clusters (Cameron and Miller, 2015). The
    estimate is NaN if no stratum has both marked and other values.
    """
    sample = as_sample(values, "the values")
    marks = np.asarray(marked, np.float64)
    if len(marks) != len(sample):
        raise UsageError(f"{len(sample)} values have {len(marks)} marks; give as many")
    layers = codes_of(strata, len(sample), "the values")
    units = codes_of(clusters, len(sample), "the values")
    sizes = np.bincount(layers)
    mark = marks - (np.bincount(layers, marks) / sizes)[layers]
    value = sample - (np.bincount(layers, sample) / sizes)[layers]
    squares = float(mark @ mark)
    if squares < 1e-12:
        return Estimate(math.nan, math.nan, math.nan)
    point = float(mark @ value) / squares
    count = int(units.max()) + 1
    if count < 2:
        return Estimate(point, math.nan, math.nan)
    pulls = np.bincount(units, mark * (value - point * mark))
    error = math.sqrt(float(pulls @ pulls) * count / (count - 1)) / squares
    return Estimate(point, error, count - 1)


def korn_graubard(shares: Sample, plays: Sequence[int], level: float = 0.95) -> Interval:
    """Return the mean over worlds of their proportions, with an interval in [0, 1].

    Korn and Graubard, "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", 1998: the exact interval (Clopper and Pearson,
    1934) at the effective number of trials: the number of independent ones with the variance of
    the worlds, reduced for the few worlds it is estimated from. If all plays of every world are
    equal, it is the number of worlds. Also for scores from 0 to 1 other than 0 and 1.

    In simulations of 5 to 50 worlds with 2 to 10 plays the coverage was at least 95 % for
    deterministic and for independent plays, and 91 to 94 % for 10 plays of worlds that are
    nearly all solved always or never, with a mean of 5 %.

    Args:
        shares: Proportion of successes by world.
        plays: Number of plays by world.
        level: Confidence level.
    """
    check_level(level)
    sample = _world_shares(shares, plays)
    return Interval(float(sample.mean()), *_share_bounds(sample, plays, (1 - level) / 2))


def world_share_difference(
    a: Sample,
    b: Sample,
    plays_a: Sequence[int],
    plays_b: Sequence[int],
    *,
    paired: bool,
    level: float = 0.95,
    side: Side | str = Side.TWO_SIDED,
) -> Interval:
    """Return the mean proportion of `b` minus that of `a` over worlds, with an interval.

    Newcombe, "Improved confidence intervals for the difference between binomial proportions
    based on paired data", 1998, method 10, from the bounds of `korn_graubard`. The correlation
    of paired worlds is shrunk by (n - 1) / (n + 1), since few worlds show it poorly. Unpaired
    worlds have a correlation of 0: with one play each it is `share_difference`.

    Args:
        a: Proportions of the baseline by world.
        b: Proportions of the candidate by world; if paired, in the order of `a`.
        plays_a: Number of plays by world of `a`.
        plays_b: Number of plays by world of `b`.
        paired: Whether world i of one side is world i of the other.
        level: Confidence level.
        side: Sides on which the interval is bounded.
    """
    check_level(level)
    first, second = _world_shares(a, plays_a), _world_shares(b, plays_b)
    wanted = as_side(side)
    tail = (1 - level) / (2 if wanted is Side.TWO_SIDED else 1)
    correlation = _correlation(first, second) if paired else 0.0
    low, high = _moved(first, second, plays_a, plays_b, correlation, tail)
    return open_side(Interval(float(second.mean() - first.mean()), low, high), wanted)


def world_share_test(
    a: Sample,
    b: Sample,
    plays_a: Sequence[int],
    plays_b: Sequence[int],
    *,
    paired: bool,
    side: Side | str = Side.TWO_SIDED,
) -> TestResult:
    """Test whether mean proportions of worlds differ; the statistic is their difference.

    The p-value is the smallest alpha at which the interval of `world_share_difference`
    (Newcombe, 1998; Korn and Graubard, 1998) excludes 0, so both always agree.
    """
    first, second = _world_shares(a, plays_a), _world_shares(b, plays_b)
    wanted = as_side(side)
    correlation = _correlation(first, second) if paired else 0.0

    def bounds(tail: float) -> tuple[float, float]:
        return _moved(first, second, plays_a, plays_b, correlation, tail)

    point = float(second.mean() - first.mean())
    above = least_tail(lambda tail: bounds(tail)[0]) if point > 0 else 1.0
    below = least_tail(lambda tail: -bounds(tail)[1]) if point < 0 else 1.0
    p = {
        Side.GREATER: above,
        Side.LESS: below,
        Side.TWO_SIDED: min(1.0, 2 * min(above, below)),
    }[wanted]
    n = len(first) if paired else len(first) + len(second)
    return TestResult("test of proportions by world", point, p, n, exact=False)


def _world_shares(shares: Sample, plays: Sequence[int]) -> Floats:
    sample = as_sample(shares, "the proportions of worlds")
    if len(plays) != len(sample) or min(plays) < 1:
        raise UsageError(
            f"{len(sample)} worlds have {len(plays)} numbers of plays; give one from 1 on each"
        )
    if sample.min() < 0 or sample.max() > 1:
        raise UsageError(f"proportions are from 0 to 1; got {sample.min():g}, {sample.max():g}")
    return sample


def _share_bounds(shares: Floats, plays: Sequence[int], tail: float) -> tuple[float, float]:
    worlds, trials, mean = len(shares), sum(plays), float(shares.mean())
    effective = float(worlds)
    if worlds > 1 and not np.isin(shares, (0, 1)).all():
        # At a tail of 1/2 both quantiles are 0, and their ratio has the limit from below.
        inner = 1 - min(tail, 0.499)
        fewer = t_quantile(trials - 1, inner) / t_quantile(worlds - 1, inner)
        variance = float(shares.var(ddof=1)) / worlds
        alike = variance * trials <= mean * (1 - mean) * fewer**2
        effective = trials if alike else mean * (1 - mean) / variance * fewer**2
    low, high = exact_bounds(mean * effective, effective, tail)
    return min(low, mean), max(high, mean)


def _correlation(a: Floats, b: Floats) -> float:
    """Return the correlation of paired worlds, shrunk; 0 if a side does not vary."""
    if len(a) != len(b):
        raise UsageError(f"{len(a)} worlds cannot be paired with {len(b)}; give the same ones")
    first, second = a - a.mean(), b - b.mean()
    size = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / size * (len(a) - 1) / (len(a) + 1) if size else 0.0


def _moved(
    a: Floats,
    b: Floats,
    plays_a: Sequence[int],
    plays_b: Sequence[int],
    correlation: float,
    tail: float,
) -> tuple[float, float]:
    """Return Newcombe's bounds of mean(b) - mean(a) from the bounds of both."""
    mean_a, mean_b = float(a.mean()), float(b.mean())
    low_a, high_a = _share_bounds(a, plays_a, tail)
    low_b, high_b = _share_bounds(b, plays_b, tail)

    def apart(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x * x - 2 * correlation * x * y + y * y))

    low = mean_b - mean_a - apart(mean_b - low_b, high_a - mean_a)
    high = mean_b - mean_a + apart(high_b - mean_b, mean_a - low_a)
    return max(-1.0, low), min(1.0, high)


def hierarchical_bootstrap(
    values: Sample,
    groups: Sequence[Labels],
    *,
    strata: Labels | None = None,
    resampled: int | None = None,
    level: float = 0.95,
    rng: np.random.Generator,
    n_resamples: int = 10_000,
) -> Interval:
    """Return the mean over runs of task means of episode means, by nested resampling.

    Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8: units of
    the outermost level are drawn with replacement, then units within each of those, down to
    single values. Drawing at every level counts part of the inner variance twice, so the
    interval is slightly too wide; `resampled=1` draws only the outermost units and keeps them
    whole, which the book finds more accurate.

    The bounds are quantiles, moved outwards for few outermost units U as in Hesterberg, "What
    teachers should know about the bootstrap", 2015: the tail probability is
    Phi(-sqrt(U / (U - 1)) t) with the t quantile of U - 1 degrees of freedom. Without this
    correction the interval from five runs is far too short. One outermost unit has bounds of
    NaN.

    In simulations of 5 to 15 runs with normal effects of run, task and episode, the coverage of
    the 95 % interval was 95 to 100 % with all levels drawn, higher the less runs differ, and 91
    to 94 % with only the outermost drawn; `clustered_mean` by run had 95 %.

    Args:
        values: One per episode, shape (N,).
        groups: Labels of each value by level, outermost first: `[runs, tasks]`. Labels are
            local to their outer unit: task "x" in two runs is two units.
        strata: Labels of each value within which outermost units are drawn, so that every
            resample has as many units of each stratum as the data. Strata are not weighted:
            every outermost unit counts the same, with strata or without.
        resampled: Number of levels to draw, from the outermost; all by default.
        level: Confidence level.
        rng: Random generator.
        n_resamples: Number of resamples.
    """
    sample = as_sample(values, "the values")
    check_level(level)
    check_resamples(n_resamples)
    depth = len(groups) + 1
    drawn = depth if resampled is None else resampled
    if not groups or not 1 <= drawn <= depth:
        raise UsageError(
            f"{len(groups)} levels of groups, {drawn} of them resampled; give one level of"
            f" groups or more, and resample 1 to {depth}"
        )
    codes = [codes_of(labels, len(sample), "the values") for labels in groups]
    layers = np.zeros(len(sample), np.int64)
    if strata is not None:
        layers = codes_of(strata, len(sample), "the values")
    trees = [
        _tree(sample, codes, np.flatnonzero(layers == layer)) for layer in np.unique(layers)
    ]
    return _resampled_interval(trees, drawn, level, rng, n_resamples)


_Tree = list[Any] | Floats
"""List of subtrees, or the values of an innermost unit."""


def _tree(values: Floats, codes: list[Codes], rows: NDArray[np.intp]) -> _Tree:
    if not codes:
        return values[rows]
    outer = codes[0][rows]
    return [_tree(values, codes[1:], rows[outer == code]) for code in np.unique(outer)]


def _mean(tree: _Tree) -> float:
    return float(np.mean([_mean(part) for part in tree] if isinstance(tree, list) else tree))


def _draw(tree: _Tree, size: int, levels: int, rng: np.random.Generator) -> Floats:
    """Return means of resamples of a tree, drawn at its outermost levels; shape (size,)."""
    if levels == 0:
        return np.full(size, _mean(tree))
    picks = rng.integers(0, len(tree), (size, len(tree)))
    if not isinstance(tree, list):
        return np.asarray(tree[picks].mean(axis=1))
    means = np.empty(picks.shape)
    for at, part in enumerate(tree):
        # A unit that was drawn twice is resampled independently each time.
        here = picks == at
        means[here] = _draw(part, int(here.sum()), levels - 1, rng)
    return np.asarray(means.mean(axis=1))


def _resampled_interval(
    trees: list[_Tree], levels: int, level: float, rng: np.random.Generator, n_resamples: int
) -> Interval:
    from scipy.special import ndtr, stdtrit

    units = sum(len(tree) for tree in trees)
    weights = [len(tree) / units for tree in trees]
    point = sum(weight * _mean(tree) for weight, tree in zip(weights, trees, strict=True))
    freedom = units - len(trees)
    if freedom < 1:
        return Interval(point, math.nan, math.nan)
    means = np.zeros(n_resamples)
    for weight, tree in zip(weights, trees, strict=True):
        means += weight * _draw(tree, n_resamples, levels, rng)
    wide = math.sqrt((freedom + 1) / freedom) * float(stdtrit(freedom, (1 + level) / 2))
    tail = float(ndtr(-wide))
    low, high = np.quantile(means, [tail, 1 - tail])
    # For equal values, rounding would leave the point outside the interval.
    return Interval(point, min(point, float(low)), max(point, float(high)))
