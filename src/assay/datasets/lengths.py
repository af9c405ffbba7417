"""How long the rows of a file are, in tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Lengths", "lengths_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long rows are, in tokens."""

    total: int
    trained: int
    """Tokens of the answers to learn from."""
    shortest: int
    median: int
    p95: int
    longest: int
    histogram: tuple[tuple[int, int], ...]
    """Upper bounds, and how many rows are above the bound before and up to this one."""


def lengths_of(tokens: Sequence[int], trained: int) -> Lengths | None:
    """The lengths of rows, of which so many tokens are trained; None where there are none."""
    if not tokens:
        return None
    sizes = np.asarray(tokens, np.int64)
    top = 1 << max(4, int(sizes.max() - 1).bit_length())
    bounds = [top >> shift for shift in range(7, -1, -1)]
    places = np.searchsorted(bounds, sizes)
    counted = np.bincount(places, minlength=len(bounds))
    quantiles = np.quantile(sizes, [0, 0.5, 0.95, 1], method="inverted_cdf").astype(int)
    return Lengths(
        total=int(sizes.sum()),
        trained=trained,
        shortest=int(quantiles[0]),
        median=int(quantiles[1]),
        p95=int(quantiles[2]),
        longest=int(quantiles[3]),
        histogram=tuple(zip(bounds, map(int, counted), strict=True)),
    )
