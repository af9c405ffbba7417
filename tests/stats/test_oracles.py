"""Our numbers beside those of rliable, AdaStop and published tables.

rliable and AdaStop live in an environment of their own (`make install-oracles`). Data whose
licence differs from ours is not kept here: `ASSAY_ATARI_100K` names a folder with the JSON
files of individual runs on Atari 100k (`results/data` of eloialonso/iris), `ASSAY_ADASTOP_DATA`
one with walker1.csv to walker5.csv (`examples` of TimotheeMathieu/adastop).
"""

import csv
import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.stats.aggregates import (
    Aggregate,
    aggregate,
    aggregate_intervals,
    average_probability_of_improvement,
)
from assay.stats.multiplicity import holm
from assay.stats.profiles import ProfileKind, performance_profile
from assay.stats.score import crafter_score
from assay.stats.sequential import SequentialDesign, looks
from assay.stats.significance import welch_t_test
from assay.types import Verdict
from tests.oracles.asking import ask, needs_oracles

AGGREGATES = (Aggregate.IQM, Aggregate.MEDIAN, Aggregate.MEAN, Aggregate.OPTIMALITY_GAP)
"""In the order in which the scripts give them."""


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def folder(variable: str, what: str) -> Path:
    name = os.environ.get(variable)
    if not name:
        pytest.skip(f"{what} are not kept here: set {variable} to a folder that has them")
    return Path(name)


def points(scores: Any) -> list[float]:
    return [aggregate(scores, each) for each in AGGREGATES]


def monte_carlo_error(width: float, draws: int) -> float:
    """Of the 2.5 % quantile of about normal draws whose 95 % interval has this width."""
    density = math.exp(-(1.96**2) / 2) / math.sqrt(2 * math.pi)
    return math.sqrt(0.025 * 0.975 / draws) / density * width / 3.92


@pytest.mark.extras
@needs_oracles
def test_aggregates_profiles_and_wins_are_those_of_rliable() -> None:
    random = generator()
    shapes = [(1, 1), (2, 1), (3, 2), (5, 26), (10, 26), (7, 3), (100, 26)]
    matrices = [random.gamma(1, size=shape) for shape in shapes]
    matrices += [np.round(random.normal(size=(9, 5)), 1), np.full((4, 3), 0.25)]
    pairs = [(m, np.round(random.gamma(1, size=(6, m.shape[1])), 1)) for m in matrices]
    pairs += [(matrices[-2], matrices[-2]), (matrices[-2], matrices[-2][::-1])]
    taus = np.linspace(-1, 4, 11)
    answer = ask(
        "rliable_side.py",
        {
            "matrices": [m.tolist() for m in matrices],
            "pairs": [[x.tolist(), y.tolist()] for x, y in pairs],
            "profiles": [[m.tolist(), taus.tolist()] for m in matrices],
        },
    )
    for scores, expected in zip(matrices, answer["aggregates"], strict=True):
        np.testing.assert_allclose(points(scores), expected, rtol=1e-12, atol=1e-12)
    for (x, y), expected in zip(pairs, answer["improvement"], strict=True):
        found = average_probability_of_improvement(y, x, rng=random, n_resamples=100)
        assert found.point == pytest.approx(expected, abs=1e-12)
    for scores, expected in zip(matrices, answer["profiles"], strict=True):
        for kind, curve in zip((ProfileKind.RUNS, ProfileKind.TASKS), expected, strict=True):
            ours = performance_profile(scores, taus, kind=kind, rng=random, n_resamples=100)
            np.testing.assert_allclose(ours.point, curve, atol=1e-12)


@pytest.mark.extras
@needs_oracles
def test_interval_ends_are_those_of_rliable_up_to_monte_carlo_error() -> None:
    random, reps, ours = generator(), 1_500, 50_000
    scores = random.gamma(1, size=(10, 26))
    x, y = random.normal(0.3, size=(10, 6)), random.normal(size=(8, 6))
    answer = ask(
        "rliable_side.py",
        {
            "interval": scores.tolist(),
            "interval_pair": [x.tolist(), y.tolist()],
            "reps": reps,
        },
    )
    found = aggregate_intervals(scores, AGGREGATES, rng=random, n_resamples=ours)
    wins = average_probability_of_improvement(y, x, rng=random, n_resamples=ours)
    expected = [*np.transpose(answer["interval"]), *np.transpose(answer["interval_pair"])]
    for interval, ends in zip([*found.values(), wins], expected, strict=True):
        error = monte_carlo_error(interval.high - interval.low, reps)
        np.testing.assert_allclose(interval[1:], ends, atol=5 * error)


