"""Names for ids, directions and cells, as the expert's modules share them. No behaviour.

A cell is one integer, `x * STRIDE + y`, in a square that is large enough for every world
whichever cell the player starts on; the expert calls the cell it starts on `START`.
"""

from typing import Final

from assay.crafter.rules import ACTIONS, COLLECT, MATERIALS, OBJECTS, VIEW, WALKABLE

STRIDE: Final = 144
START: Final = STRIDE // 2 * (STRIDE + 1)
CELLS: Final = STRIDE * STRIDE
UNKNOWN: Final = 255
"""What the memory holds for a cell that was never seen."""

LEFT, RIGHT, UP, DOWN = range(4)
STEPS: Final = (-STRIDE, STRIDE, -1, 1)
"""What a step in each direction adds to a cell."""

ACROSS, HIGH = VIEW
MIDDLE: Final = ACROSS // 2 * HIGH + HIGH // 2
"""Where the player is among the cells of a flattened view."""
OFFSETS: Final = tuple(
    (k // HIGH - ACROSS // 2) * STRIDE + k % HIGH - HIGH // 2 for k in range(ACROSS * HIGH)
)
"""What leads from the player to each cell of a flattened view."""
CORNER: Final = OFFSETS[0]

(
    OUTSIDE,
    WATER,
    GRASS,
    STONE,
    PATH,
    SAND,
    TREE,
    LAVA,
    COAL,
    IRON,
    DIAMOND,
    TABLE,
    FURNACE,
) = range(len(MATERIALS))

PLAYER, COW, ZOMBIE, SKELETON, ARROW, PLANT = range(
    len(MATERIALS), len(MATERIALS) + len(OBJECTS)
)

NOOP: Final = ACTIONS.index("noop")
MOVE: Final = ACTIONS.index("move_left")
"""The move in direction d is the action MOVE + d."""
DO: Final = ACTIONS.index("do")
SLEEP: Final = ACTIONS.index("sleep")
PLACE_STONE: Final = ACTIONS.index("place_stone")
PLACE_TABLE: Final = ACTIONS.index("place_table")
PLACE_FURNACE: Final = ACTIONS.index("place_furnace")
PLACE_PLANT: Final = ACTIONS.index("place_plant")


def table_of(*materials: int) -> bytes:
    """A set of materials as a table: `table[material]` is 1 for its members, else 0."""
    return bytes(i in materials for i in range(256))


OPEN: Final = table_of(*(MATERIALS.index(name) for name in WALKABLE))
"""Where creatures and the player walk."""
DIGGABLE: Final = {
    MATERIALS.index(name): rule.tool for name, rule in COLLECT.items() if rule.leaves != name
}
"""What `do` removes, and the tool it takes."""
