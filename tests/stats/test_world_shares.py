"""Proportions of worlds with several plays: replicates add no more than they show."""

import math

import numpy as np
import pytest
from scipy import stats

from assay.errors import UsageError
from assay.stats.clusters import korn_graubard, world_share_difference, world_share_test
from assay.stats.shares import share_difference


def test_equal_plays_of_every_world_count_once() -> None:
    exact = stats.binomtest(3, 5).proportion_ci(method="exact")
    found = korn_graubard([1, 0, 1, 1, 0], [10] * 5)
    assert found == pytest.approx((0.6, exact.low, exact.high))
    assert korn_graubard([0.0] * 5, [1, 10, 10, 3, 2]).high == pytest.approx(1 - 0.025**0.2)


def test_the_interval_is_the_exact_one_at_the_effective_number_of_trials() -> None:
    shares, plays = np.array([0.2, 0.9, 0.5, 0.4, 0.8, 0.1]), [10, 10, 10, 5, 5, 10]
    error = stats.sem(shares)
    mean = shares.mean()
    quantiles = stats.t.ppf(0.975, [49, 5])
    n = mean * (1 - mean) / error**2 * (quantiles[0] / quantiles[1]) ** 2
    low = stats.beta.ppf(0.025, n * mean, n - n * mean + 1)
    high = stats.beta.ppf(0.975, n * mean + 1, n - n * mean)
    assert korn_graubard(shares, plays) == pytest.approx((mean, low, high))


def test_plays_that_vary_as_independent_ones_count_as_so_many() -> None:
    exact = stats.binomtest(25, 50).proportion_ci(method="exact")
    assert korn_graubard([0.5] * 5, [10] * 5)[1:] == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("worlds", "plays"), [(5, 10), (10, 3), (20, 3), (50, 2)])
def test_one_share_keeps_its_coverage(worlds: int, plays: int, deterministic: bool) -> None:
    rng = np.random.default_rng([worlds, plays])
    for share in (0.05, 0.3, 0.8):
        chances = np.full((600, worlds), share)
        if deterministic:
            chances = (rng.random((600, worlds)) < share) * 1.0
        means = rng.binomial(plays, chances) / plays
        found = [korn_graubard(one, [plays] * worlds) for one in means]
        held = np.mean([one.low <= share <= one.high for one in found])
        assert held >= 0.94 - 3 * math.sqrt(0.94 * 0.06 / 600)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("worlds", "plays"), [(5, 10), (10, 3), (20, 10)])
def test_a_difference_keeps_its_coverage(worlds: int, plays: int, deterministic: bool) -> None:
    """With the step divided by the plays, 44.5 % of intervals held the truth at 5 x 10."""
    rng = np.random.default_rng([3, worlds, plays])
    for share, more in ((0.05, 0.0), (0.5, 0.0), (0.6, -0.3)):
        sides = [np.full((600, worlds), one) for one in (share, share + more)]
        if deterministic:
            luck = rng.random((600, worlds))
            sides = [(luck < one) * 1.0 for one in sides]
        a, b = (rng.binomial(plays, side) / plays for side in sides)
        counts = [plays] * worlds
        found = [
            world_share_difference(one, two, counts, counts, paired=True)
            for one, two in zip(a, b, strict=True)
        ]
        held = np.mean([one.low <= more <= one.high for one in found])
        assert held >= 0.94 - 3 * math.sqrt(0.94 * 0.06 / 600)


def test_unpaired_worlds_of_one_play_have_the_interval_of_shares() -> None:
    a, b = [0.0, 1, 0, 0, 1, 0], [1.0, 1, 0, 1, 1]
    found = world_share_difference(a, b, [1] * 6, [1] * 5, paired=False)
    assert found == pytest.approx(share_difference(a, b, paired=False))


@pytest.mark.parametrize("paired", [True, False])
def test_interval_and_p_value_never_contradict(paired: bool) -> None:
    rng, said = np.random.default_rng(4), []
    for _ in range(60):
        a, b = rng.binomial(4, 0.3, 8) / 4, rng.binomial(4, 0.65, 8) / 4
        found = world_share_difference(a, b, [4] * 8, [4] * 8, paired=paired)
        test = world_share_test(a, b, [4] * 8, [4] * 8, paired=paired)
        said.append(test.p_value < 0.05)
        assert said[-1] is not (found.low <= 0 <= found.high)
        turned = world_share_test(b, a, [4] * 8, [4] * 8, paired=paired, side="less")
        assert turned.p_value == pytest.approx(
            world_share_test(a, b, [4] * 8, [4] * 8, paired=paired, side="greater").p_value
        )
    assert 10 < sum(said) < 60


def test_what_are_not_shares_of_worlds_is_refused() -> None:
    with pytest.raises(UsageError, match="from 0 to 1"):
        korn_graubard([0.5, 2.0], [1, 1])
    with pytest.raises(UsageError, match="numbers of plays"):
        korn_graubard([0.5, 1.0], [1])
    with pytest.raises(UsageError, match="cannot be paired"):
        world_share_test([0.5, 1.0], [1.0], [1, 1], [1], paired=True)
