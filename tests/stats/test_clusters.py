"""Clustered errors and the nested bootstrap, held against statsmodels and simpler cases."""

import numpy as np
import pytest
from scipy import stats

from assay.errors import UsageError
from assay.stats.clusters import (
    clustered_difference,
    clustered_difference_estimate,
    clustered_estimate,
    clustered_mean,
    hierarchical_bootstrap,
    stratified_difference_estimate,
    stratified_estimate,
)
from assay.stats.differences import unpaired_difference
from assay.stats.intervals import Side, t_interval
from tests.oracles.asking import ask_statsmodels, needs_oracles

TASKS = ["x", "x", "y", "z", "z", "z", "w", "y"]
VALUES = [1.0, 1.2, 3.0, 2.0, 2.4, 1.8, 5.0, 3.5]


def test_values_that_are_their_own_clusters_have_students_interval() -> None:
    assert clustered_mean(VALUES, range(8)) == pytest.approx(t_interval(VALUES))


def test_repeating_every_value_in_its_cluster_adds_nothing() -> None:
    twice, labels = np.repeat(VALUES, 2), np.repeat(np.arange(8), 2)
    assert clustered_mean(twice, labels) == pytest.approx(t_interval(VALUES))


def test_clusters_that_are_not_shared_are_compared_as_welch_would() -> None:
    a, b = VALUES, [2.0, 4.0, 4.5]
    found = clustered_difference(a, b, range(8), ["p", "q", "r"])
    assert found == pytest.approx(unpaired_difference(a, b))


def test_without_clusters_of_b_the_values_are_pairs() -> None:
    b = np.array(VALUES) + np.linspace(0, 1, 8)
    expected = clustered_mean(np.linspace(0, 1, 8), TASKS)
    assert clustered_difference(VALUES, b, TASKS) == pytest.approx(expected)


def test_what_a_shared_task_does_to_both_cancels() -> None:
    rng = np.random.default_rng(1)
    tasks = np.repeat(np.arange(10), 4)
    shared = rng.normal(0, 5, 10)[tasks]
    a, b = shared + rng.normal(size=40), shared + rng.normal(1, 1, 40)
    together = clustered_difference(a, b, tasks, tasks)
    apart = clustered_difference(a, b, tasks, tasks + 100)
    assert together.half_width < apart.half_width / 3


def test_one_cluster_gives_no_bounds() -> None:
    assert not clustered_mean(VALUES, ["x"] * 8).known
    assert not clustered_difference(VALUES, VALUES, ["x"] * 8, ["x"] * 8).known
    assert not clustered_difference(VALUES, VALUES, ["x"] * 8, ["y"] * 8).known
    assert not clustered_difference([1.0], [2.0], ["x"], ["x"]).known


def test_labels_have_to_be_as_many_as_values() -> None:
    with pytest.raises(UsageError, match="8 and have 7 labels"):
        clustered_mean(VALUES, TASKS[1:])


@pytest.mark.extras
@needs_oracles
def test_clustered_errors_of_equal_clusters_equal_statsmodels() -> None:
    b, tasks = [2.0, 1.9, 4.0, 2.2, 6.0, 1.0, 0.5, 2.5], [0, 0, 1, 1, 2, 2, 3, 3]
    design = [[1.0, 0.0]] * 8 + [[1.0, 1.0]] * 8
    mean, difference = ask_statsmodels(
        [
            ("clustered", [VALUES, [[1.0]] * 8, tasks]),
            ("clustered", [VALUES + b, design, tasks * 2]),
        ]
    )
    assert clustered_mean(VALUES, tasks)[1:] == pytest.approx(tuple(mean))
    found = clustered_difference(VALUES, b, tasks, tasks)
    # Theirs also has the root of (n - 1) / (n - 2), which pairs do not need.
    half = (difference[1] - difference[0]) / 2 / np.sqrt(15 / 14)
    assert found.half_width == pytest.approx(half)


