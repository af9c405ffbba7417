"""Sizes at which squares overflow or vanish change no answer but by their unit."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.clusters import clustered_difference, clustered_mean
from assay.stats.differences import (
    paired_difference,
    pairing,
    ratio_of_means,
    unpaired_difference,
)
from assay.stats.effects import cohens_d, cohens_dz, hedges_g
from assay.stats.power import first_n_below, power_of, trials_for_precision, trials_needed
from assay.stats.significance import equivalence_test, paired_t_test, welch_t_test

A = np.array([2.0, 4.0, 4.0, 5.0, 7.0, 3.0])
B = np.array([3.0, 4.5, 6.0, 5.0, 9.0, 3.5])
SHARED = [1, 1, 2, 2, 3, 3]
SIZES = pytest.mark.parametrize("size", [1e300, 1e200, 1e-200, 1e-300])


@SIZES
def test_what_has_no_unit_is_the_same_at_any_size(size: float) -> None:
    def unitless(a: np.ndarray, b: np.ndarray, margin: float) -> list[float]:
        found = pairing(a, b)
        return [
            *ratio_of_means(a, b, paired=True),
            *ratio_of_means(a, b, paired=False),
            *cohens_d(a, b),
            *cohens_d(a, b, paired=True),
            *cohens_dz(a, b),
            *hedges_g(a, b),
            *found.correlation,
            found.saved,
            *paired_t_test(a, b)[1:3],
            *welch_t_test(a, b)[1:3],
            *equivalence_test(a, b, paired=True, margin=margin)[:4],
        ]

    expected = unitless(A, B, 2.0)
    assert all(map(math.isfinite, expected))
    assert unitless(A * size, B * size, 2.0 * size) == pytest.approx(expected, rel=1e-9)


@SIZES
def test_what_has_a_unit_grows_with_the_size(size: float) -> None:
    def with_unit(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        methods = [
            unpaired_difference(
                a, b, method=method, rng=np.random.default_rng(0), n_resamples=100
            )
            for method in ("t", "bca", "percentile")
        ]
        return np.array(
            [
                *methods,
                paired_difference(a, b),
                clustered_mean(a, SHARED),
                clustered_difference(a, b, SHARED),
                clustered_difference(a, b, SHARED, SHARED),
                clustered_difference(a, b, SHARED, [4, 4, 5, 5, 6, 6]),
            ]
        )

    found, expected = with_unit(A * size, B * size) / size, with_unit(A, B)
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_ratio_of_samples_of_unlike_sizes_keeps_its_interval() -> None:
    found = ratio_of_means(A * 1e-200, B * 1e-40, paired=False)
    expected = np.array(ratio_of_means(A, B, paired=False)) * 1e160
    assert found == pytest.approx(tuple(expected), rel=1e-9)
    assert math.isnan(ratio_of_means(A * 1e-300, B * 1e300, paired=False).low)


def test_values_that_cannot_be_added_get_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"1\.7e\+308 is too large to compare; give values in"):
        unpaired_difference([1.7e308, -1.7e308], [1.0, 2.0])


def test_plans_of_any_size_are_numbers() -> None:
    assert first_n_below(A[:2] * 1e300, 0.5) == 2
    assert power_of(2, 1e300, 1.0, paired=True) == pytest.approx(1.0)
    assert trials_needed(1.0, 1e300, paired=False).trials == 10**15
    assert trials_for_precision(1e300, 1.0, 0.05).trials == 10**15
    assert trials_for_precision(1.0, 1.0, 1e-300, 5).low == 10**15
