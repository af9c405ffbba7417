"""The rules of Crafter as data: names, numbers, recipes, published success rates.

An id is a position in one of the tuples below, in the order of the reference package (`crafter`
1.8.3). A test compares every table with the data file of the installed reference, so that they
cannot diverge. The compiled engine, the difficulty table and every text shown to models derive
from this module.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

TASK: Final = "crafter/"
"""Prefix of a Crafter task name; the difficulty follows."""

WORLD_LENGTH: Final = 10_000
"""Default length of an episode in steps."""

AREA: Final = 64
"""A world is AREA x AREA cells; positions are (x, y), x to the right, y down."""

CHUNK: Final = 12
"""Creature counts are balanced per chunk of CHUNK x CHUNK cells; edge chunks are smaller."""

VIEW: Final = (9, 7)
"""Width and height of the player's view in cells; the player is in the middle."""

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
"""The player's actions; an action is an index into this tuple or one of its names."""

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
"""Materials of cells; id 0 is everything beyond the edge of the world."""

OBJECTS: Final = ("player", "cow", "zombie", "skeleton", "arrow", "plant")
"""Objects that can be on a cell; in maps their ids follow those of MATERIALS (13 to 18)."""

WALKABLE: Final = ("grass", "path", "sand")
"""Materials that creatures can walk on. The player can also walk into lava, and dies; arrows
fly over lava and water."""

VITALS: Final = ("health", "food", "drink", "energy")
"""Items that keep the player alive; they start at their maximum."""

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
"""Items counted in the inventory, vitals first."""

MAX_ITEM: Final = 9
"""Maximum count of each item in the inventory."""

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
"""The 22 achievements; unlocking one for the first time gives a reward of 1."""


class Collect(NamedTuple):
    """Rule for `do` on a material: item gained, tool required, material left, chance."""

    item: str
    tool: str | None
    leaves: str
    chance: float


class PlaceRule(NamedTuple):
    """Rule for a `place_` action: the items it uses up, and where it can be placed."""

    uses: MappingProxyType[str, int]
    where: tuple[str, ...]


class Make(NamedTuple):
    """Rule for a `make_` action: the items it uses up, and what must be within one cell."""

    uses: MappingProxyType[str, int]
    nearby: tuple[str, ...]


class Creature(NamedTuple):
    """Health of a creature, and the damage of its attack to an awake and a sleeping player."""

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
        "stone": PlaceRule(
            MappingProxyType({"stone": 1}), ("grass", "sand", "path", "water", "lava")
        ),
        "table": PlaceRule(MappingProxyType({"wood": 2}), ("grass", "sand", "path")),
        "furnace": PlaceRule(MappingProxyType({"stone": 4}), ("grass", "sand", "path")),
        "plant": PlaceRule(MappingProxyType({"sapling": 1}), ("grass",)),
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
"""Damage of the player's attack, best weapon first."""

FOOD: Final = MappingProxyType({"cow": 6, "plant": 4})
"""Food from a killed cow and from a ripe plant."""

WEAR: Final = MappingProxyType({"food": 25, "drink": 20, "energy": 30})
"""After more steps than this, one of the item is lost. During sleep food and drink last twice
as long, and energy does not fall."""

REST_AFTER: Final = 10
"""After more steps of sleep than this, energy increases by one."""

RECOVER_AFTER: Final = 25
"""After more steps than this with no vital at 0, health grows by one; asleep, twice as fast."""

SUFFER_AFTER: Final = 15
"""After more steps than this with food, drink or energy at 0, health falls by one; asleep, half
as fast."""

RIPE_AFTER: Final = 300
"""After more steps than this, a plant is ripe."""

DEATH_CAUSES: Final = ("zombie", "arrow", "lava", "thirst", "hunger", "fatigue")
"""Possible causes of death."""


class NoEffect(StrEnum):
    """Reasons why an action changed nothing. Waiting, sleeping and bad luck do not count."""

    BLOCKED = "blocked"
    """A move that neither moved nor turned the player."""
    NOTHING_THERE = "nothing_there"
    """`do` facing a cell with nothing to collect, fight or eat."""
    NOT_RIPE = "not_ripe"
    """`do` facing a plant that is still growing."""
    NEEDS_TOOL = "needs_tool"
    """`do` facing a material that requires a better pickaxe."""
    NO_ROOM = "no_room"
    """A `place_` action facing an occupied cell or the wrong material."""
    NEEDS_NEARBY = "needs_nearby"
    """A `make_` action without the required table or furnace within one cell."""
    NEEDS_ITEMS = "needs_items"
    """A `place_` or `make_` action without the items it uses up."""
    ASLEEP = "asleep"
    """An action other than noop and sleep, ignored because the player is asleep."""


class Reference(NamedTuple):
    """Published success rates, over whole episodes without a turn limit."""

    name: str
    rates: Mapping[str, float]
    episodes: int


def _to_rates(*percents: float) -> Mapping[str, float]:
    return MappingProxyType(
        {name: value / 100 for name, value in zip(ACHIEVEMENTS, percents, strict=True)}
    )


# Hafner, "Benchmarking the spectrum of agent capabilities", 2021, from the data published
# with it: 5 people with 20 episodes each, and 5 seeds of the random policy.
HUMAN: Final = Reference(
    "human",
    _to_rates(
        *(86, 12, 92, 53, 67, 100, 100, 31, 84, 89, 8),
        *(26, 22, 78, 78, 100, 45, 32, 24, 90, 100, 73),
    ),
    100,
)
RANDOM: Final = Reference(
    "random",
    _to_rates(
        *(0, 0, 9.32, 0, 50.19, 0.01, 24.38, 0.02, 0.14, 0.38, 0.01),
        *(0, 0, 0, 0, 0.32, 0.32, 0, 44.61, 0.01, 4.36, 93.6),
    ),
    29_784,
)
REFERENCES: Final = (HUMAN, RANDOM)

EASIEST_FIRST: Final = tuple(sorted(ACHIEVEMENTS, key=lambda name: (-HUMAN.rates[name], name)))
"""Achievements, those easiest for humans first."""
