"""World difficulty: the parameters of world generation and creature spawning."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from assay.core.text import unknown_name
from assay.errors import UsageError


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Parameters that make a world easy or hard. The defaults are those of the reference game.

    Chances are between 0 and 1; radii and distances are in cells. Parameters added later have
    `metadata={"added": True}`, so that runs which do not set them keep their ids.
    """

    start_radius: float = 4.0
    """Radius of the meadow around the start; noise moves its edge by about two cells."""
    tree_chance: float = 0.2
    """Chance of a tree on a woodland cell."""
    coal_chance: float = 0.15
    """Chance of coal on a cell in a coal field."""
    iron_chance: float = 0.25
    """Chance of iron on a cell in an iron field."""
    diamond_chance: float = 0.006
    """Chance of a diamond on a cell deep in a mountain."""
    lava_level: float = 0.35
    """Noise above this turns the inside of mountains into lava; higher means less lava."""
    cow_chance: float = 0.015
    """Chance of a cow on a grass cell when the world is generated."""
    zombie_chance: float = 0.007
    """Chance of a zombie on a cell when the world is generated."""
    zombie_clear_radius: float = 10.0
    """Minimum distance between the start and a zombie when the world is generated."""
    skeleton_chance: float = 0.05
    """Chance of a skeleton on a tunnel cell when the world is generated."""
    cow_spawn_chance: float = 0.01
    """Chance, every tenth step, that a cow spawns in a chunk without one."""
    zombie_spawn_chance: float = 0.3
    """Chance, every tenth step, that a zombie spawns in a chunk with too few of them."""
    zombie_spawn_distance: float = 6.0
    """Minimum distance between the player and a spawning zombie."""
    zombies_by_night: float = 3.5
    """Zombies that a grassland chunk keeps in the deepest night, rounded down."""
    zombies_by_day: float = 0.5
    """Zombies that a grassland chunk keeps at noon, rounded down; daylight interpolates."""
    skeleton_spawn_chance: float = 0.1
    """Chance, every tenth step, that a skeleton spawns in a tunnel chunk without one."""
    skeletons_at_most: float = 2.0
    """Number of skeletons in a chunk above which they despawn."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            low, high = allowed_range(field.name)
            number = _to_float(value)
            if not low <= number <= high:
                raise UsageError(
                    f"difficulty: {field.name} = {value!r} is not allowed; "
                    f"give a number from {low:g} to {high:g}"
                )
            # Adding zero turns -0.0 into 0.0, so that equal difficulties have equal bytes.
            object.__setattr__(self, field.name, number + 0.0)


def _to_float(value: object) -> float:
    """Convert to float; a value that is not a number becomes NaN, which no range allows."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def allowed_range(name: str) -> tuple[float, float]:
    """Return the minimum and maximum of a difficulty parameter."""
    if name.endswith("_chance"):
        return 0.0, 1.0
    if name == "start_radius":  # below 2, noise could put the player into rock
        return 2.0, 64.0
    if name == "lava_level":
        return 0.0, 2.0
    return (0.0, 64.0) if name.endswith(("_radius", "_distance")) else (0.0, 100.0)


DIFFICULTIES: Final = MappingProxyType(
    {
        "classic": Difficulty(),
        "easy": Difficulty(
            start_radius=6.0,
            tree_chance=0.3,
            coal_chance=0.25,
            iron_chance=0.4,
            diamond_chance=0.02,
            lava_level=0.5,
            cow_chance=0.03,
            zombie_chance=0.002,
            zombie_clear_radius=16.0,
            skeleton_chance=0.02,
            cow_spawn_chance=0.03,
            zombie_spawn_chance=0.1,
            zombie_spawn_distance=8.0,
            zombies_by_night=2.5,
            zombies_by_day=0.0,
            skeleton_spawn_chance=0.05,
            skeletons_at_most=1.0,
        ),
        "medium": Difficulty(
            start_radius=5.0,
            tree_chance=0.25,
            coal_chance=0.2,
            iron_chance=0.3,
            diamond_chance=0.01,
            lava_level=0.4,
            cow_chance=0.02,
            zombie_chance=0.004,
            zombie_clear_radius=12.0,
            skeleton_chance=0.035,
            cow_spawn_chance=0.02,
            zombie_spawn_chance=0.2,
            zombies_by_night=3.0,
            zombies_by_day=0.0,
            skeleton_spawn_chance=0.08,
        ),
        "hard": Difficulty(
            start_radius=3.0,
            tree_chance=0.12,
            coal_chance=0.1,
            iron_chance=0.15,
            diamond_chance=0.003,
            lava_level=0.3,
            cow_chance=0.008,
            zombie_chance=0.014,
            zombie_clear_radius=6.0,
            skeleton_chance=0.1,
            cow_spawn_chance=0.005,
            zombie_spawn_chance=0.5,
            zombie_spawn_distance=5.0,
            zombies_by_night=5.5,
            zombies_by_day=1.5,
            skeleton_spawn_chance=0.2,
            skeletons_at_most=4.0,
        ),
    }
)
"""Named difficulties; `classic` is the reference game."""


def resolve_difficulty(choice: object) -> Difficulty:
    """Return a difficulty given by name, by instance, or as changes to `classic`."""
    if isinstance(choice, Difficulty):
        return choice
    if isinstance(choice, Mapping):
        known = [field.name for field in dataclasses.fields(Difficulty)]
        for name in choice:
            if name not in known:
                raise UsageError(f"difficulty: {unknown_name('parameter', str(name), known)}")
        return Difficulty(**choice)
    if isinstance(choice, str) and choice in DIFFICULTIES:
        return DIFFICULTIES[choice]
    message = unknown_name("difficulty", str(choice), DIFFICULTIES)
    raise UsageError(f"{message}; or give a table of parameters (see docs/crafter.md)")
