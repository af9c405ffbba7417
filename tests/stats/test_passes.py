"""pass@k and pass^k against all ways to choose, and what their intervals hold."""

import math
from itertools import combinations

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.shares import exact_share, pass_all, pass_any


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("successes", [0, 1, 3, 5])
def test_they_are_the_shares_of_all_ways_to_choose_k_attempts(successes: int, k: int) -> None:
    chosen = list(combinations([1] * successes + [0] * (5 - successes), k))
    assert pass_any([successes], [5], k).point == pytest.approx(
        np.mean([any(c) for c in chosen])
    )
    assert pass_all([successes], [5], k).point == pytest.approx(
        np.mean([all(c) for c in chosen])
    )


def test_they_have_no_bias() -> None:
    n, k, p = 8, 3, 0.35
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    any_of, all_of = (
        sum(w * find([c], [n], k).point for c, w in enumerate(weights))
        for find in (pass_any, pass_all)
    )
    assert any_of == pytest.approx(1 - (1 - p) ** k)
    assert all_of == pytest.approx(p**k)


def test_one_task_has_the_exact_interval_of_its_share() -> None:
    share = exact_share(6, 10)
    assert pass_all([6], [10], 2)[1:] == pytest.approx((share.low**2, share.high**2))
    assert pass_any([6], [10], 2)[1:] == pytest.approx(
        (1 - (1 - share.low) ** 2, 1 - (1 - share.high) ** 2)
    )


def test_several_tasks_weigh_the_same_and_are_a_sample() -> None:
    found = pass_any([1, 9], [2, 90], 1)
    assert found.point == pytest.approx((0.5 + 0.1) / 2)
    equal = pass_all([5, 5, 5], [5, 5, 5], 3)
    assert equal.point == equal.high == 1
    assert equal.low < 0.5


def test_intervals_over_tasks_keep_their_level() -> None:
    rng, held = np.random.default_rng(1), 0
    for _ in range(400):
        chances = rng.beta(2, 2, 20)
        found = pass_any(rng.binomial(10, chances), [10] * 20, 3)
        # E[1 - (1 - p)^3] of a beta of 2 and 2.
        held += found.low <= 0.8 <= found.high
    assert held / 400 >= 0.94 - 3 * math.sqrt(0.94 * 0.06 / 400)


@pytest.mark.parametrize(
    ("successes", "attempts", "k", "words"),
    [
        ([1], [3], 4, "4 attempts cannot be judged from 3"),
        ([1], [3], 0, "give 1 to 3"),
        ([4], [3], 1, "no share"),
        ([], [], 1, "no task"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    successes: list[int], attempts: list[int], k: int, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        pass_all(successes, attempts, k)
