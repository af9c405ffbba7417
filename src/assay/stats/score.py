"""Crafter score: one number for 22 success rates, with its interval and its bias.

The score rewards breadth: a rare achievement counts for more than a common one that is unlocked
more often. Rates of zero weigh heavily, so the expected score grows with the number of
episodes. Episodes stored by the authors of the reference game, resampled at n episodes, have a
mean score of

    n         5     10     20     50    100   limit
    human  42.6   47.5   50.0   51.4   51.7    52.0
    random 1.14   1.29   1.39   1.47   1.51    1.55

So only scores with equal n are comparable. `expected_score_at` reduces the score of a player
with more episodes to fewer, without bias. `ScoreEstimate.corrected` estimates the limit, with
some remaining bias. All intervals use one method, independent of the episodes.

The intervals come from a hierarchical model. The success rates of a player's achievements are
drawn from one beta distribution with unknown mean and weight, so a rate of 0 of 10 is
interpreted in the light of the other 21 rates, and an achievement that was never unlocked may
have a rate above 0. The model ignores that achievements within an episode are correlated.
Therefore their covariance is added to the logarithm of the score, with a mean correlation of at
least 0.2. A 95 % interval is the middle 97.5 % of the draws. Both make the interval
conservative on purpose: docs/design/statistics.md has its coverage.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.clusters import Labels, codes_of
from assay.stats.intervals import Interval, check_level, check_resamples

Floats = NDArray[np.float64]

_CORRELATION = 0.2
"""Smallest mean correlation between achievements that is assumed; measured ones are 0.32 for
the human and 0.05 to 0.20 for built-in players."""
_MEANS, _WEIGHTS = 25, 18
"""Grid points for the mean and the weight of the beta distribution."""


class ScoreDraws(NamedTuple):
    """Draws of ln(1 + score), each of shape (B,)."""

    at_n: Floats
    """Draws of the mean score at n episodes."""
    limit: Floats
    """Draws of the score in the limit of infinitely many episodes."""


def score_draws(made_E_A: Floats, n: int, rng: np.random.Generator, n_draws: int) -> ScoreDraws:
    """Draw scores that are plausible given these episodes.

    Rates p ~ Beta(m s, (1 - m) s) with m uniform and s log-uniform on 0.05 to 30, on a grid: a
    hierarchical model as in Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, section 5.3. A
    score is exp(mean ln(1 + 100 p)) - 1; at n episodes the logarithm is replaced by
    E ln(1 + 100 K / n) with binomial K. The term sqrt(C) t is added to the logarithm of the
    score: t has one degree of freedom less than there are episodes, and C is the sum of the
    covariances of the terms, from the correlations of the achievements over episodes.

    Args:
        made_E_A: Whether each episode unlocked each achievement, or the proportion of a world's
            episodes that did, shape (E, A); rows are independent.
        n: Number of episodes for `at_n`.
        rng: Random generator.
        n_draws: Number of draws.
    """
    check_resamples(n_draws)
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import betaln

    episodes = len(made_E_A)
    hits_A = made_E_A.mean(axis=0) * episodes
    alpha_G, beta_G = _grid()
    logs_G = betaln(hits_A + alpha_G[:, None], episodes - hits_A + beta_G[:, None]).sum(axis=1)
    logs_G -= len(hits_A) * betaln(alpha_G, beta_G)
    weights_G = np.exp(logs_G - logs_G.max())
    drawn_B = rng.choice(len(weights_G), n_draws, p=weights_G / weights_G.sum())
    rates_B_A = rng.beta(
        hits_A + alpha_G[drawn_B, None], episodes - hits_A + beta_G[drawn_B, None]
    )
    grid_P, logs_P = _expected_logarithms(n)
    terms = (np.interp(rates_B_A, grid_P, logs_P), np.log1p(100 * rates_B_A))
    t_B = rng.standard_t(max(1, episodes - 1), n_draws)
    return ScoreDraws(
        *(
            terms_B_A.mean(axis=1)
            + t_B * math.sqrt(_covariance(terms_B_A, rates_B_A, made_E_A))
            for terms_B_A in terms
        )
    )


def middle_of(
    draws_B: Floats, level: float, point: float | None = None, *, low: float, high: float = 100
) -> Interval:
    """Return the interval of drawn scores around the point, by default their median."""
    check_level(level)
    tail = (1 - level) / 4
    inside = np.clip(draws_B, low, high)
    bounds = [float(bound) for bound in np.quantile(inside, [tail, 1 - tail])]
    middle = float(np.median(inside)) if point is None else point
    return Interval(middle, min(middle, bounds[0]), max(middle, bounds[1]))


def _covariance(terms_B_A: Floats, rates_B_A: Floats, made_E_A: Floats) -> float:
    """Return the part of the variance of a mean of terms that is due to their covariances."""
    sd_A, rates_A = terms_B_A.std(axis=0), rates_B_A.mean(axis=0)
    least = _CORRELATION * (sd_A.sum() ** 2 - (sd_A**2).sum())
    spread_A = np.sqrt(rates_A * (1 - rates_A))
    weights_A = np.divide(sd_A, spread_A, out=np.zeros_like(sd_A), where=spread_A > 0)
    together = (made_E_A @ weights_A).var(ddof=1)
    apart = (weights_A**2 * made_E_A.var(axis=0, ddof=1)).sum()
    return float(max(least, together - apart)) / len(sd_A) ** 2


@cache
def _grid() -> tuple[Floats, Floats]:
    means = (np.arange(_MEANS) + 0.5) / _MEANS
    weights = np.geomspace(0.05, 30, _WEIGHTS)
    return np.outer(means, weights).ravel(), np.outer(1 - means, weights).ravel()


@cache
def _expected_logarithms(n: int) -> tuple[Floats, Floats]:
    """Return E ln(1 + 100 K / n) at success rates on a grid that is dense near 0."""
    from scipy.special import gammaln, xlog1py, xlogy

    rates_P = np.linspace(0, 1, 401) ** 2
    expected_P = np.empty_like(rates_P)
    for place, rate in enumerate(rates_P):
        # The probability further out is negligible, and n may be very large.
        reach = 50 + 10 * math.sqrt(n * rate * (1 - rate))
        k = np.arange(max(0, int(n * rate - reach)), min(n, int(n * rate + reach)) + 1)
        logs_K = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        logs_K += xlogy(k, rate) + xlog1py(n - k, -rate)
        expected_P[place] = np.exp(logs_K) @ np.log1p(100 * k / n)
    return rates_P, expected_P


_BATCH = 4_000_000
"""Number of values drawn at a time."""


class ScoreEstimate(NamedTuple):
    """Crafter score of some episodes, with intervals and bias correction."""

    interval: Interval
    """Interval of this player's mean score at this number of episodes; the point is `plain`."""
    limit: Interval
    """Interval of the score in the limit of infinitely many episodes; the point is the median
    of the draws."""
    plain: float
    """Score as usually reported. It is unbiased for the mean score at this number of episodes,
    and too low for the limit of many episodes."""
    corrected: float
    """Jackknife estimate of the limit of many episodes; NaN for one episode."""
    episodes: int
    """Number of episodes; scores with different numbers are not directly comparable."""


