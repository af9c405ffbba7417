"""What a player can see of a world at one moment, and nothing more."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["View"]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The 9x7 cells around the player, and what the player knows of itself.

    Arrays have the shape (9, 7) and are indexed [x, y]; the player is at [4, 3].
    """

    materials: NDArray[np.uint8]
    """Ids into `rules.MATERIALS`; 0 beyond the edge of the world."""
    objects: NDArray[np.uint8]
    """0 where nothing stands, else 13 plus an index into `rules.OBJECTS`."""
    details: NDArray[np.uint8]
    """Arrows and the player: 1 left, 2 right, 3 up, 4 down. Plants: 1 when ripe. Else 0."""
    inventory: dict[str, int]
    """Counts of all `rules.ITEMS`."""
    sleeping: bool
    """Whether the player is asleep."""
    daylight: float
    """1 at noon, 0 in the deepest night."""
    step: int
    """How many steps the world has made."""
