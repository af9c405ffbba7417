"""Bias and coverage of the Crafter score and of differences of two.

A part of `python -m prove.statistics`. Players are drawn from the published success rates of
the human and the random player, each achievement independently of the others; a third has the
human's rates, and achievements that come together: each two of them have a correlation of
about 0.3, which is what those of the human have. With ASSAY_CRAFTER_SCORES set to a folder that
holds `crafter_reward-human.json` and `crafter_noreward-random.json` of the reference, whole
episodes are drawn from there instead.
"""

import json
import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.stats.score import (
    ScoreDifference,
    ScoreEstimate,
    crafter_score,
    crafter_score_interval,
    expected_score_at,
    score_difference,
)

from .cells import held
from .parts import Found, markdown
from .shares import LEAST

__all__ = [
    "RATES",
    "Player",
    "expected_score_of_rates",
    "measure_player",
    "players",
    "score",
]

SIZES = (5, 10, 20, 50)
_MATCHED_FROM = 3
"""Matching is tried from so many times the episodes."""
_RESAMPLES = 999
_PERCENT = {
    "human": "86 12 92 53 67 100 100 31 84 89 8 26 22 78 78 100 45 32 24 90 100 73",
    "random": "0 0 9.32 0 50.19 .01 24.38 .02 .14 .38 .01 0 0 0 0 .32 .32 0 44.61 .01 4.36"
    " 93.6",
}
"""In alphabetical order of the achievements, from the data of Hafner, Benchmarking the
Spectrum of Agent Capabilities, 2021."""
RATES = {
    name: np.array([float(word) for word in words.split()]) / 100
    for name, words in _PERCENT.items()
}
_FILES = {"human": "crafter_reward-human.json", "random": "crafter_noreward-random.json"}


class Player(NamedTuple):
    """Someone whose episodes can be drawn."""

    draw: Callable[[np.random.Generator, int], NDArray[np.bool_]]
    """n episodes, shape (n, 22)."""
    mean_at: Callable[[int], float]
    """The true mean score at n episodes."""
    limit: float
    """The score of endless episodes."""


def players() -> tuple[dict[str, Player], str]:
    """The human and the random player, and a sentence on where they come from."""
    folder = os.environ.get("ASSAY_CRAFTER_SCORES")
    if folder is None:
        source = "Achievements drawn at the published success rates."
        found = {name: _by_rates(rates) for name, rates in RATES.items()}
        return found | {"human, together": _by_episodes(_together(RATES["human"]))}, source
    stored = {name: _stored(Path(folder) / file) for name, file in _FILES.items()}
    source = "Whole episodes drawn from those that the reference stores."
    return {name: _by_episodes(made) for name, made in stored.items()}, source


class ScoreCell(NamedTuple):
    """What one player at one number of episodes gave; biases with their standard error."""

    mean_at: float
    limit: float
    plain: float
    corrected: float
    error: float
    """One Monte Carlo standard error of `corrected`."""
    covered: float
    covered_limit: float
    width: float
    """Of the interval of the mean at n, on average."""
    percentile: float
    """What the percentile bootstrap covers of the mean score at n, for comparison."""
    matched: tuple[float, float]
    """The mean of scores brought down to n from more episodes, and its standard error."""


def measure_player(player: Player, n: int, sets: int) -> ScoreCell:
    """Draw sets of n episodes, and what is said about each."""
    rng = np.random.default_rng([2026, n, round(1000 * player.limit)])
    drawn = [player.draw(rng, n) for _ in range(sets)]
    found: list[ScoreEstimate] = [
        crafter_score_interval(made_N_A, rng=rng, n_resamples=_RESAMPLES) for made_N_A in drawn
    ]
    matched = [
        expected_score_at(player.draw(rng, _MATCHED_FROM * n), n, rng=rng, n_resamples=200)
        for _ in range(sets)
    ]
    truth, corrected = player.mean_at(n), [one.corrected for one in found]
    return ScoreCell(
        truth,
        player.limit,
        float(np.mean([one.plain for one in found])),
        float(np.mean(corrected)),
        float(np.std(corrected)) / math.sqrt(sets),
        sum(one.interval.low <= truth <= one.interval.high for one in found) / sets,
        sum(one.limit.low <= player.limit <= one.limit.high for one in found) / sets,
        float(np.mean([2 * one.interval.half_width for one in found])),
        sum(_percentile_holds(made_N_A, truth, rng) for made_N_A in drawn) / sets,
        (float(np.mean(matched)), float(np.std(matched)) / math.sqrt(sets)),
    )