def crafter_score(rates: NDArray[np.float64] | Sequence[float]) -> NDArray[np.float64]:
    """Return the Crafter score of success rates in [0, 1]; achievements are the last axis.

    exp(mean(ln(1 + percent))) - 1: Hafner, Benchmarking the Spectrum of Agent Capabilities,
    2021, and the reference's `analysis/common.py`. It lies between 0 and 100.
    """
    return np.asarray(np.expm1(_logarithms(np.asarray(rates, np.float64))))


class ScoreDifference(NamedTuple):
    """Crafter score of one player minus the score of another."""

    interval: Interval
    """Interval of the difference of their mean scores at `episodes` episodes each."""
    limit: Interval
    """Interval of the difference in the limit of infinitely many episodes."""
    episodes: int
    """Episodes of the player with fewer; the other player's score is reduced to as many."""


def crafter_score_interval(
    unlocked_E_A: NDArray[Any] | Sequence[Sequence[bool]],
    *,
    worlds: Labels | None = None,
    level: float = 0.95,
    rng: np.random.Generator,
    n_resamples: int = 4_000,
) -> ScoreEstimate:
    """Return the Crafter score of episodes with its interval, and a bias-corrected score.

    The interval comes from `score_draws`: it is hierarchical (Gelman et al., Bayesian Data
    Analysis, 3rd ed. 2013), conservative, within [0, 100], and has nonzero width even if all
    episodes are equal. A bootstrap would ignore achievements that are missing in these episodes
    and would occur in others. With one episode, or one world, the bounds are NaN.

    `corrected` is the first-order jackknife (Quenouille, Notes on bias in estimation, 1956) of
    the score itself, cut to [0, 100]. Its mean is n m(n) - (n - 1) m(n - 1), where m(n) is the
    mean score at n. With n = 5, 10, 20, 50 the human's bias of -9.4, -4.6, -2.0, -0.7 becomes
    one of less than 1, 0.9, 0.7 and 0.2 in either direction, and the random player's of -0.41,
    -0.26, -0.16, -0.08 becomes -0.2, -0.1, -0.04 and -0.02.

    Args:
        unlocked_E_A: Whether each episode unlocked each achievement, shape (E, A).
        worlds: World of each episode; episodes of one world are not independent and count as
            one unit. None: each episode has its own world.
        level: Confidence level.
        rng: Random generator.
        n_resamples: Number of draws.
    """
    made_E_A = _unlocked(unlocked_E_A)
    episodes = len(made_E_A)
    made_W_A = _by_world(made_E_A, worlds)
    plain = float(crafter_score(made_W_A.mean(axis=0)))
    corrected = _jackknife(made_W_A, plain) if len(made_W_A) > 1 else math.nan
    if len(made_W_A) == 1:
        unknown = Interval(plain, math.nan, math.nan)
        return ScoreEstimate(
            unknown, unknown._replace(point=math.nan), plain, math.nan, episodes
        )
    draws = score_draws(made_W_A, episodes, rng, n_resamples)
    return ScoreEstimate(
        _scores(draws.at_n, plain, level),
        _scores(draws.limit, None, level),
        plain,
        corrected,
        episodes,
    )


