"""Differences and ratios, held against SciPy, hand-computed numbers and simulation."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.differences import (
    denominator_note,
    paired_difference,
    ratio_of_means,
    relative_change,
    unpaired_difference,
)
from assay.stats.estimates import pair_differences

A = [2.0, 4.0, 4.0, 5.0, 7.0, 3.0, 6.0]
B = [3.0, 4.5, 6.0, 5.0, 9.0, 3.5, 8.0]


def test_a_paired_difference_is_the_t_interval_of_the_differences() -> None:
    from scipy import stats

    expected = stats.ttest_rel(B, A).confidence_interval()
    found = paired_difference(A, B)
    assert found == pytest.approx((np.mean(B) - np.mean(A), *expected))


@pytest.mark.parametrize("side", ["two-sided", "greater", "less"])
def test_an_unpaired_difference_uses_welchs_test(side: str) -> None:
    from scipy import stats

    b = [*B, 20.0]
    expected = stats.ttest_ind(b, A, equal_var=False, alternative=side).confidence_interval()
    assert unpaired_difference(A, b, side=side)[1:] == pytest.approx(tuple(expected))


def test_the_bca_interval_of_two_samples_agrees_with_scipys() -> None:
    from scipy import stats

    a, b = np.random.default_rng(1).exponential(size=(2, 12))
    expected = stats.bootstrap(
        (a, b),
        lambda x, y, axis: y.mean(axis) - x.mean(axis),
        method="BCa",
        n_resamples=50_000,
        rng=2,
    ).confidence_interval
    found = unpaired_difference(
        a, b, method="bca", rng=np.random.default_rng(3), n_resamples=50_000
    )
    assert found[1:] == pytest.approx(tuple(expected), abs=0.03)


@pytest.mark.parametrize("method", ["percentile", "bca", "studentised"])
def test_a_bootstrap_repeats_itself_with_the_same_generator(method: str) -> None:
    found = [
        unpaired_difference(A, B, method=method, rng=np.random.default_rng(7)) for _ in range(2)
    ]
    assert found[0] == found[1]
    assert found[0].low < found[0].point < found[0].high


def test_the_studentised_interval_is_near_welchs_for_normal_data() -> None:
    a, b = np.random.default_rng(4).normal(size=(2, 200))
    rng = np.random.default_rng(5)
    found = unpaired_difference(a, b, method="studentised", rng=rng, n_resamples=20_000)
    assert found == pytest.approx(unpaired_difference(a, b), abs=0.02)


def test_a_bootstrap_without_a_generator_says_what_to_give() -> None:
    with pytest.raises(UsageError, match="rng="):
        unpaired_difference(A, B, method="bca")


def test_unknown_methods_and_sides_are_named() -> None:
    with pytest.raises(UsageError, match="studentised"):
        unpaired_difference(A, B, method="studentized")
    with pytest.raises(UsageError, match="choose from"):
        unpaired_difference(A, B, side="up")


def test_pairs_of_unequal_length_are_refused_with_a_sentence() -> None:
    with pytest.raises(UsageError, match="7 values cannot be paired with 6"):
        paired_difference(A, B[1:])


def test_one_pair_has_a_point_and_no_bounds() -> None:
    found = paired_difference([1.0], [3.0])
    assert found.point == 2.0
    assert not found.known
    assert not unpaired_difference([1.0], [3.0, 4.0]).known


def test_equal_differences_have_an_interval_of_no_width() -> None:
    assert paired_difference([0.1, 0.2, 0.3], [0.2, 0.3, 0.4]).half_width == 0
    assert unpaired_difference([0.1] * 3, [0.4] * 4).half_width == 0


def test_rounding_alone_is_no_spread() -> None:
    assert np.ptp(pair_differences([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])) == 0


def test_what_is_missing_is_refused() -> None:
    with pytest.raises(UsageError, match="finite"):
        unpaired_difference([1.0, math.nan], [1.0, 2.0])


def test_fiellers_bounds_solve_their_equation() -> None:
    from scipy import stats

    found = ratio_of_means(A, B, paired=True)
    t = stats.t.ppf(0.975, len(A) - 1)
    for ratio in found[1:]:
        rest = np.array(B) - ratio * np.array(A)
        assert abs(rest.mean()) == pytest.approx(t * stats.sem(rest))
    assert found.point == pytest.approx(np.mean(B) / np.mean(A))
    assert found.low < found.point < found.high


def test_relative_change_is_the_ratio_less_one() -> None:
    ratio = ratio_of_means(A, B, paired=False)
    assert relative_change(A, B, paired=False) == pytest.approx([x - 1 for x in ratio])


def test_relative_change_of_negative_means_is_positive_for_the_greater() -> None:
    a, b = [-10.0, -11.0, -9.0, -10.5], [-8.0, -8.5, -7.5, -8.2]
    found = relative_change(a, b, paired=True)
    assert 0 < found.low < found.point < found.high < 1


def test_a_ratio_to_a_mean_that_may_be_zero_has_no_bounds_and_a_reason() -> None:
    a = [1.0, -1.0, 2.0]
    assert not ratio_of_means(a, [1.0, 2.0, 3.0], paired=True).known
    assert "not clear of 0" in (denominator_note(a) or "")
    assert denominator_note(A) is None
    assert math.isnan(ratio_of_means([1.0, -1.0], A, paired=False).point)


def test_a_ratio_without_spread_has_no_width() -> None:
    assert ratio_of_means([2.0] * 3, [3.0] * 3, paired=True) == (1.5, 1.5, 1.5)
    assert ratio_of_means([2.0] * 3, [3.0] * 4, paired=False) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize("paired", [True, False])
def test_fiellers_interval_keeps_its_level(paired: bool) -> None:
    rng, sets, held = np.random.default_rng(11), 1_000, 0
    for _ in range(sets):
        shared = rng.normal(size=8) * paired
        a = 10 + 2 * shared + rng.normal(size=8)
        b = 12 + 2 * shared + 2 * rng.normal(size=8)
        found = ratio_of_means(a, b, paired=paired)
        held += found.low <= 1.2 <= found.high
    # Three Monte Carlo errors of 0.007.
    assert abs(held / sets - 0.95) < 0.021


@pytest.mark.parametrize(("method", "side"), [("bcaa", "less"), ("bca", "lesss")])
def test_a_mistyped_choice_names_the_one_that_was_meant(method: str, side: str) -> None:
    meant = "'bca'" if method == "bcaa" else "'less'"
    with pytest.raises(UsageError, match=f"did you mean {meant}"):
        unpaired_difference(A, A, method=method, side=side)
