"""Names for ids, directions and cells, as the expert's modules share them. No behaviour.

A cell is one integer, `x * STRIDE + y`, in a square that is large enough for every world
whichever cell the player starts on; the expert calls the cell it starts on `START`.
"""

from enum import StrEnum
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


class Goal(StrEnum):
    """Why an action was chosen."""

    COLLECT_SAPLING = "collect sapling"
    """Searching grass for a sapling."""
    PLACE_PLANT = "place plant"
    """Bringing a sapling into the ground."""
    FENCE_PLANT = "fence plant"
    """Walling a plant in, so that nothing eats it."""
    WAIT_FOR_PLANT = "wait for plant"
    """Staying near a plant, because it grows only then."""
    EAT_PLANT = "eat plant"
    """Going to a plant that is ripe, or should be."""
    COLLECT_WOOD = "collect wood"
    """Felling trees."""
    PLACE_TABLE = "place table"
    """Making room for a table and placing it."""
    GO_TO_TABLE = "go to table"
    """Walking to a table that stands already."""
    MAKE_WOOD_PICKAXE = "make wood pickaxe"
    """At a table."""
    MAKE_STONE_PICKAXE = "make stone pickaxe"
    """At a table."""
    MAKE_IRON_PICKAXE = "make iron pickaxe"
    """At a table and a furnace."""
    MAKE_WOOD_SWORD = "make wood sword"
    """At a table."""
    MAKE_STONE_SWORD = "make stone sword"
    """At a table."""
    MAKE_IRON_SWORD = "make iron sword"
    """At a table and a furnace."""
    COLLECT_STONE = "collect stone"
    """Digging for building material."""
    PLACE_STONE = "place stone"
    """The first stone placed, for its own sake."""
    PLACE_FURNACE = "place furnace"
    """Making room for a furnace and placing it."""
    COLLECT_COAL = "collect coal"
    """Going to coal and digging it."""
    COLLECT_IRON = "collect iron"
    """Going to iron and digging it."""
    COLLECT_DIAMOND = "collect diamond"
    """Going to a diamond and digging it."""
    DRINK = "drink"
    """Going to water and drinking."""
    EAT_COW = "eat cow"
    """Hunting a cow."""
    FIGHT_ZOMBIE = "fight zombie"
    """Facing or chasing a zombie."""
    FIGHT_SKELETON = "fight skeleton"
    """Facing or chasing a skeleton."""
    AVOID_ARROW = "avoid arrow"
    """Stepping out of the way of an arrow, or stopping it with a stone."""
    BUILD_SHELTER = "build shelter"
    """Walking to a place that can be closed, and closing it."""
    SLEEP = "sleep"
    """Asleep, or about to be."""
    REST = "rest"
    """Waiting in a closed place for health or for the day."""
    EXPLORE = "explore"
    """Walking to where the map is unknown."""
    FIND_WATER = "find water"
    """Exploring because thirst presses."""
    FIND_FOOD = "find food"
    """Exploring because hunger presses."""
