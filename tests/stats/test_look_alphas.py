"""Looks that are few have alphas of their own, which are exact for normal differences."""

import numpy as np
import pytest
from numpy.typing import NDArray

from assay.stats.intervals import t_quantile
from assay.stats.look_bounds import Spending, error_of_looks, next_alpha, planned_alphas

LOOKS = (15, 20, 25, 30)
SETS = 60_000


def passed(looks: list[tuple[int, float]]) -> float:
    """The share of data sets without a difference in which one look shows one."""
    values = np.random.default_rng(20).standard_normal((SETS, looks[-1][0]))
    shown: NDArray[np.bool_] = np.zeros(SETS, np.bool_)
    for count, alpha in looks:
        some = values[:, :count]
        t = some.mean(axis=1) / some.std(axis=1, ddof=1) * np.sqrt(count)
        shown |= np.abs(t) > t_quantile(count - 1, 1 - alpha / 2)
    return float(shown.mean())


def test_four_looks_at_the_alpha_of_one_are_wrong_in_eleven_of_a_hundred_cases() -> None:
    naive = [(count, 0.05) for count in LOOKS]
    assert error_of_looks(naive) == pytest.approx(0.108, abs=0.0005)
    assert passed(naive) == pytest.approx(error_of_looks(naive), abs=0.0035)
    assert error_of_looks([(30, 0.05)]) == pytest.approx(0.05)


@pytest.mark.parametrize("kind", Spending)
@pytest.mark.parametrize("counts", [(15, 30), LOOKS, (5, 60)], ids=str)
def test_planned_looks_share_the_error(kind: Spending, counts: tuple[int, ...]) -> None:
    looks = list(zip(counts, planned_alphas(kind, counts, 0.05), strict=True))
    assert error_of_looks(looks) == pytest.approx(0.05, abs=1e-6)
    assert passed(looks) == pytest.approx(0.05, abs=0.003)


def test_a_look_more_adds_what_it_may_and_has_a_larger_alpha_than_that() -> None:
    first = [(15, 0.05)]
    late, soon = (next_alpha(first, count, 0.0025) for count in (30, 16))
    for count, alpha in ((30, late), (16, soon)):
        assert error_of_looks([*first, (count, alpha)]) == pytest.approx(0.0525, abs=1e-6)
    assert 0.0025 < late < soon < 0.05
    assert passed([*first, (30, late)]) == pytest.approx(0.0525, abs=0.003)


def test_looks_that_cannot_be_followed_are_added_up() -> None:
    assert next_alpha([(2, 0.05)], 30, 0.0025) == 0.0025
    assert next_alpha([(30, 0.05)], 900, 0.0025) == 0.0025
    assert error_of_looks([(30, 0.05), (900, 0.01)]) == pytest.approx(0.06)
    assert error_of_looks([(15, 0.6), (30, 0.6)]) == 1