PRINTED = {
    "SPR": (0.39562938, 0.61579574),
    "DrQ(eps)": (0.31290140, 0.46474125),
    "SimPLe": (0.13405558, 0.33199785),
    "CURL_10_evals": (0.09234862, 0.26148856),
}
"""Median and mean, as the notebook of Agarwal et al. 2021 prints them."""

RECOMPUTED = {
    "SPR": ((0.3366, 0.3258, 0.3479), (0.5773, 0.5704, 0.5843)),
    "DrQ(eps)": ((0.2796, 0.2709, 0.2885), (0.6305, 0.6244, 0.6367)),
    "CURL_10_evals": ((0.1128, 0.1076, 0.1182), (0.7680, 0.7619, 0.7740)),
    "SimPLe": ((0.1296, 0.0992, 0.1684), (0.7289, 0.6920, 0.7660)),
    "IRIS": ((0.5012, 0.4417, 0.5646), (0.5117, 0.4912, 0.5331)),
}
"""IQM and optimality gap with the ends of their intervals, by rliable, 20,000 resamples."""

WINS = {("SPR", "DrQ(eps)"): 0.6170115, ("SPR", "CURL_10_evals"): 0.7853308}
WINS |= {("IRIS", "SPR"): 0.6104231}
"""The probability that the first improves on the second, by rliable."""


@pytest.mark.extras
def test_the_published_aggregates_of_atari_100k_come_out() -> None:
    data = folder("ASSAY_ATARI_100K", "runs on Atari 100k")
    scores = {name: atari(data, name) for name in RECOMPUTED}
    for name, expected in PRINTED.items():
        median, mean = points(scores[name])[1:3]
        assert (round(median, 8), round(mean, 8)) == pytest.approx(expected, abs=1.5e-8)
    for name, (middle, gap) in RECOMPUTED.items():
        found = aggregate_intervals(
            scores[name],
            [Aggregate.IQM, Aggregate.OPTIMALITY_GAP],
            rng=generator(),
            n_resamples=20_000,
        )
        for interval, expected_ends in zip(found.values(), (middle, gap), strict=True):
            assert interval.point == pytest.approx(expected_ends[0], abs=6e-5)
            assert interval[1:] == pytest.approx(expected_ends[1:], abs=0.002)
    for (better, worse), probability in WINS.items():
        wins = average_probability_of_improvement(
            scores[worse], scores[better], rng=generator()
        )
        assert wins.point == pytest.approx(probability, abs=6e-8)


def atari(data: Path, name: str) -> dict[str, np.ndarray]:
    """Scores of each game, as a share of what a human gains over chance."""
    found = json.loads((data / f"{name}.json").read_text())
    if isinstance(found, list):
        games = sorted({row["game"] for row in found})
        return {g: np.array([r["HNS"] for r in found if r["game"] == g]) for g in games}
    low, high = (json.loads((data / f"{who}.json").read_text()) for who in ("RANDOM", "HUMAN"))
    return {
        game: (np.array(each) - low[game][0]) / (high[game][0] - low[game][0])
        for game, each in sorted(found.items())
    }


WALKER = {
    ("PPO", "DDPG"): "larger",
    ("PPO", "SAC"): "smaller",
    ("PPO", "TRPO"): "larger",
    ("DDPG", "SAC"): "smaller",
    ("DDPG", "TRPO"): "smaller",
    ("SAC", "TRPO"): "larger",
}
"""AdaStop's tutorial: the first of a pair, compared with the second."""
WALKER_MEANS = {"PPO": 2901.53, "SAC": 4543.40, "DDPG": 884.12, "TRPO": 1215.42}
WALKER_RUNS = {"PPO": 10, "SAC": 10, "DDPG": 25, "TRPO": 25}


