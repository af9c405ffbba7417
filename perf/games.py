"""The episodes both sides play: equal seeds and uniformly random actions."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from assay.crafter import ACTIONS

__all__ = ["make_actions", "make_seeds"]

_LONGEST = 2_000
"""No game of the random policy comes near this many steps."""


def make_seeds(turn: int, count: int) -> range:
    """Return the seeds of a round; no two rounds share one."""
    first = 1_000 + (turn + 1) * count
    return range(first, first + count)


@lru_cache(maxsize=256)
def make_actions(seed: int) -> NDArray[np.uint8]:
    """Return the actions played in the world of a seed."""
    return np.random.default_rng(seed).integers(0, len(ACTIONS), _LONGEST, dtype=np.uint8)
