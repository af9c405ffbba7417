"""The Crafter score against numbers worked out by hand, and by trying all ways."""

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from scipy import stats as reference

from assay.errors import UsageError
from assay.stats.score import (
    crafter_score,
    crafter_score_interval,
    expected_score_at,
    score_difference,
    score_draws,
)
from prove.score import RATES, expected_score_of_rates, measure_player, players


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def episodes(player: str, n: int, seed: int = 0) -> np.ndarray:
    return generator(seed).random((n, 22)) < RATES[player]


@pytest.mark.parametrize(
    ("rates", "score"),
    [
        pytest.param([0.0] * 22, 0.0, id="nothing"),
        pytest.param([1.0] * 22, 100.0, id="everything"),
        pytest.param([1.0] + [0.0] * 21, math.exp(math.log(101) / 22) - 1, id="one of them"),
        pytest.param([0.5] * 11 + [0.0] * 11, math.sqrt(51) - 1, id="half of half"),
    ],
)
def test_the_score_of_rates(rates: list[float], score: float) -> None:
    assert float(crafter_score(rates)) == pytest.approx(score, abs=1e-9)


def test_many_sets_of_rates_are_scored_at_once() -> None:
    rates_B_A = np.linspace(0, 1, 66).reshape(3, 22)
    scores = crafter_score(rates_B_A)
    assert scores.shape == (3,)
    assert scores[1] == pytest.approx(float(crafter_score(rates_B_A[1])))


def test_the_published_rates_give_the_published_scores() -> None:
    assert float(crafter_score(RATES["human"])) == pytest.approx(52.05, abs=0.005)
    assert float(crafter_score(RATES["random"])) == pytest.approx(1.55, abs=0.005)


def test_plausible_scores_follow_the_posterior_where_it_is_known_in_closed_form() -> None:
    # Many episodes outweigh the prior: rates are beta, and logarithms of scores add up.
    made = generator().random((400, 22)) < 0.5
    draws = score_draws(made.astype(float), 400, generator(1), 20_000)
    rates = generator(2).beta(made.sum(axis=0) + 0.5, 400.5 - made.sum(axis=0), (20_000, 22))
    expected = np.log1p(100 * rates).mean(axis=1)
    assert draws.limit.mean() == pytest.approx(expected.mean(), abs=2e-3)
    # Independent terms, and a correlation of 0.2 between each two of them.
    assert draws.limit.std() == pytest.approx(
        expected.std() * math.sqrt(1 + 0.2 * 21), rel=0.05
    )


def test_episodes_that_come_together_make_the_interval_wider() -> None:
    whole = np.repeat(generator().random((20, 1)) < 0.5, 22, axis=1)
    apart = generator(1).permuted(whole, axis=0)
    wide, narrow = (crafter_score_interval(made, rng=generator()) for made in (whole, apart))
    assert wide.plain == pytest.approx(narrow.plain)
    assert wide.interval.half_width > 1.5 * narrow.interval.half_width


def test_the_interval_knows_of_achievements_that_were_not_seen() -> None:
    made = episodes("random", 10)
    found = crafter_score_interval(made, rng=generator())
    assert found.interval.low < found.plain < found.interval.high
    assert found.limit.high > found.interval.high
    assert found.episodes == 10


def test_replicates_of_a_world_add_nothing_to_the_interval() -> None:
    made = episodes("human", 6)
    once = crafter_score_interval(made, rng=generator())
    worlds = np.repeat(np.arange(6), 5)
    often = crafter_score_interval(np.repeat(made, 5, axis=0), worlds=worlds, rng=generator())
    plain = crafter_score_interval(np.repeat(made, 5, axis=0), rng=generator())
    assert often.plain == pytest.approx(once.plain)
    assert often.limit == pytest.approx(once.limit)
    assert plain.limit.half_width < 0.6 * often.limit.half_width
    assert often.episodes == 30


def test_a_difference_of_scores_is_taken_at_the_smaller_number_of_episodes() -> None:
    a, b = episodes("random", 30), episodes("human", 12)
    found = score_difference(a, b, rng=generator())
    expected = float(crafter_score(b.mean(axis=0))) - expected_score_at(a, 12, rng=generator())
    assert found.episodes == 12
    assert found.interval.point == pytest.approx(expected, abs=0.02)
    assert 0 < found.interval.low < found.interval.point < found.interval.high <= 100
    other = score_difference(b, a, rng=generator())
    assert other.interval.point == pytest.approx(-found.interval.point, abs=0.02)
    assert other.interval.low == pytest.approx(-found.interval.high, abs=2)


def test_scores_of_equal_players_differ_by_nothing() -> None:
    found = score_difference(episodes("human", 20), episodes("human", 20, 1), rng=generator())
    assert found.interval.low < 0 < found.interval.high
    assert found.limit.low < 0 < found.limit.high
    assert not score_difference([[True]], [[True], [False]], rng=generator()).interval.known


