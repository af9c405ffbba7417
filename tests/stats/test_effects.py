"""Effect sizes, held against hand-computed numbers, noncentral t and simulation."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.effects import (
    cliffs_delta,
    cohens_d,
    cohens_dz,
    hedges_g,
    probability_of_improvement,
)

A = [2.0, 4.0, 4.0, 5.0, 7.0, 3.0, 6.0]
B = [3.0, 4.5, 6.0, 5.0, 9.0, 3.5, 8.0]


def test_cohens_d_divides_by_the_pooled_deviation() -> None:
    pooled = math.sqrt((np.var(A, ddof=1) + np.var(B, ddof=1)) / 2)
    expected = (np.mean(B) - np.mean(A)) / pooled
    assert cohens_d(A, B).point == pytest.approx(expected)
    assert cohens_d(A, B, paired=True).point == pytest.approx(expected)


def test_the_bounds_put_t_at_the_tails_of_the_noncentral_t() -> None:
    from scipy import stats

    found = cohens_d(A, B[:5])
    scale = math.sqrt(1 / 7 + 1 / 5)
    t = found.point / scale
    assert stats.nct.cdf(t, 10, found.low / scale) == pytest.approx(0.975)
    assert stats.nct.cdf(t, 10, found.high / scale) == pytest.approx(0.025)


def test_the_size_seen_by_a_paired_test_grows_with_the_correlation() -> None:
    from scipy import stats

    found = cohens_dz(A, B)
    t = stats.ttest_rel(B, A).statistic
    assert found.point == pytest.approx(t / math.sqrt(7))
    assert stats.nct.cdf(t, 6, found.low * math.sqrt(7)) == pytest.approx(0.975)
    assert found.point > cohens_d(A, B, paired=True).point


def test_hedges_g_is_smaller_and_keeps_the_bounds() -> None:
    d, g = cohens_d(A, B), hedges_g(A, B)
    # 1 - 3 / (4 * 12 - 1) is the usual approximation of the factor.
    assert g.point / d.point == pytest.approx(1 - 3 / 47, abs=1e-3)
    assert g[1:] == d[1:]


def test_hedges_g_is_unbiased() -> None:
    rng = np.random.default_rng(1)
    found = [hedges_g(rng.normal(size=4), rng.normal(1, 1, 4)).point for _ in range(300)]
    assert float(np.mean(found)) == pytest.approx(
        1, abs=4 * float(np.std(found)) / math.sqrt(300)
    )


def test_a_win_counts_one_and_a_tie_half() -> None:
    assert probability_of_improvement([1.0, 2.0], [2.0, 3.0]).point == 3.5 / 4
    assert cliffs_delta([1.0, 2.0], [2.0, 3.0]).point == 0.75
    assert (
        probability_of_improvement([1.0, 2.0, 3.0], [2.0, 2.0, 1.0], paired=True).point == 0.5
    )


def test_the_point_is_mann_whitneys_share() -> None:
    from scipy import stats

    expected = stats.mannwhitneyu(B, A).statistic / 49
    assert probability_of_improvement(A, B).point == pytest.approx(expected)


@pytest.mark.parametrize("paired", [True, False])
def test_complete_separation_keeps_a_width(paired: bool) -> None:
    up = probability_of_improvement([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], paired=paired)
    down = cliffs_delta([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], paired=paired)
    assert (up.point, up.high) == (1.0, 1.0)
    assert 0.2 < up.low < 0.8
    assert (down.point, down.low) == (-1.0, -1.0)
    assert down.high == pytest.approx(1 - 2 * up.low)


def test_without_ties_the_paired_share_is_wilsons() -> None:
    from assay.stats.intervals import wilson

    b = np.where(np.arange(9) < 6, 1.0, -1.0)
    assert probability_of_improvement(np.zeros(9), b, paired=True) == pytest.approx(
        wilson(6, 9)
    )


def test_samples_without_spread_have_a_size_and_no_bounds() -> None:
    assert cohens_d([1.0, 1.0], [1.0, 1.0]).point == 0
    for found in (cohens_d([1.0] * 3, [2.0] * 3), hedges_g([1.0] * 3, [2.0] * 3)):
        assert found.point == math.inf
        assert not found.known
    assert cohens_dz([1.0, 2.0], [0.0, 1.0]).point == -math.inf
    assert cohens_d([1.0, 2.0], [2.0, 3.0], paired=True).half_width == 0


def test_single_values_have_no_bounds() -> None:
    assert not cohens_d([1.0], [2.0, 3.0]).known
    assert not cohens_d([1.0], [2.0]).known
    assert not cohens_dz([1.0], [2.0]).known
    assert not probability_of_improvement([1.0], [2.0]).known
    assert not cliffs_delta([1.0], [2.0], paired=True).known


@pytest.mark.parametrize("spread", [1e-3, 1e-6, 1e-9])
def test_bounds_scale_with_huge_sizes(spread: float) -> None:
    found = cohens_d([0.0, spread, 2 * spread], [1.0, 1.0 + spread, 1.0 - spread])
    # Where d is huge only the deviation is uncertain: chi-square of 4 degrees of freedom.
    assert found.low / found.point == pytest.approx(math.sqrt(0.4844186 / 4), abs=1e-4)
    assert found.high / found.point == pytest.approx(math.sqrt(11.1432868 / 4), abs=1e-4)


def test_unequal_pairs_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be paired"):
        cohens_d(A, B[1:], paired=True)


@pytest.mark.extras
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_the_paired_interval_keeps_its_level(correlation: float) -> None:
    rng, sets, held = np.random.default_rng(2), 2_000, 0
    for _ in range(sets):
        a, noise = rng.normal(size=(2, 10))
        b = correlation * a + math.sqrt(1 - correlation**2) * noise + 0.8
        found = cohens_d(a, b, paired=True)
        held += found.low <= 0.8 <= found.high
    # It is approximate; three Monte Carlo errors are 0.015.
    assert 0.925 <= held / sets <= 0.98


@pytest.mark.extras
@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_the_probability_of_improvement_keeps_its_level(shift: float) -> None:
    from scipy.special import ndtr

    rng, sets, held = np.random.default_rng(3), 2_000, 0
    truth = ndtr(shift / math.sqrt(2))
    for _ in range(sets):
        found = probability_of_improvement(rng.normal(size=8), rng.normal(shift, 1, 8))
        held += found.low <= truth <= found.high
    assert 0.935 <= held / sets <= 0.98
