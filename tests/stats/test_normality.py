"""Normality is measured as SciPy measures it, and nowhere fails."""

import math

import numpy as np
import pytest
from scipy import stats

from assay.errors import UsageError
from assay.stats.significance import normality


@pytest.mark.parametrize("n", [3, 15, 400])
def test_both_numbers_are_those_of_scipy(n: int) -> None:
    values = np.random.default_rng(n).exponential(size=n) * 1e6
    found = normality(values)
    assert found.p_value == pytest.approx(stats.shapiro(values).pvalue, rel=1e-6)
    assert found.skewness == pytest.approx(stats.skew(values, bias=False))
    assert found.n == n


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0], [3.0] * 5], ids=str)
def test_what_has_no_shape_has_none(values: list[float]) -> None:
    found = normality(values)
    assert math.isnan(found.p_value)
    assert math.isnan(found.skewness)


def test_of_very_many_values_only_the_skewness_is_told() -> None:
    found = normality(np.random.default_rng(1).normal(size=5_001))
    assert math.isnan(found.p_value)
    assert abs(found.skewness) < 0.2


def test_huge_values_do_not_overflow() -> None:
    found = normality([1e300, -1e300, 5e299, 2e299])
    assert math.isfinite(found.skewness)
    assert 0 < found.p_value <= 1


def test_a_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="finite"):
        normality([1.0, math.nan, 2.0])