@pytest.mark.parametrize(("a", "b"), [(3, 5), (12, 12), (2, 60)])
def test_no_cluster_in_common_is_welch_to_the_last_digits(a: int, b: int) -> None:
    rng = np.random.default_rng(a + b)
    first, second = rng.normal(5, 1, a), rng.normal(6, 3, b)
    found = clustered_difference_estimate(first, second, range(a), range(a, a + b))
    oracle = stats.ttest_ind(second, first, equal_var=False)
    assert found.point / found.error == pytest.approx(oracle.statistic, rel=1e-12)
    assert found.freedom == pytest.approx(oracle.df, rel=1e-12)
    assert found.p_value() == pytest.approx(oracle.pvalue, rel=1e-11)


@pytest.mark.parametrize("n", [2, 3, 15, 450])
def test_all_clusters_in_common_are_the_paired_t_to_the_last_digits(n: int) -> None:
    rng = np.random.default_rng(n)
    a = rng.normal(5, 2, n)
    b = a + rng.normal(1, 1, n)
    order = rng.permutation(n)
    found = clustered_difference_estimate(a, b[order], range(n), order)
    oracle = stats.ttest_rel(b, a)
    assert found.point / found.error == pytest.approx(oracle.statistic, rel=1e-12)
    assert found.freedom == pytest.approx(n - 1, rel=1e-12)


def test_the_variance_has_no_bias_where_some_worlds_are_shared() -> None:
    # Over unit vectors a quadratic form adds up to its mean for independent values.
    clusters_a, clusters_b = [0, 0, 1, 2, 3], [2, 3, 3, 4, 5, 6]
    for labels, other, sign in ((clusters_a, clusters_b, 0), (clusters_b, clusters_a, 1)):
        total = 0.0
        for unit in sorted(set(labels)):
            moved, still = np.equal(labels, unit) * 1.0, np.zeros(len(other))
            sides = [(moved, labels), (still, other)][:: -1 if sign else 1]
            (a, of_a), (b, of_b) = sides
            total += clustered_difference_estimate(a, b, of_a, of_b).error ** 2
        shares = np.bincount(labels) / len(labels)
        assert total == pytest.approx((shares**2).sum())


def test_few_worlds_in_common_throw_no_trial_away() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(0, 1, 60), rng.normal(0.8, 1, 60)
    found = clustered_difference_estimate(a, b, range(60), range(58, 118))
    assert found.point == pytest.approx(b.mean() - a.mean())
    assert found.p_value() < 0.01
    assert found.interval() == pytest.approx(unpaired_difference(a, b), abs=0.03)


def test_a_partly_shared_comparison_keeps_its_level() -> None:
    rng, held, sets = np.random.default_rng(9), 0, 400
    for _ in range(sets):
        world = rng.normal(size=16)
        a, b = (world[at : at + 10] + rng.normal(size=10) for at in (0, 6))
        found = clustered_difference(a, b, range(10), range(6, 16))
        held += found.low <= 0 <= found.high
    # Three Monte Carlo errors are 0.03.
    assert held / sets >= 0.92


def test_equal_values_have_a_spread_where_their_step_is_known() -> None:
    flat = clustered_difference_estimate([2, 2, 2], [3, 3, 3], range(3), range(3), step=1)
    assert flat.error == pytest.approx(1 / 4)
    assert clustered_estimate([2, 2, 2], range(3), step=1).error == pytest.approx(1 / 4)


def test_huge_values_are_compared_like_any_other() -> None:
    a, b = np.array([1.0, 2.0, 4.0]), np.array([2.0, 4.0, 5.0, 5.5])
    small = clustered_difference_estimate(a, b, range(3), range(2, 6))
    large = clustered_difference_estimate(1e200 * a, 1e200 * b, range(3), range(2, 6))
    assert large.error / 1e200 == pytest.approx(small.error)
    assert large.freedom == pytest.approx(small.freedom)


def test_the_nested_mean_counts_every_run_alike() -> None:
    runs, tasks = ["a", "a", "a", "b"], ["x", "x", "y", "x"]
    found = hierarchical_bootstrap(
        [1.0, 3.0, 6.0, 0.0], [runs, tasks], rng=np.random.default_rng(0), n_resamples=200
    )
    assert found.point == 2.0


