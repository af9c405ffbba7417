"""The PyPI package `crafter` made reproducible: the oracle of the engine's tests.

Two changes and no other: chunks remember the order things entered them in, because the
package picks creatures from sets ordered by memory address; and nothing is drawn,
because drawing at night takes numbers from the game's generator.
"""

import collections
import functools
from typing import Any

import crafter
import crafter.engine

__all__ = ["OrderedWorld", "Reference"]


class _Ordered(dict[Any, None]):
    """A set that iterates in the order of insertion."""

    def add(self, member: Any) -> None:
        self[member] = None

    def remove(self, member: Any) -> None:
        del self[member]


class OrderedWorld(crafter.engine.World):  # type: ignore[misc]
    """A world whose chunks remember the order things entered them in."""

    def reset(self, seed: int | None = None) -> None:
        super().reset(seed)
        self._chunks: Any = collections.defaultdict(_Ordered)


# Every Env reads all textures from disk, which takes longer than making its world.
_textures = functools.cache(crafter.engine.Textures)


class Reference(crafter.Env):  # type: ignore[misc]
    """`crafter.Env` with ordered chunks and without pictures, reset once."""

    def __init__(self, seed: int, length: int = 10_000) -> None:
        original, crafter.engine.Textures = crafter.engine.Textures, _textures
        try:
            super().__init__(seed=seed, length=length)
        finally:
            crafter.engine.Textures = original
        self._world.__class__ = OrderedWorld
        self.reset()

    def render(self, size: Any = None) -> None:
        """Draw nothing."""