def score_difference(
    unlocked_a: NDArray[Any] | Sequence[Sequence[bool]],
    unlocked_b: NDArray[Any] | Sequence[Sequence[bool]],
    *,
    worlds_a: Labels | None = None,
    worlds_b: Labels | None = None,
    level: float = 0.95,
    rng: np.random.Generator,
    n_resamples: int = 4_000,
) -> ScoreDifference:
    """Return the Crafter score of `b` minus the score of `a`, at equal numbers of episodes.

    Scores of both players are drawn as for `crafter_score_interval` (Gelman et al., 2013) and
    subtracted, both at the smaller number of episodes. Worlds that both played are not paired;
    pairing would make the interval shorter. For the arguments see `crafter_score_interval`.
    """
    made_a, made_b = _unlocked(unlocked_a), _unlocked(unlocked_b)
    n = min(len(made_a), len(made_b))
    point = _at(made_b, worlds_b, n, rng) - _at(made_a, worlds_a, n, rng)
    sides = [_by_world(made_a, worlds_a), _by_world(made_b, worlds_b)]
    if min(map(len, sides)) == 1:
        unknown = Interval(point, math.nan, math.nan)
        return ScoreDifference(unknown, unknown._replace(point=math.nan), n)
    a, b = (score_draws(side, n, rng, n_resamples) for side in sides)
    at_n, limit = np.expm1(b.at_n) - np.expm1(a.at_n), np.expm1(b.limit) - np.expm1(a.limit)
    return ScoreDifference(
        middle_of(at_n, level, point, low=-100), middle_of(limit, level, low=-100), n
    )


def expected_score_at(
    unlocked_E_A: NDArray[Any] | Sequence[Sequence[bool]],
    n: int,
    *,
    rng: np.random.Generator,
    n_resamples: int = 10_000,
) -> float:
    """Return the mean score of n of these episodes, for comparison with a score of n episodes.

    The mean over all ways to choose n of the E episodes, which is unbiased for the mean score
    at n (it is a U-statistic: Hoeffding, A class of statistics with asymptotically normal
    distribution, 1948). The mean of ln(1 + score) is exact, from the hypergeometric
    distribution of each achievement's count. The correction for the exponential is estimated
    from random choices, without its linear part, whose mean is known to be zero. That leaves a
    standard error of 0.02 for 5 of 100 human episodes, and less elsewhere.

    Args:
        unlocked_E_A: Whether each episode unlocked each achievement, shape (E, A).
        n: Number of episodes, from 1 to E; at E the result is the plain score.
        rng: Random generator.
        n_resamples: Number of random choices.
    """
    made_E_A = _unlocked(unlocked_E_A)
    episodes = len(made_E_A)
    if not 1 <= n <= episodes:
        raise UsageError(
            f"a score at {n} episodes cannot come from {episodes}; give 1 to {episodes}"
        )
    if n == episodes:
        return float(crafter_score(made_E_A.mean(axis=0)))
    check_resamples(n_resamples)
    weights_A_K = _hypergeometric(episodes, made_E_A.sum(axis=0), n)
    mean = float((weights_A_K @ np.log1p(100 * np.arange(n + 1) / n)).mean())
    away_B = np.concatenate(
        [
            _logarithms(chosen_B_E @ made_E_A / n) - mean
            for chosen_B_E in _choices(episodes, n, rng, n_resamples)
        ]
    )
    # exp(x) - 1 - x: the linear part has mean zero and would only add noise.
    more = float((np.expm1(away_B) - away_B).mean())
    return math.exp(mean) * (1 + more) - 1


