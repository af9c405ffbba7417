"""The games both sides play: the same seeds, the same uniformly random actions."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from assay.crafter import ACTIONS

__all__ = ["actions_of", "seeds_of"]

_LONGEST = 2_000
"""No game of the random policy comes near this many steps."""


def seeds_of(turn: int, count: int) -> range:
    """The worlds of a round; no two rounds share one."""
    first = 1_000 + (turn + 1) * count
    return range(first, first + count)


@lru_cache(maxsize=256)
def actions_of(seed: int) -> NDArray[np.uint8]:
    """The actions played in the world of a seed."""
    return np.random.default_rng(seed).integers(0, len(ACTIONS), _LONGEST, dtype=np.uint8)
