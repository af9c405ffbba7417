"""Many comparisons at once: p-values adjusted so that each can be held against the level.

Who is compared with whom, and what follows from it, is decided by `assay.judge`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError

__all__ = ["Correction", "benjamini_hochberg", "holm"]


class Correction(StrEnum):
    """What is kept at 1 - level over all comparisons together."""

    HOLM = "holm"
    """The chance of even one false difference, whatever the comparisons have in common."""
    BENJAMINI_HOCHBERG = "bh"
    """The expected share of false ones among the differences that are named."""


def holm(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    """Adjusted p-values that keep the chance of any false rejection; in the order given.

    Holm, "A simple sequentially rejective multiple test procedure", 1979: the k-th smallest
    of m is multiplied by m - k + 1, and none may be below a smaller one.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def benjamini_hochberg(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    """Adjusted p-values that keep the false discovery rate; in the order given.

    Benjamini and Hochberg, "Controlling the false discovery rate", 1995: the k-th smallest
    of m is multiplied by m / k, and none may be above a larger one. It holds for independent
    comparisons and for positively dependent ones, not for any.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")[::-1]
    steps = p[order] * len(p) / np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(steps))
    return adjusted


def _p_values(p_values: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]:
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise UsageError(
            "p-values are a flat list of numbers in [0, 1]; leave out what has none"
        )
    return p