def score(sets: int) -> Found:
    """Measure all players, and differences of two; one in ten of the sets is enough."""
    sets = max(100, sets // 10)
    rows, missed = list[list[str]](), list[str]()
    those, source = players()
    for name, player in those.items():
        for n in SIZES:
            found = measure_player(player, n, sets)
            rows.append(_row(name, n, found))
            missed += [f"{name}, {n} episodes: {what}" for what in _missed(found, sets)]
    head = ["player", "n", "mean score at n", "limit", "bias of plain", "bias of corrected"]
    head += ["covers the mean at n", "covers the limit", "mean width"]
    head += ["percentile bootstrap", "matched from 3 n"]
    apart = _differences(those, max(100, sets // 2))
    text = f"{source} {sets:,} sets a row.\n\n{markdown(head, rows)}\n\n{apart.text}"
    return Found(text, (*missed, *apart.missed))


def _differences(those: dict[str, Player], sets: int) -> Found:
    """Differences of two players, and of a player and the same one again."""
    names = list(those)
    pairs = [(names[0], names[0]), (names[0], names[1]), (names[-1], names[-1])]
    rows, missed = list[list[str]](), list[str]()
    for a, b in pairs:
        for n in SIZES:
            rng = np.random.default_rng([2026, n, names.index(a), names.index(b)])
            drawn = [
                score_difference(
                    those[a].draw(rng, n),
                    those[b].draw(rng, n),
                    rng=rng,
                    n_resamples=_RESAMPLES,
                )
                for _ in range(sets)
            ]
            truths = (
                those[b].mean_at(n) - those[a].mean_at(n),
                those[b].limit - those[a].limit,
            )
            covered = _covered(drawn, truths)
            width = float(np.mean([2 * one.interval.half_width for one in drawn]))
            rows.append(
                [f"{b} less {a}", str(n), *(f"{100 * c:.1f}" for c in covered), f"{width:.1f}"]
            )
            missed += [
                f"{b} less {a}, {n} episodes: {sentence}"
                for share in covered
                for sentence in held(share, sets, least=LEAST)
            ]
    head = ["difference", "n", "covers that at n", "covers that of the limits", "mean width"]
    return Found(f"{markdown(head, rows)}\n\n{sets:,} sets a row.", tuple(missed))


def _covered(drawn: list[ScoreDifference], truths: tuple[float, float]) -> tuple[float, float]:
    at_n, limit = truths
    return (
        float(np.mean([one.interval.low <= at_n <= one.interval.high for one in drawn])),
        float(np.mean([one.limit.low <= limit <= one.limit.high for one in drawn])),
    )


def _percentile_holds(
    made_N_A: NDArray[np.bool_], truth: float, rng: np.random.Generator
) -> bool:
    n = len(made_N_A)
    weights_B_N = rng.multinomial(n, np.full(n, 1 / n), _RESAMPLES)
    low, high = np.quantile(crafter_score(weights_B_N @ made_N_A / n), [0.025, 0.975])
    return bool(low <= truth <= high)


def _missed(found: ScoreCell, sets: int) -> list[str]:
    plain, corrected = found.plain - found.limit, found.corrected - found.limit
    middle, error = found.matched
    checks = [
        (
            abs(corrected) <= abs(plain) / 2 + 2 * found.error,
            f"the bias of {plain:.2f} is only corrected to {corrected:.2f}",
        ),
        (
            abs(middle - found.mean_at) <= 3.5 * error,
            f"matching gives {middle:.3f} for {found.mean_at:.3f}",
        ),
    ]
    covered = [
        sentence
        for share in (found.covered, found.covered_limit)
        for sentence in held(share, sets, least=LEAST)
    ]
    return [sentence for holds, sentence in checks if not holds] + covered


def _row(name: str, n: int, found: ScoreCell) -> list[str]:
    return [
        name,
        str(n),
        f"{found.mean_at:.2f}",
        f"{found.limit:.2f}",
        f"{found.plain - found.limit:+.2f}",
        f"{found.corrected - found.limit:+.2f}",
        f"{100 * found.covered:.1f} %",
        f"{100 * found.covered_limit:.1f} %",
        f"{found.width:.1f}",
        f"{100 * found.percentile:.1f} %",
        f"{found.matched[0]:.2f}",
    ]


def expected_score_of_rates(rates_A: NDArray[np.float64], n: int) -> float:
    """Return the mean score at n episodes of a player with these success rates.

    Exact if achievements come independently of each other: the mean of a product is then the
    product of the means, each over a binomial count.
    """
    from scipy.stats import binom

    k_K = np.arange(n + 1)
    roots_K = (1 + 100 * k_K / n) ** (1 / len(rates_A))
    return float(np.prod(binom.pmf(k_K, n, rates_A[:, None]) @ roots_K)) - 1


def _by_rates(rates_A: NDArray[np.float64]) -> Player:
    return Player(
        lambda rng, n: rng.random((n, len(rates_A))) < rates_A,
        lambda n: expected_score_of_rates(rates_A, n),
        float(crafter_score(rates_A)),
    )


def _by_episodes(made_E_A: NDArray[np.bool_]) -> Player:
    def draw(rng: np.random.Generator, n: int) -> NDArray[np.bool_]:
        return made_E_A[rng.integers(0, len(made_E_A), n)]

    @cache
    def mean_at(n: int) -> float:
        rng = np.random.default_rng([2026, n])
        scores = [float(crafter_score(draw(rng, n).mean(axis=0))) for _ in range(100_000)]
        return float(np.mean(scores))

    return Player(draw, mean_at, float(crafter_score(made_E_A.mean(axis=0))))


def _together(rates_A: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Many episodes with these rates, in which what is good for one achievement is for all."""
    from scipy.special import ndtri

    rng = np.random.default_rng(2026)
    luck_E, own_E_A = rng.standard_normal(20_000), rng.standard_normal((20_000, len(rates_A)))
    latent_E_A = math.sqrt(0.65) * luck_E[:, None] + math.sqrt(0.35) * own_E_A
    return np.asarray(latent_E_A < ndtri(rates_A))


def _stored(path: Path) -> NDArray[np.bool_]:
    runs = json.loads(path.read_text())
    names = sorted(name for name in runs[0] if name.startswith("achievement_"))
    return np.concatenate([np.array([run[name] for name in names]).T > 0 for run in runs])