def test_the_corrected_score_is_the_jackknifes() -> None:
    made = episodes("human", 9)
    others = [float(crafter_score(np.delete(made, i, axis=0).mean(axis=0))) for i in range(9)]
    found = crafter_score_interval(made, rng=generator(), n_resamples=100)
    assert found.corrected == pytest.approx(9 * found.plain - 8 * np.mean(others))
    assert found.corrected > found.plain


def test_the_same_seed_gives_the_same_interval() -> None:
    made = episodes("random", 10)
    first, second = (crafter_score_interval(made, rng=generator(3)) for _ in range(2))
    assert first == second


def test_one_episode_has_a_score_and_no_interval() -> None:
    found = crafter_score_interval([[True] + [False] * 21], rng=generator())
    assert found.plain == pytest.approx(math.exp(math.log(101) / 22) - 1)
    assert not found.interval.known
    assert math.isnan(found.corrected)


@pytest.mark.parametrize(("row", "score"), [([False] * 22, 0.0), ([True] * 22, 100.0)])
def test_equal_episodes_have_an_interval_with_width(row: list[bool], score: float) -> None:
    found = crafter_score_interval([row] * 5, rng=generator())
    assert found.interval.point == pytest.approx(score)
    assert 0.3 < found.interval.high - found.interval.low < 10
    assert found.corrected == pytest.approx(score)


def test_no_bound_leaves_the_range_of_a_score() -> None:
    made = np.ones((3, 22), bool)
    made[0] = False
    found = crafter_score_interval(made, rng=generator())
    assert found.interval.low >= 0
    assert found.interval.high == 100


@pytest.mark.parametrize("n", range(1, 9))
def test_the_expected_score_at_fewer_episodes_is_that_of_all_ways_to_choose(n: int) -> None:
    made = episodes("human", 8)
    ways = [crafter_score(made[list(one)].mean(axis=0)) for one in combinations(range(8), n)]
    found = expected_score_at(made, n, rng=generator())
    assert found == pytest.approx(float(np.mean(ways)), rel=5e-3)


def test_matching_takes_a_long_run_down_to_a_short_ones_number() -> None:
    long = episodes("random", 400)
    truth = expected_score_of_rates(RATES["random"], 10)
    assert expected_score_at(long, 10, rng=generator()) == pytest.approx(truth, abs=0.12)
    assert expected_score_at(long, 400, rng=generator()) > truth + 0.12


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_expected_score_of_rates_is_that_of_all_outcomes(n: int) -> None:
    rates, total = np.array([0.0, 0.2, 0.7, 1.0]), 0.0
    for counts in product(range(n + 1), repeat=4):
        chance = np.prod(reference.binom.pmf(counts, n, rates))
        total += chance * float(crafter_score(np.array(counts) / n))
    assert expected_score_of_rates(rates, n) == pytest.approx(total)


def test_the_expected_score_grows_with_the_episodes_to_the_score_of_the_rates() -> None:
    for rates in RATES.values():
        scores = [expected_score_of_rates(rates, n) for n in (5, 10, 20, 200, 20_000)]
        assert scores == sorted(scores)
        assert scores[-1] == pytest.approx(float(crafter_score(rates)), rel=1e-3)
    assert expected_score_of_rates(RATES["random"], 10) == pytest.approx(1.28, abs=0.005)
    assert expected_score_of_rates(RATES["human"], 5) == pytest.approx(40.5, abs=0.05)


@pytest.mark.extras
def test_less_bias_is_left_and_the_interval_covers_as_documented() -> None:
    player = players()[0]["human"]
    found = measure_player(player, 10, 150)
    assert abs(found.corrected - found.limit) < abs(found.plain - found.limit) / 2
    assert found.covered > 0.88
    assert found.matched[0] == pytest.approx(found.mean_at, abs=4 * found.matched[1])


@pytest.mark.parametrize(
    "made",
    [
        pytest.param([], id="nothing"),
        pytest.param([True, False], id="one row without a table"),
        pytest.param([[0.5, 1.0]], id="shares"),
        pytest.param([[math.nan, 1.0]], id="nan"),
        pytest.param([[True], [True, False]], id="ragged"),
        pytest.param([["a"]], id="words"),
    ],
)
def test_what_is_no_table_of_episodes_is_refused(made: Any) -> None:
    with pytest.raises(UsageError, match="a row per episode"):
        crafter_score_interval(made, rng=generator())


@pytest.mark.parametrize("n", [0, 9])
def test_a_number_of_episodes_that_cannot_be_chosen_is_refused(n: int) -> None:
    with pytest.raises(UsageError, match=f"at {n} episodes cannot come from 8"):
        expected_score_at(episodes("human", 8), n, rng=generator())
