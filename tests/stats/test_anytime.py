"""The confidence sequence: its formula against a numerical mixture, and its promise."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import nct, t

from assay.errors import UsageError
from assay.stats.sequential import EFFECT_VARIANCE, anytime_bounds


@pytest.mark.parametrize("n", [6, 12, 40])
def test_at_the_bound_the_mixed_likelihood_ratio_is_one_over_alpha(n: int) -> None:
    """The ratio of t under the mixture of noncentral t to t without an effect."""
    bound = float(anytime_bounds([n], 0.05)[0])
    sd = math.sqrt(EFFECT_VARIANCE)

    def mixed(effect: float) -> float:
        weight = math.exp(-0.5 * (effect / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
        return weight * float(nct.pdf(bound, n - 1, effect * math.sqrt(n)))

    ratio = quad(mixed, -6 * sd, 6 * sd, limit=200)[0] / t.pdf(bound, n - 1)
    assert ratio == pytest.approx(20, rel=1e-4)


def test_no_data_without_an_effect_passes_more_often_than_alpha() -> None:
    rng = np.random.default_rng(5)
    n = np.arange(2, 151)
    passed = 0
    for _ in range(4):
        values = rng.standard_normal((5_000, 150))
        sums = values.cumsum(axis=1)[:, 1:]
        squares = (values**2).cumsum(axis=1)[:, 1:]
        found = np.abs(sums) * np.sqrt((n - 1) / (n * (squares - sums**2 / n)))
        passed += int((found > anytime_bounds(n, 0.05)).any(axis=1).sum())
    assert 0.01 < passed / 20_000 <= 0.05


def test_few_values_say_nothing_and_many_say_ever_more() -> None:
    counts = np.arange(2, 1001)
    bounds = anytime_bounds(counts)
    assert math.isinf(bounds[0])
    widths = bounds[10:] / np.sqrt(counts[10:])
    assert np.all(np.diff(widths) < 0)


def test_a_wider_allowance_is_a_narrower_sequence() -> None:
    counts = range(10, 100)
    assert np.all(anytime_bounds(counts, 0.1) < anytime_bounds(counts, 0.05))


def test_what_is_not_allowed_is_said() -> None:
    with pytest.raises(UsageError, match="alpha"):
        anytime_bounds([5], 1.5)
    with pytest.raises(UsageError, match="2 values"):
        anytime_bounds([1, 2])
    with pytest.raises(UsageError, match="effect variance"):
        anytime_bounds([5], 0.05, 0.0)
