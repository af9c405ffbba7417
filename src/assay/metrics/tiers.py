"""How hard achievements are held to be, as data. The tiers are those of the original hooks."""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = ["TIERS", "Tier"]


class Tier(StrEnum):
    """Each achievement belongs to one of these."""

    EASY = "easy"
    """What a newcomer does by walking about."""
    MEDIUM = "medium"
    """What takes a tool, a table or a hunt."""
    HARD = "hard"
    """What takes a plan, or a fight."""


_NAMES = {
    Tier.EASY: (
        *("collect_wood", "collect_stone", "collect_sapling", "collect_drink"),
        *("place_stone", "place_table", "wake_up", "eat_plant"),
    ),
    Tier.MEDIUM: (
        *("make_wood_pickaxe", "make_wood_sword", "place_furnace", "place_plant"),
        *("collect_coal", "collect_iron", "eat_cow"),
    ),
    Tier.HARD: (
        *("make_stone_pickaxe", "make_stone_sword", "make_iron_pickaxe", "make_iron_sword"),
        *("collect_diamond", "defeat_skeleton", "defeat_zombie"),
    ),
}

TIERS: Final = MappingProxyType(
    {name: tier for tier, names in _NAMES.items() for name in names}
)
"""The tier of each achievement."""