def test_drawing_runs_alone_is_the_bootstrap_of_run_means() -> None:
    rng = np.random.default_rng(2)
    runs = np.repeat(np.arange(40), 5)
    values = rng.normal(size=40)[runs] + rng.normal(size=200)
    found = hierarchical_bootstrap(values, [runs], resampled=1, rng=rng, n_resamples=20_000)
    expected = t_interval(values.reshape(40, 5).mean(axis=1))
    assert found == pytest.approx(expected, abs=0.03)
    wider = hierarchical_bootstrap(values, [runs], rng=rng, n_resamples=20_000)
    assert wider.half_width > found.half_width


def test_strata_take_out_what_differs_between_them() -> None:
    rng = np.random.default_rng(3)
    runs, strata = np.repeat(np.arange(12), 3), np.repeat([0, 1, 2], 12)
    values = 10 * strata + rng.normal(size=36)
    plain = hierarchical_bootstrap(values, [runs], rng=rng, n_resamples=2_000)
    inside = hierarchical_bootstrap(values, [runs], strata=strata, rng=rng, n_resamples=2_000)
    assert inside.point == pytest.approx(plain.point)
    assert inside.half_width < plain.half_width / 5


def test_the_same_generator_gives_the_same_interval() -> None:
    found = [
        hierarchical_bootstrap(VALUES, [TASKS], rng=np.random.default_rng(4)) for _ in range(2)
    ]
    assert found[0] == found[1]


def test_one_run_has_no_bounds_and_equal_values_no_width() -> None:
    rng = np.random.default_rng(5)
    assert not hierarchical_bootstrap(VALUES, [["run"] * 8, TASKS], rng=rng).known
    found = hierarchical_bootstrap([0.1] * 8, [TASKS], rng=rng)
    assert found.half_width == pytest.approx(0, abs=1e-15)


def test_levels_that_do_not_exist_are_refused() -> None:
    rng = np.random.default_rng(6)
    with pytest.raises(UsageError, match="resample 1 to 2"):
        hierarchical_bootstrap(VALUES, [TASKS], resampled=3, rng=rng)
    with pytest.raises(UsageError, match="one level"):
        hierarchical_bootstrap(VALUES, [], rng=rng)


@pytest.mark.extras
@pytest.mark.parametrize("between", [0.0, 1.0])
def test_both_intervals_of_five_runs_keep_their_level(between: float) -> None:
    rng, sets = np.random.default_rng(7), 500
    runs, tasks = np.repeat(np.arange(5), 12), np.tile(np.repeat(np.arange(3), 4), 5)
    held = np.zeros(2)
    for _ in range(sets):
        values = between * rng.normal(size=5)[runs] + rng.normal(size=60)
        nested = hierarchical_bootstrap(values, [runs, tasks], rng=rng, n_resamples=1_000)
        for at, found in enumerate((nested, clustered_mean(values, runs))):
            held[at] += found.low <= 0 <= found.high
    # Three Monte Carlo errors are 0.03; the nested one may be wider than it need be.
    assert (held / sets >= 0.92).all()


def test_strata_count_the_spread_within_them_alone() -> None:
    values, strata = np.array([1.0, 3.0, 11.0, 15.0, 13.0]), ["x", "x", "y", "y", "y"]
    found = stratified_estimate(values, strata)
    parts = np.array([2 * 2.0, 3 * 4.0]) / 25
    assert found.point == pytest.approx(8.6)
    assert found.error == pytest.approx(np.sqrt(parts.sum()))
    assert found.freedom == pytest.approx(parts.sum() ** 2 / (parts**2 / [1, 2]).sum())


def test_one_stratum_is_student_and_welch() -> None:
    assert stratified_estimate(VALUES, ["x"] * 8).interval() == pytest.approx(
        t_interval(VALUES)
    )
    other = [2.0, 4.0, 4.5]
    found = stratified_difference_estimate(VALUES, other, ["x"] * 8, ["y"] * 3)
    assert found.interval(0.9) == pytest.approx(unpaired_difference(VALUES, other, level=0.9))
    oracle = stats.ttest_ind(other, VALUES, equal_var=False)
    assert found.p_value() == pytest.approx(oracle.pvalue)


def test_strata_of_one_value_are_taken_together() -> None:
    assert stratified_estimate(VALUES, range(8)).interval() == pytest.approx(t_interval(VALUES))
    some = stratified_estimate(VALUES, ["x", "x", "x", "p", "q", "y", "y", "y"])
    assert some == stratified_estimate(VALUES, ["x", "x", "x", "z", "z", "y", "y", "y"])


