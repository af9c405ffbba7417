"""The rules of Crafter as data: names, numbers, recipes, published success rates.

Ids follow the order of the reference package (`crafter` 1.8.3): an id is a
position in one of the tuples below. A test compares every table with the data
file of the installed reference, so the two cannot drift apart. The compiled
engine, the difficulty table and every text a model reads derive from here.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

TASK: Final = "crafter/"
"""What the name of a task in this world begins with; its difficulty follows."""

WORLD_LENGTH: Final = 10_000
"""After so many steps a world ends an episode by itself, unless it is made otherwise."""

AREA: Final = 64
"""A world is AREA x AREA cells; positions are (x, y), x to the right, y down."""

CHUNK: Final = 12
"""Creatures are balanced per chunk of CHUNK x CHUNK cells (the last ones are cut)."""

VIEW: Final = (9, 7)
"""What a player sees: this many cells wide and high, with the player in the middle."""

ACTIONS: Final = (
    "noop",
    "move_left",
    "move_right",
    "move_up",
    "move_down",
    "do",
    "sleep",
    "place_stone",
    "place_table",
    "place_furnace",
    "place_plant",
    "make_wood_pickaxe",
    "make_stone_pickaxe",
    "make_iron_pickaxe",
    "make_wood_sword",
    "make_stone_sword",
    "make_iron_sword",
)
"""What a player can do; an action is an index into this tuple or one of its names."""

MATERIALS: Final = (
    "outside",
    "water",
    "grass",
    "stone",
    "path",
    "sand",
    "tree",
    "lava",
    "coal",
    "iron",
    "diamond",
    "table",
    "furnace",
)
"""What a cell is made of; id 0 stands for everything beyond the edge."""

OBJECTS: Final = ("player", "cow", "zombie", "skeleton", "arrow", "plant")
"""What can stand on a cell; in maps their ids go on where MATERIALS end (13 to 18)."""

WALKABLE: Final = ("grass", "path", "sand")
"""Where creatures walk. The player also walks into lava (and dies); arrows fly over
lava and water."""

VITALS: Final = ("health", "food", "drink", "energy")
"""The items that keep a player alive; they start full."""

ITEMS: Final = (
    *VITALS,
    "sapling",
    "wood",
    "stone",
    "coal",
    "iron",
    "diamond",
    "wood_pickaxe",
    "stone_pickaxe",
    "iron_pickaxe",
    "wood_sword",
    "stone_sword",
    "iron_sword",
)
"""What an inventory counts, vitals first."""

MAX_ITEM: Final = 9
"""No count in the inventory goes beyond this."""

ACHIEVEMENTS: Final = (
    "collect_coal",
    "collect_diamond",
    "collect_drink",
    "collect_iron",
    "collect_sapling",
    "collect_stone",
    "collect_wood",
    "defeat_skeleton",
    "defeat_zombie",
    "eat_cow",
    "eat_plant",
    "make_iron_pickaxe",
    "make_iron_sword",
    "make_stone_pickaxe",
    "make_stone_sword",
    "make_wood_pickaxe",
    "make_wood_sword",
    "place_furnace",
    "place_plant",
    "place_stone",
    "place_table",
    "wake_up",
)
"""The 22 achievements; the first time of each is worth a reward of 1."""


class Collect(NamedTuple):
    """What `do` on a material needs, gives and leaves behind."""

    item: str
    tool: str | None
    leaves: str
    chance: float


class Place(NamedTuple):
    """What a `place_` action uses up, and the materials it can be put on."""

    uses: MappingProxyType[str, int]
    where: tuple[str, ...]


class Make(NamedTuple):
    """What a `make_` action uses up, and what must stand within one cell."""

    uses: MappingProxyType[str, int]
    nearby: tuple[str, ...]


class Creature(NamedTuple):
    """How much a creature can take, and what one of its blows costs the player."""

    health: int
    damage: int
    damage_asleep: int


COLLECT: Final = MappingProxyType(
    {
        "tree": Collect("wood", None, "grass", 1.0),
        "stone": Collect("stone", "wood_pickaxe", "path", 1.0),
        "coal": Collect("coal", "wood_pickaxe", "path", 1.0),
        "iron": Collect("iron", "stone_pickaxe", "path", 1.0),
        "diamond": Collect("diamond", "iron_pickaxe", "path", 1.0),
        "water": Collect("drink", None, "water", 1.0),
        "grass": Collect("sapling", None, "grass", 0.1),
    }
)

PLACE: Final = MappingProxyType(
    {
        "stone": Place(
            MappingProxyType({"stone": 1}), ("grass", "sand", "path", "water", "lava")
        ),
        "table": Place(MappingProxyType({"wood": 2}), ("grass", "sand", "path")),
        "furnace": Place(MappingProxyType({"stone": 4}), ("grass", "sand", "path")),
        "plant": Place(MappingProxyType({"sapling": 1}), ("grass",)),
    }
)

MAKE: Final = MappingProxyType(
    {
        "wood_pickaxe": Make(MappingProxyType({"wood": 1}), ("table",)),
        "stone_pickaxe": Make(MappingProxyType({"wood": 1, "stone": 1}), ("table",)),
        "iron_pickaxe": Make(
            MappingProxyType({"wood": 1, "coal": 1, "iron": 1}), ("table", "furnace")
        ),
        "wood_sword": Make(MappingProxyType({"wood": 1}), ("table",)),
        "stone_sword": Make(MappingProxyType({"wood": 1, "stone": 1}), ("table",)),
        "iron_sword": Make(
            MappingProxyType({"wood": 1, "coal": 1, "iron": 1}), ("table", "furnace")
        ),
    }
)

CREATURES: Final = MappingProxyType(
    {
        "cow": Creature(health=3, damage=0, damage_asleep=0),
        "zombie": Creature(health=5, damage=2, damage_asleep=7),
        "skeleton": Creature(health=3, damage=2, damage_asleep=2),
    }
)

DAMAGE: Final = MappingProxyType(
    {"iron_sword": 5, "stone_sword": 3, "wood_sword": 2, "bare hands": 1}
)
"""What a blow of the player takes from a creature, best weapon first."""

FOOD: Final = MappingProxyType({"cow": 6, "plant": 4})
"""How much food a dead cow and a ripe plant give."""

WEAR: Final = MappingProxyType({"food": 25, "drink": 20, "energy": 30})
"""One of each is lost after more steps than this; in sleep food and drink last twice as
long and energy does not fall."""

REST_AFTER: Final = 10
"""A sleeper gains one energy after more steps than this."""

RECOVER_AFTER: Final = 25
"""Who lacks nothing gains one health after more steps than this, in sleep twice as fast."""

SUFFER_AFTER: Final = 15
"""Who lacks food, drink or energy loses one health after more steps than this, in sleep
half as fast."""

RIPE_AFTER: Final = 300
"""A plant can be eaten once it has grown for more steps than this."""

DEATH_CAUSES: Final = ("zombie", "arrow", "lava", "thirst", "hunger", "fatigue")
"""What a player can die of, as the engine names it."""


class NoEffect(StrEnum):
    """Why an action changed nothing. Waiting, sleeping and bad luck are not listed."""

    BLOCKED = "blocked"
    """A move that neither moved nor turned the player."""
    NOTHING_THERE = "nothing_there"
    """`do` facing nothing that can be collected, fought or eaten."""
    NOT_RIPE = "not_ripe"
    """`do` facing a plant that is still growing."""
    NEEDS_TOOL = "needs_tool"
    """`do` facing a material that takes a better pickaxe."""
    NO_ROOM = "no_room"
    """A `place_` action facing a cell that is taken or of the wrong material."""
    NEEDS_NEARBY = "needs_nearby"
    """A `make_` action without the table or furnace it takes within one cell."""
    NEEDS_ITEMS = "needs_items"
    """A `place_` or `make_` action without what it uses up."""
    ASLEEP = "asleep"
    """An action other than noop and sleep that a sleeping player did not carry out."""


class Reference(NamedTuple):
    """Success rates that others measured, in whole episodes without a limit of turns."""

    name: str
    rates: Mapping[str, float]
    episodes: int


def _rates(*percents: float) -> Mapping[str, float]:
    return MappingProxyType(
        {name: value / 100 for name, value in zip(ACHIEVEMENTS, percents, strict=True)}
    )


# Hafner, "Benchmarking the spectrum of agent capabilities", 2021, from the data published
# with it: 5 people with 20 episodes each, and 5 seeds of the random policy.
HUMAN: Final = Reference(
    "human",
    _rates(
        *(86, 12, 92, 53, 67, 100, 100, 31, 84, 89, 8),
        *(26, 22, 78, 78, 100, 45, 32, 24, 90, 100, 73),
    ),
    100,
)
RANDOM: Final = Reference(
    "random",
    _rates(
        *(0, 0, 9.32, 0, 50.19, 0.01, 24.38, 0.02, 0.14, 0.38, 0.01),
        *(0, 0, 0, 0, 0.32, 0.32, 0, 44.61, 0.01, 4.36, 93.6),
    ),
    29_784,
)
REFERENCES: Final = (HUMAN, RANDOM)

EASIEST_FIRST: Final = tuple(sorted(ACHIEVEMENTS, key=lambda name: (-HUMAN.rates[name], name)))
"""The achievements, the easiest for people first."""