def walker() -> list[dict[str, list[float]]]:
    """The scores of five batches; agents that were decided early are missing in later ones."""
    data, batches = folder("ASSAY_ADASTOP_DATA", "scores of AdaStop's example"), []
    for number in range(1, 6):
        with (data / f"walker{number}.csv").open() as file:
            rows = list(csv.DictReader(file))
        names = [name for name in rows[0] if name]
        batches.append({name: [float(row[name]) for row in rows] for name in names})
    return batches


def together(batches: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {name: [x for batch in batches for x in batch.get(name, [])] for name in batches[0]}


@pytest.mark.extras
@needs_oracles
def test_the_worked_example_of_adastop_comes_out() -> None:
    answer = ask("adastop_side.py", {"batches": walker(), "seed": 42})
    assert {(a, b): decision for a, b, decision in answer["decisions"]} == WALKER
    assert answer["runs"] == WALKER_RUNS


@pytest.mark.extras
def test_our_tests_of_all_pairs_come_to_the_decisions_of_adastop() -> None:
    # AdaStop permutes labels, looks at every fifth run and keeps 5 % over all pairs. Ours is
    # Welch's t with Holm's correction, once at the end: another test of the same question,
    # which must not be used after each batch.
    scores = together(walker())
    assert {name: len(each) for name, each in scores.items()} == WALKER_RUNS
    for name, mean in WALKER_MEANS.items():
        assert np.mean(scores[name]) == pytest.approx(mean, abs=0.005)
    pairs = list(itertools.combinations(scores, 2))
    tests = [welch_t_test(scores[a], scores[b]) for a, b in pairs]
    assert max(holm([test.p_value for test in tests])) <= 0.05
    larger = {pair: test.statistic < 0 for pair, test in zip(pairs, tests, strict=True)}
    assert larger == {names: decision == "larger" for names, decision in WALKER.items()}


@pytest.mark.extras
def test_our_early_stopping_never_contradicts_adastop() -> None:
    # Runs paired by number, a look after each, 5 % over six comparisons by Bonferroni. Two are
    # decided by the tenth run, when AdaStop takes two batches; the rest stay undecided, since
    # PPO and SAC have ten runs only, and Bonferroni gives more away than steps down do.
    scores, decided = together(walker()), {}
    for names in WALKER:
        n = min(len(scores[name]) for name in names)
        first, second = (np.array(scores[name][:n]) for name in names)
        design = SequentialDesign(most=25, comparisons=6)
        found = looks(first - second, design, ended=True)[-1]
        if found.decision is not Verdict.UNDECIDED:
            decided[names] = found.decision
            assert found.pairs <= 10
    assert decided == {("DDPG", "SAC"): Verdict.WORSE, ("SAC", "TRPO"): Verdict.BETTER}


RANDOM_RATES = (
    *(0.0, 0.0, 9.32, 0.0, 50.19, 0.01, 24.38, 0.02, 0.14, 0.38, 0.01),
    *(0.0, 0.0, 0.0, 0.0, 0.32, 0.32, 0.0, 44.61, 0.01, 4.36, 93.60),
)
HUMAN_RATES = (
    *(86.0, 12.0, 92.0, 53.0, 67.0, 100.0, 100.0, 31.0, 84.0, 89.0, 8.0),
    *(26.0, 22.0, 78.0, 78.0, 100.0, 45.0, 32.0, 24.0, 90.0, 100.0, 73.0),
)
"""Success rates in percent, of the 22 achievements by name: Hafner, Crafter, 2021, scores of
the random and the human player."""


def test_the_crafter_scores_of_random_and_human_come_out_of_their_success_rates() -> None:
    assert float(crafter_score(np.array(HUMAN_RATES) / 100)) == pytest.approx(52.05, abs=0.005)
    # The mean of five seeds is 1.550; rates of all seeds at two digits give it to two.
    assert float(crafter_score(np.array(RANDOM_RATES) / 100)) == pytest.approx(1.55, abs=0.005)


def test_the_published_human_score_is_the_mean_of_five_people() -> None:
    people = [39.18, 47.11, 57.67, 56.57, 52.10]
    assert np.mean(people) == pytest.approx(50.53, abs=0.005)
    assert np.std(people) == pytest.approx(6.79, abs=0.01)
