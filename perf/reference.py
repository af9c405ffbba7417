"""The PyPI package `crafter`, as it is and made comparable."""

import collections
from typing import Any

import crafter
import crafter.engine
import numpy as np
from numpy.typing import NDArray

__all__ = ["Headless", "draw"]


class _Ordered(dict[Any, None]):
    """A set that iterates in the order of insertion."""

    def add(self, member: Any) -> None:
        self[member] = None

    def remove(self, member: Any) -> None:
        del self[member]


class _OrderedWorld(crafter.engine.World):  # type: ignore[misc]
    def reset(self, seed: int | None = None) -> None:
        super().reset(seed)
        self._chunks: dict[Any, _Ordered] = collections.defaultdict(_Ordered)


class Headless(crafter.Env):  # type: ignore[misc]
    """`crafter.Env` without pictures, whose games are the same in every process.

    The package picks creatures from sets ordered by memory address, and drawing at night
    takes numbers from the game's generator: with both out of the way its games are ours.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed)
        self._world.__class__ = _OrderedWorld

    def render(self, size: Any = None) -> None:
        """Draw nothing."""


def draw(env: Headless) -> NDArray[np.uint8]:
    """What the package draws at 64x64."""
    picture: NDArray[np.uint8] = crafter.Env.render(env)
    return picture
