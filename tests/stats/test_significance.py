"""Tests of significance, held against SciPy, statsmodels and counts made by hand."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats import significance
from assay.stats.shares import share_test
from assay.stats.significance import (
    equivalence_test,
    least_p_value,
    mann_whitney_test,
    open_equivalence_test,
    paired_t_test,
    permutation_test,
    sign_flip_test,
    smallest_n,
    welch_t_test,
    wilcoxon_test,
)
from tests.oracles.asking import ask_statsmodels, needs_oracles

SIDES = ["two-sided", "greater", "less"]
A = [2.0, 4.0, 4.0, 5.0, 7.0, 3.0, 6.0]
B = [3.0, 4.5, 3.0, 5.0, 9.0, 3.5, 8.0]


def test_three_equal_differences_flip_to_a_quarter() -> None:
    found = sign_flip_test([1.0, 1.0, 1.0])
    assert (found.p_value, found.exact, found.n) == (0.25, True, 3)


@pytest.mark.parametrize("side", SIDES)
def test_sign_flips_equal_scipys_with_ties_and_zeros(side: str) -> None:
    from scipy import stats

    d = np.array([0.3, -0.1, 0.3, 0.0, 1.2, -0.2, 0.1, 0.5])
    expected = stats.permutation_test(
        (d,), np.mean, permutation_type="samples", alternative=side, n_resamples=1e6
    )
    assert sign_flip_test(d, side=side).p_value == pytest.approx(expected.pvalue, abs=1e-12)


def test_whole_differences_are_counted_exactly_at_any_number() -> None:
    d = np.random.default_rng(2).integers(-3, 5, 60).astype(float)
    counted = sign_flip_test(d)
    # A shift below every spacing makes the same test go the random way.
    rng = np.random.default_rng(3)
    drawn = sign_flip_test(d + 1e-6 * rng.normal(size=60), rng=rng, n_resamples=40_000)
    assert counted.exact
    assert not drawn.exact
    assert drawn.p_value == pytest.approx(counted.p_value, abs=0.01)


def test_counting_agrees_with_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.stats import significance as flips

    d = np.array([1, -2, 0, 3, 3, -1, 2, 2.5, 4])
    listed = flips.flip_tails(d, None, 1)
    monkeypatch.setattr(flips, "EXACT_LIMIT", 1)
    assert flips.flip_tails(d, None, 1) == pytest.approx(listed)


def test_random_flips_need_a_generator_and_never_give_zero() -> None:
    d = np.random.default_rng(1).normal(5, 1, 40)
    with pytest.raises(UsageError, match="rng="):
        sign_flip_test(d)
    found = sign_flip_test(d, rng=np.random.default_rng(0), n_resamples=999)
    assert found.p_value == 2 / 1000
    assert found == sign_flip_test(d, rng=np.random.default_rng(0), n_resamples=999)


@pytest.mark.parametrize("side", SIDES)
def test_a_permutation_test_equals_scipys(side: str) -> None:
    from scipy import stats

    expected = stats.permutation_test(
        (B[:5], A),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        alternative=side,
        n_resamples=1e6,
        vectorized=True,
    )
    found = permutation_test(A, B[:5], side=side)
    assert found.exact
    assert found.p_value == pytest.approx(expected.pvalue, abs=1e-12)


def test_random_permutations_are_near_welchs_for_normal_data() -> None:
    a, b = np.random.default_rng(8).normal(size=(2, 40))
    b += 0.4
    found = permutation_test(a, b, rng=np.random.default_rng(1))
    assert not found.exact
    assert found.p_value == pytest.approx(welch_t_test(a, b).p_value, abs=0.02)


@pytest.mark.parametrize("side", SIDES)
def test_t_tests_equal_scipys(side: str) -> None:
    from scipy import stats

    paired, apart = paired_t_test(A, B, side=side), welch_t_test(A, B[1:], side=side)
    expected = stats.ttest_rel(B, A, alternative=side)
    assert (paired.statistic, paired.p_value) == pytest.approx(tuple(expected))
    expected = stats.ttest_ind(B[1:], A, equal_var=False, alternative=side)
    assert (apart.statistic, apart.p_value) == pytest.approx(tuple(expected))


def test_equal_differences_have_a_p_of_zero_by_convention_and_say_so() -> None:
    found = paired_t_test([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])
    assert (found.statistic, found.p_value) == (math.inf, 0.0)
    assert "convention" in found.note
    assert welch_t_test([1.0, 1.0], [2.0, 2.0], side="less").p_value == 1.0
    assert paired_t_test([1.0, 2.0], [1.0, 2.0]).p_value == 1.0


def test_one_pair_can_reject_nothing() -> None:
    for test in (paired_t_test, welch_t_test, wilcoxon_test, mann_whitney_test):
        assert test([1.0], [2.0]).p_value == 1.0
    assert sign_flip_test([1.0]).p_value == 1.0


@pytest.mark.parametrize("side", SIDES)
def test_wilcoxon_equals_scipys_exact_one(side: str) -> None:
    from scipy import stats

    a, b = np.random.default_rng(6).normal(size=(2, 30))
    expected = stats.wilcoxon(b - a, method="exact", alternative=side)
    found = wilcoxon_test(a, b, side=side)
    assert found.exact
    assert found.p_value == pytest.approx(expected.pvalue)


def test_wilcoxon_is_exact_with_ties() -> None:
    from scipy import stats

    d = np.array([1.0, -1.0, 2.0, 2.0, 3.0, -2.0, 1.0])
    expected = stats.wilcoxon(d, method=stats.PermutationMethod(n_resamples=10**6))
    assert wilcoxon_test(np.zeros(7), d).p_value == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("side", ["two-sided", "less", "greater"])
@pytest.mark.parametrize("digits", [0, 1, 9])
def test_the_normal_limits_equal_scipys_to_the_last_digit(side: str, digits: int) -> None:
    from scipy import stats

    rng = np.random.default_rng(7)
    a, b = (np.round(rng.normal(0, 3, 900), digits) for _ in range(2))
    more = np.round(rng.normal(0.2, 3, 700), digits)
    ranks, sums = wilcoxon_test(a, b, side=side), mann_whitney_test(a, more, side=side)
    assert not ranks.exact
    assert not sums.exact
    signed = (b - a)[b != a]
    expected = stats.wilcoxon(signed, method="asymptotic", alternative=side).pvalue
    assert ranks.p_value == expected
    expected = stats.mannwhitneyu(more, a, method="asymptotic", alternative=side).pvalue
    assert sums.p_value == expected


def test_wilcoxon_of_very_many_pairs_is_the_normal_limit() -> None:
    a, b = np.random.default_rng(6).normal(size=(2, 2_000))
    assert not wilcoxon_test(a, b).exact


@pytest.mark.parametrize("side", SIDES)
def test_mann_whitney_equals_scipys(side: str) -> None:
    from scipy import stats

    rng = np.random.default_rng(7)
    a, b = rng.normal(size=25), rng.normal(0.5, 1, 20)
    expected = stats.mannwhitneyu(b, a, alternative=side, method="exact")
    found = mann_whitney_test(a, b, side=side)
    assert found.exact
    assert (found.statistic, found.p_value) == pytest.approx(tuple(expected))


def test_mann_whitney_is_exact_with_ties_in_small_samples() -> None:
    from scipy import stats

    method = stats.PermutationMethod(n_resamples=10**6)
    expected = stats.mannwhitneyu(B[:5], A[:4], method=method)
    found = mann_whitney_test(A[:4], B[:5])
    assert found.exact
    assert found.p_value == pytest.approx(expected.pvalue)
    many = mann_whitney_test(np.repeat(A, 20), np.repeat(B, 20))
    assert not many.exact


def test_all_equal_values_are_no_evidence() -> None:
    assert mann_whitney_test([1.0] * 4, [1.0] * 5).p_value == 1.0
    assert wilcoxon_test([1.0] * 4, [1.0] * 4).p_value == 1.0
    assert permutation_test([1.0] * 4, [1.0] * 5).p_value == 1.0
    assert sign_flip_test([0.0] * 30).p_value == 1.0


def test_equivalence_holds_exactly_where_the_interval_lies_inside_the_margin() -> None:
    rng = np.random.default_rng(3)
    a = rng.normal(size=30)
    b = a + rng.normal(0.05, 0.3, 30)
    interval = equivalence_test(a, b, paired=True, margin=1.0).interval
    edge = max(-interval.low, interval.high)
    assert equivalence_test(a, b, paired=True, margin=edge * 1.001).equivalent
    assert not equivalence_test(a, b, paired=True, margin=edge * 0.999).equivalent


def test_a_margin_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="margin 0"):
        equivalence_test(A, B, paired=True, margin=0)


@pytest.mark.extras
@needs_oracles
def test_equivalence_equals_statsmodels() -> None:
    a, b = np.random.default_rng(9).normal(size=(2, 25)).tolist()
    theirs, theirs_apart = ask_statsmodels(
        [("equivalence", [a, b, 0.6, True]), ("equivalence", [a, b[3:], 0.6, False])]
    )
    paired = equivalence_test(a, b, paired=True, margin=0.6)
    assert [paired.p_value, paired.p_lower, paired.p_upper] == pytest.approx(theirs)
    apart = equivalence_test(a, b[3:], paired=False, margin=0.6)
    assert apart.p_value == pytest.approx(theirs_apart[0])


def test_a_result_is_not_taken_for_a_set_of_tests() -> None:
    assert significance.TestResult.__test__ is False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("design", "level", "side", "n"),
    [
        ("pairs", 0.95, "two-sided", 6),
        ("pairs", 0.99, "two-sided", 8),
        ("pairs", 0.95, "greater", 5),
        ("pairs", 1 - 0.05 / 15, "two-sided", 10),
        ("groups", 0.95, "two-sided", 4),
        ("groups", 0.99, "two-sided", 5),
    ],
)
def test_the_smallest_n_is_the_first_with_which_the_exact_test_can_reject(
    design: str, level: float, side: str, n: int
) -> None:
    def p_value(trials: int) -> float:
        low, high = np.zeros(trials), 1.0 + np.arange(trials) / 100
        if design == "pairs":
            return sign_flip_test(high - low, side=side).p_value
        return permutation_test(low, high, side=side).p_value

    assert smallest_n(design, level, side) == n
    assert p_value(n) < 1 - level <= p_value(n - 1)
    assert p_value(n) == least_p_value(n, n if design == "groups" else None, side)


def test_mcnemar_and_fisher_reject_from_the_smallest_n_on() -> None:
    assert share_test([0] * 6, [1] * 6, paired=True).p_value == pytest.approx(least_p_value(6))
    assert share_test([0] * 4, [1] * 4, paired=False).p_value == pytest.approx(
        least_p_value(4, 4)
    )
    assert least_p_value(2, 12) < 0.05 < least_p_value(2, 7)


def test_equivalence_without_a_range_takes_twenty_pairs() -> None:
    a = np.random.default_rng(1).normal(0, 0.1, 20)
    few = open_equivalence_test(a[:19], a[:19], paired=True, margin=1.0)
    assert (few.test.equivalent, few.test.p_value, few.too_few, few.needed) == (
        False,
        1,
        True,
        20,
    )
    enough = open_equivalence_test(a, a[::-1], paired=True, margin=1.0)
    assert enough.test == equivalence_test(a, a[::-1], paired=True, margin=1.0)
    assert enough.test.equivalent
    assert not enough.too_few


@pytest.mark.parametrize("paired", [True, False])
def test_a_difference_shown_elsewhere_must_not_reach_the_margin_unseen(paired: bool) -> None:
    """A gain of 5 in a tenth of trials has the mean 0.5: 30 trials miss it in 4 % of cases."""
    zeros = np.zeros(29)
    found = open_equivalence_test(zeros, zeros, paired=paired, margin=0.5, largest=5.0)
    assert (found.test.equivalent, found.too_few, found.needed) == (False, True, 30)
    more = np.zeros(30)
    assert open_equivalence_test(
        more, more, paired=paired, margin=0.5, largest=5.0
    ).test.equivalent
    strict = open_equivalence_test(more, more, paired=paired, margin=0.5, level=0.99, largest=5)
    assert strict.needed == 47


def test_the_number_needed_is_about_that_of_the_t_tests() -> None:
    rng = np.random.default_rng(2)
    found = open_equivalence_test(np.zeros(10), rng.normal(0, 1, 10), paired=True, margin=0.4)
    shown = [
        equivalence_test(np.zeros(found.needed), row, paired=True, margin=0.4).equivalent
        for row in rng.normal(0, 1, (200, found.needed))
    ]
    assert found.needed > 20
    assert 0.4 < np.mean(shown) <= 1