def _unlocked(unlocked_E_A: NDArray[Any] | Sequence[Sequence[bool]]) -> NDArray[np.float64]:
    try:
        made_E_A = np.asarray(unlocked_E_A, np.float64)
    except (TypeError, ValueError):
        made_E_A = np.empty(0)
    if made_E_A.ndim != 2 or not made_E_A.size or not np.isin(made_E_A, (0, 1)).all():
        raise UsageError(
            "a score takes a table with a row per episode and a column per achievement, true"
            " where it was unlocked; give one episode or more"
        )
    return made_E_A


def _by_world(made_E_A: NDArray[np.float64], worlds: Labels | None) -> NDArray[np.float64]:
    """Return the proportion of each world's episodes that unlocked each achievement; (W, A)."""
    if worlds is None:
        return made_E_A
    codes_E = codes_of(worlds, len(made_E_A), "the episodes")
    return np.array([made_E_A[codes_E == world].mean(axis=0) for world in np.unique(codes_E)])


def _at(
    made_E_A: NDArray[np.float64], worlds: Labels | None, n: int, rng: np.random.Generator
) -> float:
    if n == len(made_E_A):
        return float(crafter_score(_by_world(made_E_A, worlds).mean(axis=0)))
    return expected_score_at(made_E_A, n, rng=rng)


def _scores(logs_B: NDArray[np.float64], point: float | None, level: float) -> Interval:
    return middle_of(np.expm1(logs_B), level, point, low=0)


def _logarithms(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln(1 + score) of rates; achievements are the last axis."""
    return np.asarray(np.log1p(100 * rates).mean(axis=-1))


def _jackknife(made_E_A: NDArray[np.float64], plain: float) -> float:
    episodes = len(made_E_A)
    without_E_A = (made_E_A.sum(axis=0) - made_E_A) / (episodes - 1)
    guess = episodes * plain - (episodes - 1) * float(crafter_score(without_E_A).mean())
    return min(max(guess, 0.0), 100.0)


def _batches(episodes: int, n_resamples: int) -> Iterator[int]:
    batch = max(1, _BATCH // episodes)
    for start in range(0, n_resamples, batch):
        yield min(batch, n_resamples - start)


def _choices(
    episodes: int, n: int, rng: np.random.Generator, n_resamples: int
) -> Iterator[NDArray[np.float64]]:
    """Yield batches of choices, shape (B, E): 1 for the n chosen episodes, 0 otherwise."""
    for size in _batches(episodes, n_resamples):
        chosen_B_N = rng.random((size, episodes)).argpartition(n - 1, axis=1)[:, :n]
        choice_B_E = np.zeros((size, episodes))
        np.put_along_axis(choice_B_E, chosen_B_N, 1, axis=1)
        yield choice_B_E


def _hypergeometric(
    episodes: int, totals_A: NDArray[np.float64], n: int
) -> NDArray[np.float64]:
    """Return the probability of k successes among n of the episodes, shape (A, n + 1)."""
    k_K, totals_A_1 = np.arange(n + 1), totals_A[:, None]
    possible = (k_K <= totals_A_1) & (n - k_K <= episodes - totals_A_1)
    inside = np.where(possible, k_K, np.maximum(0, n - (episodes - totals_A_1)))
    logs_A_K = _log_choose(totals_A_1, inside) + _log_choose(episodes - totals_A_1, n - inside)
    return np.where(possible, np.exp(logs_A_K - _log_choose(episodes, n)), 0.0)


def _log_choose(n: Any, k: Any) -> NDArray[np.float64]:
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import gammaln

    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
