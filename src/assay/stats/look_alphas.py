"""The alpha of each look at a comparison that is made more than once, as its pairs get more.

An alpha is two-sided, and that of Student's t by itself: the interval of level 1 - alpha at
each look is the repeated confidence interval of Jennison & Turnbull, "Interim analyses: the
repeated confidence interval approach", 1989. Exact for normal differences up to `EXACT_TO`
pairs; where looks cannot be followed, their alphas are added up, which is never too little.
"""

from collections.abc import Sequence

from .spending import Spending
from .t_bounds import EXACT_TO, LARGEST_ALPHA, next_t_bound, t_bounds, t_error
from .two_samples import t_quantile

__all__ = ["error_of_looks", "next_alpha", "planned_alphas"]

_LEAST = 1e-9
"""Below it an alpha is next to nothing, and bounds are not found to its digits."""


def planned_alphas(kind: Spending, counts: Sequence[int], total: float) -> list[float]:
    """The alpha of each look that was planned, so that all looks together have the total.

    Lan & DeMets, "Discrete sequential boundaries for clinical trials", 1983, with the exact
    bounds of `t_bounds`.

    Args:
        kind: How the total is spread.
        counts: After how many pairs; rising, the first after 3 to `EXACT_TO`.
        total: The two-sided error of all looks.
    """
    bounds = t_bounds(kind, tuple(counts), total)
    return [
        max(_alpha(float(bound), count), _LEAST)
        for bound, count in zip(bounds, counts, strict=True)
    ]


def next_alpha(looks: Sequence[tuple[int, float]], count: int, spend: float) -> float:
    """The alpha of one more look, which adds so much to the error of the earlier ones.

    It is more than what it adds, because what passes now would often have passed before. By
    the exact distribution of Jennison & Turnbull, 1991 (`t_bounds`).

    Args:
        looks: The earlier ones, each after how many pairs and at which alpha; rising.
        count: After how many pairs this one is.
        spend: The two-sided error that it may add.
    """
    spend = max(spend, _LEAST)
    if not _followed([*looks, (count, spend)]):
        return spend
    return max(spend, _alpha(next_t_bound(_bounds(looks), count, spend), count))


def error_of_looks(looks: Sequence[tuple[int, float]]) -> float:
    """The probability that one look or more shows a difference where there is none.

    By the exact distribution of Jennison & Turnbull, 1991 (`t_bounds`).

    Args:
        looks: Each after how many pairs and at which alpha; rising.
    """
    if not _followed(looks):
        return min(1.0, sum(alpha for _, alpha in looks))
    return t_error(_bounds(looks))


def _followed(looks: Sequence[tuple[int, float]]) -> bool:
    return all(3 <= count <= EXACT_TO and alpha <= LARGEST_ALPHA for count, alpha in looks)


def _bounds(looks: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(count, t_quantile(count - 1, 1 - alpha / 2)) for count, alpha in looks]


def _alpha(bound: float, count: int) -> float:
    """The two-sided p-value of a t at its bound."""
    from scipy.special import stdtr

    return 2 * float(stdtr(count - 1, -bound))
