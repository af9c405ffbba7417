"""What a player can see of a world at one moment, and nothing more."""

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
_WANTS: Final = {"drink": "thirst", "food": "hunger", "energy": "fatigue"}
"""In the order in which they run out; the first of those at zero is the cause."""


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


def cause_of_death(view: View, before: Mapping[str, int]) -> str:
    """What took the last health: lava, zombie, arrow, thirst, hunger or fatigue.

    As far as a view can tell: want takes one health at a time, a zombie or an arrow takes two
    or more. A zombie may vanish in the step it bites in; an arrow that struck is gone, and was
    shot where there is a tunnel.

    Args:
        view: What is seen after the last step.
        before: The inventory before that step.
    """
    if view.materials[_HERE] == _LAVA:
        return "lava"
    bitten = any(view.objects[cell] == _ZOMBIE for cell in _BESIDE)
    wants = [cause for vital, cause in _WANTS.items() if view.inventory[vital] == 0]
    lost = before["health"] - view.inventory["health"]
    # Who had one health left cannot lose more, whatever took it.
    if wants and lost == 1 and not (bitten and before["health"] == 1):
        return wants[0]
    shot = np.isin(view.objects, (_SKELETON, _ARROW)).any() or view.materials[_HERE] == _PATH
    return "arrow" if shot and not bitten else "zombie"
