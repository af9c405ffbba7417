"""Crafter scores that are plausible after some episodes, drawn from a hierarchical model.

The success rates of a player's achievements are drawn from one beta distribution, whose mean
and weight are not known either; so a rate of 0 of 10 is read in the light of the other 21, and
an achievement that was never seen may still have a rate. Achievements of an episode come
together, which the model leaves out: their covariance is added to the logarithm of the score,
and is never taken to be less than that of a mean correlation of 0.2. Intervals are the middle
97.5 % of the draws where 95 % are asked for. Both make the interval conservative, on purpose:
docs/design/statistics.md has what it holds.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.stats.intervals import Interval
from assay.stats.samples import check_level, check_resamples

__all__ = ["ScoreDraws", "middle_of", "score_draws"]

Floats = NDArray[np.float64]

_CORRELATION = 0.2
"""The least mean correlation between achievements that is taken; measured ones are 0.32 for
the human and 0.05 to 0.20 for built-in players."""
_MEANS, _WEIGHTS = 25, 18
"""Points of the grid over the mean and the weight of the beta distribution."""


class ScoreDraws(NamedTuple):
    """Draws of ln(1 + score), each shape (B,)."""

    at_n: Floats
    """Of the mean score at n episodes."""
    limit: Floats
    """Of the score of endless episodes."""


def score_draws(
    made_E_A: Floats,
    n: int,
    rng: np.random.Generator,
    n_draws: int,
    *,
    rates_of: int | None = None,
) -> ScoreDraws:
    """Draw scores that go with these episodes.

    Rates p ~ Beta(m s, (1 - m) s) with m uniform and s log-uniform on 0.05 to 30, on a grid: a
    hierarchical model as in Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, section 5.3.
    A score is exp(mean ln(1 + 100 p)) - 1, at n episodes with E ln(1 + 100 K / n) for the
    logarithm, K being binomial. To its logarithm is added sqrt(C) t with one degree of freedom
    less than there are episodes, C being the sum of the covariances of the terms, from the
    correlations of the achievements over episodes.

    Args:
        made_E_A: Which achievements each episode unlocked, or what share of a world's, shape
            (E, A); rows are independent.
        n: The number of episodes that `at_n` speaks of.
        rng: The source of draws.
        n_draws: How many.
        rates_of: The one row holds rates of so many episodes; correlations are not known.
    """
    check_resamples(n_draws)
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import betaln

    episodes = rates_of or len(made_E_A)
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
    known_E_A = None if rates_of else made_E_A
    t_B = rng.standard_t(max(1, episodes - 1), n_draws)
    return ScoreDraws(
        *(
            terms_B_A.mean(axis=1)
            + t_B * math.sqrt(_covariance(terms_B_A, rates_B_A, known_E_A))
            for terms_B_A in terms
        )
    )


def middle_of(
    draws_B: Floats, level: float, point: float | None = None, *, low: float, high: float = 100
) -> Interval:
    """The interval of scores that were drawn, around the point; by default their median."""
    check_level(level)
    tail = (1 - level) / 4
    inside = np.clip(draws_B, low, high)
    bounds = [float(bound) for bound in np.quantile(inside, [tail, 1 - tail])]
    middle = float(np.median(inside)) if point is None else point
    return Interval(middle, min(middle, bounds[0]), max(middle, bounds[1]))


def _covariance(terms_B_A: Floats, rates_B_A: Floats, made_E_A: Floats | None) -> float:
    """The variance of a mean of terms that comes from their covariances."""
    sd_A, rates_A = terms_B_A.std(axis=0), rates_B_A.mean(axis=0)
    least = _CORRELATION * (sd_A.sum() ** 2 - (sd_A**2).sum())
    if made_E_A is None:
        return float(least) / len(sd_A) ** 2
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
    """E ln(1 + 100 K / n) at success rates on a grid that is dense near 0."""
    from scipy.special import gammaln, xlog1py, xlogy

    rates_P = np.linspace(0, 1, 401) ** 2
    expected_P = np.empty_like(rates_P)
    for place, rate in enumerate(rates_P):
        # Further out nothing is left of the probability, and n may be very large.
        reach = 50 + 10 * math.sqrt(n * rate * (1 - rate))
        k = np.arange(max(0, int(n * rate - reach)), min(n, int(n * rate + reach)) + 1)
        logs_K = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        logs_K += xlogy(k, rate) + xlog1py(n - k, -rate)
        expected_P[place] = np.exp(logs_K) @ np.log1p(100 * k / n)
    return rates_P, expected_P
