"""What pairing is worth, on data whose correlation is known."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.differences import paired_difference, pairing, unpaired_difference


def correlated(n: int, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    a, noise = np.random.default_rng(1).normal(size=(2, n))
    return a, correlation * a + math.sqrt(1 - correlation**2) * noise


def test_the_variance_saved_is_the_correlation_when_spreads_are_equal() -> None:
    found = pairing(*correlated(20_000, 0.7))
    assert found.saved == pytest.approx(0.7, abs=0.02)
    assert found.correlation.point == pytest.approx(0.7, abs=0.02)
    assert not found.hurts


def test_the_ratio_is_that_of_the_variances_of_the_mean_difference() -> None:
    a, b = correlated(15, 0.6)
    expected = np.var(b - a, ddof=1) / (np.var(a, ddof=1) + np.var(b, ddof=1))
    assert pairing(a, b).variance_ratio == pytest.approx(expected)


def test_the_correlation_has_fishers_interval() -> None:
    from scipy import stats

    a, b = correlated(15, 0.6)
    expected = stats.pearsonr(a, b)
    found = pairing(a, b)
    assert found.correlation.point == pytest.approx(expected.statistic)
    assert found.correlation[1:] == pytest.approx(tuple(expected.confidence_interval()))


def test_the_sentence_has_the_numbers() -> None:
    a, b = correlated(15, 0.9)
    found = pairing(a, b)
    assert f"saved {100 * found.saved:.0f} % of the variance" in found.sentence
    assert "15 pairs" in found.sentence
    assert f"correlation {found.correlation.point:.2f}" in found.sentence


def test_pairs_that_go_against_each_other_hurt_and_are_told_so() -> None:
    a = np.arange(8.0)
    b = np.array([8.0, 6.5, 7.0, 4.0, 5.0, 2.0, 3.0, 0.5])
    found = pairing(a, b)
    wider = paired_difference(a, b).half_width / unpaired_difference(a, b).half_width - 1
    assert found.hurts
    assert found.saved < 0
    assert found.sentence.startswith("Pairing hurts here")
    assert f"{100 * wider:.0f} % wider" in found.sentence


def test_a_wider_interval_of_a_few_pairs_may_be_chance() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    b = np.array([5.0, 3.0, 4.0, 1.0, 4.5])
    found = pairing(a, b)
    assert paired_difference(a, b).half_width > unpaired_difference(a, b).half_width
    assert not found.hurts
    assert "cannot be told from 5 pairs" in found.sentence
    assert not pairing([1.0, 2.0], [2.0, 1.0]).hurts


@pytest.mark.parametrize(("n", "correlation"), [(5, 0.3), (15, 0.3), (10, 0.1)])
def test_pairs_that_help_are_hardly_ever_said_to_hurt(n: int, correlation: float) -> None:
    rng, hurt = np.random.default_rng(2), 0
    for _ in range(300):
        a, noise = rng.normal(size=(2, n))
        hurt += pairing(a, correlation * a + math.sqrt(1 - correlation**2) * noise).hurts
    assert hurt / 300 <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 300)


def test_the_break_even_is_where_both_intervals_are_as_wide() -> None:
    # Of 400 pairs the least correlation that helps is known to about 0: degrees of freedom
    # cost next to nothing, so a correlation that is clearly below 0 hurts.
    a, b = correlated(400, -0.3)
    assert pairing(a, b).hurts
    assert not pairing(*correlated(400, 0.2)).hurts


def test_pairs_that_all_differ_alike_have_no_variance_left() -> None:
    found = pairing([1.0, 2.0, 4.0, 3.0], [2.0, 3.0, 5.0, 4.0])
    assert (found.variance_ratio, found.saved, found.hurts) == (0.0, 1.0, False)
    assert "all of the variance" in found.sentence


@pytest.mark.parametrize("b", [[1.0, 1.0, 1.0], [2.0, 3.0, 5.0]])
def test_values_that_are_all_equal_show_nothing(b: list[float]) -> None:
    found = pairing([1.0, 1.0, 1.0], b)
    assert math.isnan(found.correlation.point)
    assert "all equal" in found.sentence
    assert math.isfinite(found.saved)


def test_few_pairs_have_no_interval_of_the_correlation() -> None:
    found = pairing([1.0, 2.0, 4.0], [1.5, 2.0, 5.0])
    assert not found.correlation.known
    assert "nan" not in found.sentence
    assert "One pair" in pairing([1.0], [2.0]).sentence


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be paired"):
        pairing([1.0, 2.0], [1.0])
