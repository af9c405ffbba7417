"""What the player can see of the world at one moment, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.crafter.rules import MATERIALS, OBJECTS

_HERE: Final = (4, 3)
_BESIDE: Final = ((3, 3), (5, 3), (4, 2), (4, 4))
_LAVA: Final = MATERIALS.index("lava")
_PATH: Final = MATERIALS.index("path")
_ZOMBIE, _SKELETON, _ARROW = (13 + OBJECTS.index(it) for it in ("zombie", "skeleton", "arrow"))
_CAUSES: Final = {"drink": "thirst", "food": "hunger", "energy": "fatigue"}
"""Cause of death by vital, in order of priority if several are at zero."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The 9x7 cells around the player, and the player's own state.

    Arrays have the shape (9, 7) and are indexed [x, y]; the player is at [4, 3].
    """

    materials: NDArray[np.uint8]
    """Ids into `rules.MATERIALS`; 0 beyond the edge of the world."""
    objects: NDArray[np.uint8]
    """0 for an empty cell, else 13 plus an index into `rules.OBJECTS`."""
    details: NDArray[np.uint8]
    """Arrows and the player: 1 left, 2 right, 3 up, 4 down. Plants: 1 if ripe. Otherwise 0."""
    inventory: dict[str, int]
    """Counts of all `rules.ITEMS`."""
    sleeping: bool
    daylight: float
    """1 at noon, 0 in the deepest night."""
    step: int


def cause_of_death(view: View, before: Mapping[str, int]) -> str:
    """Return the likely cause of death: lava, zombie, arrow, thirst, hunger or fatigue.

    An unmet need costs one health at a time, a zombie or an arrow two or more. A zombie may
    disappear in the step it attacks in. An arrow that has hit is gone, so a skeleton, another
    arrow or a tunnel under the player counts as evidence for it.

    Args:
        view: The view after the last step.
        before: The inventory before that step.
    """
    if view.materials[_HERE] == _LAVA:
        return "lava"
    zombie_near = any(view.objects[cell] == _ZOMBIE for cell in _BESIDE)
    causes = [cause for vital, cause in _CAUSES.items() if view.inventory[vital] == 0]
    lost = before["health"] - view.inventory["health"]
    # A player with one health left loses exactly one, no matter what the damage was.
    if causes and lost == 1 and not (zombie_near and before["health"] == 1):
        return causes[0]
    arrow = np.isin(view.objects, (_SKELETON, _ARROW)).any() or view.materials[_HERE] == _PATH
    return "arrow" if arrow and not zombie_near else "zombie"
