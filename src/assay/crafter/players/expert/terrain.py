"""Ids, directions, cells and goals shared by the expert's modules. No behaviour.

A cell is one integer, `x * STRIDE + y`, in a square large enough for every world and every
start position. The cell where the expert starts is `START`.
"""

from enum import StrEnum
from typing import Final

from assay.crafter.rules import ACTIONS, COLLECT, MATERIALS, OBJECTS, VIEW, WALKABLE

STRIDE: Final = 144
START: Final = STRIDE // 2 * (STRIDE + 1)
CELLS: Final = STRIDE * STRIDE
UNKNOWN: Final = 255
"""Value in the map for a cell that was never seen."""

LEFT, RIGHT, UP, DOWN = range(4)
STEPS: Final = (-STRIDE, STRIDE, -1, 1)
"""Change of a cell for a step in each direction."""

ACROSS, HIGH = VIEW
MIDDLE: Final = ACROSS // 2 * HIGH + HIGH // 2
"""Index of the player in a flattened view."""
OFFSETS: Final = tuple(
    (k // HIGH - ACROSS // 2) * STRIDE + k % HIGH - HIGH // 2 for k in range(ACROSS * HIGH)
)
"""Offset from the player to each cell of a flattened view."""
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


def make_table(*materials: int) -> bytes:
    """Return a set of materials as a table: `table[material]` is 1 for members, else 0."""
    return bytes(i in materials for i in range(256))


OPEN: Final = make_table(*(MATERIALS.index(name) for name in WALKABLE))
"""Materials that creatures and the player can walk on."""
DIGGABLE: Final = {
    MATERIALS.index(name): rule.tool for name, rule in COLLECT.items() if rule.leaves != name
}
"""Materials that `do` removes, with the required tool."""


class Goal(StrEnum):
    """Purpose of an action."""

    COLLECT_SAPLING = "collect sapling"
    """Searching grass for a sapling."""
    PLACE_PLANT = "place plant"
    """Planting a sapling."""
    FENCE_PLANT = "fence plant"
    """Building a fence around a plant, so that nothing eats it."""
    WAIT_FOR_PLANT = "wait for plant"
    """Staying near a plant, because it grows only then."""
    EAT_PLANT = "eat plant"
    """Going to a plant that is or should be ripe."""
    COLLECT_WOOD = "collect wood"
    """Cutting trees."""
    PLACE_TABLE = "place table"
    """Making room for a table and placing it."""
    GO_TO_TABLE = "go to table"
    """Walking to an existing table."""
    MAKE_WOOD_PICKAXE = "make wood pickaxe"
    MAKE_STONE_PICKAXE = "make stone pickaxe"
    MAKE_IRON_PICKAXE = "make iron pickaxe"
    MAKE_WOOD_SWORD = "make wood sword"
    MAKE_STONE_SWORD = "make stone sword"
    MAKE_IRON_SWORD = "make iron sword"
    COLLECT_STONE = "collect stone"
    """Digging for building material."""
    PLACE_STONE = "place stone"
    """Placing the first stone, for the achievement."""
    PLACE_FURNACE = "place furnace"
    """Making room for a furnace and placing it."""
    COLLECT_COAL = "collect coal"
    COLLECT_IRON = "collect iron"
    COLLECT_DIAMOND = "collect diamond"
    DRINK = "drink"
    EAT_COW = "eat cow"
    FIGHT_ZOMBIE = "fight zombie"
    """Attacking or chasing a zombie."""
    FIGHT_SKELETON = "fight skeleton"
    """Attacking or chasing a skeleton."""
    AVOID_ARROW = "avoid arrow"
    """Stepping out of the way of an arrow, or stopping it with a stone."""
    BUILD_SHELTER = "build shelter"
    """Walking to a place that can be closed, and closing it."""
    SLEEP = "sleep"
    """Asleep, or about to be."""
    REST = "rest"
    """Waiting in a closed place for health or for the day."""
    EXPLORE = "explore"
    """Walking to an unexplored part of the map."""
    FIND_WATER = "find water"
    """Exploring because of thirst."""
    FIND_FOOD = "find food"
    """Exploring because of hunger."""
