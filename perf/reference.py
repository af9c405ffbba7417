"""The PyPI package `crafter`, as it is and made comparable."""

from typing import Any

import crafter
import numpy as np
from numpy.typing import NDArray

from tests.crafter.reference import OrderedWorld

__all__ = ["Headless", "draw"]


class Headless(crafter.Env):  # type: ignore[misc]
    """`crafter.Env` without pictures, whose games are the same in every process.

    The package picks creatures from sets ordered by memory address, and drawing at night
    takes numbers from the game's generator: with both out of the way its games are ours.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed)
        self._world.__class__ = OrderedWorld

    def render(self, size: Any = None) -> None:
        """Draw nothing."""


def draw(env: Headless) -> NDArray[np.uint8]:
    """What the package draws at 64x64."""
    picture: NDArray[np.uint8] = crafter.Env.render(env)
    return picture