def test_a_single_stratum_of_one_value_joins_the_smallest_other() -> None:
    alone = stratified_estimate(VALUES, ["x", "x", "x", "x", "q", "y", "y", "y"])
    assert alone == stratified_estimate(VALUES, ["x", "x", "x", "x", "y", "y", "y", "y"])


def test_differences_of_pairs_are_stratified_as_they_are() -> None:
    b = np.array(VALUES) + np.linspace(0, 1, 8)
    expected = stratified_estimate(np.linspace(0, 1, 8), TASKS)
    assert stratified_difference_estimate(VALUES, b, TASKS) == pytest.approx(expected)


def test_one_stratum_with_worlds_is_the_clustered_difference() -> None:
    rng = np.random.default_rng(11)
    a, b = rng.normal(size=8), rng.normal(size=6)
    worlds = (range(8), range(5, 11))
    found = stratified_difference_estimate(
        a, b, ["x"] * 8, ["x"] * 6, worlds_a=worlds[0], worlds_b=worlds[1]
    )
    assert found == pytest.approx(clustered_difference_estimate(a, b, *worlds))


def test_worlds_shared_in_part_of_two_strata_by_hand() -> None:
    rng = np.random.default_rng(12)
    a, b = rng.normal(size=9), rng.normal(size=10)
    strata = ["x"] * 4 + ["y"] * 5, ["x"] * 6 + ["y"] * 4
    worlds = ([*range(4), *range(10, 15)], [*range(2, 8), *range(12, 16)])
    found = stratified_difference_estimate(
        a, b, *strata, worlds_a=worlds[0], worlds_b=worlds[1]
    )
    x = clustered_difference_estimate(a[:4] * 4 / 9, b[:6] * 0.6, worlds[0][:4], worlds[1][:6])
    y = clustered_difference_estimate(a[4:] * 5 / 9, b[6:] * 0.4, worlds[0][4:], worlds[1][6:])
    assert found.point == pytest.approx(b.mean() - a.mean())
    assert found.error == pytest.approx(np.hypot(x.error, y.error))


def test_strata_that_one_side_lacks_are_taken_together() -> None:
    a, b = np.arange(6.0), np.array([2.0, 5.0, 3.0, 7.0, 1.0])
    found = stratified_difference_estimate(
        a, b, list("xxxypq"), list("xxxyr"), worlds_a=range(6), worlds_b=range(5)
    )
    assert found.error > 0
    assert found.point == pytest.approx(b.mean() - a.mean())
    lone = stratified_difference_estimate(
        a, b, list("xxxyyq"), list("xxyyy"), worlds_a=range(6), worlds_b=range(5)
    )
    assert lone.error > 0


def test_strata_without_spread_have_some_where_the_step_is_known() -> None:
    found = stratified_estimate([1, 1, 0, 0], list("xxyy"), step=1)
    assert found.error == pytest.approx(1 / 5)
    pairs = stratified_difference_estimate([1, 1], [1, 1], ["x", "y"], step=1)
    assert pairs.error == pytest.approx(1 / 3)


@pytest.mark.parametrize("null", [0.0, -0.4, 2.0])
@pytest.mark.parametrize("side", list(Side))
def test_the_p_value_of_an_estimate_is_that_of_the_t_test(null: float, side: Side) -> None:
    found = clustered_estimate(VALUES, range(8))
    oracle = stats.ttest_1samp(VALUES, null, alternative=side.value)
    assert found.p_value(null, side) == pytest.approx(oracle.pvalue)


def test_an_estimate_without_spread_is_sure_and_one_without_error_is_not() -> None:
    flat = stratified_estimate([1.0, 1.0, 3.0, 3.0], ["x", "x", "y", "y"])
    assert flat == (2.0, 0.0, 2.0)
    assert flat.interval() == (2.0, 2.0, 2.0)
    assert (flat.p_value(), flat.p_value(2.0), flat.p_value(3.0, Side.GREATER)) == (0, 1, 1)
    unknown = clustered_estimate(VALUES, ["x"] * 8)
    assert not unknown.interval().known
    assert unknown.p_value() == 1
    assert not stratified_estimate([1.0], ["x"]).interval().known
