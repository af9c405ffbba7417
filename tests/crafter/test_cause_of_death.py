"""The cause of death, determined from the last observation."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assay.crafter import DIFFICULTIES, MATERIALS, OBJECTS, View, World
from assay.crafter.view import cause_of_death

pytestmark = pytest.mark.usefixtures("compiled_engine")

PEACE = replace(
    DIFFICULTIES["classic"],
    **{"zombie_chance": 0.0, "zombie_spawn_chance": 0.0, "zombies_by_night": 0.0},
    **{"zombies_by_day": 0.0, "skeleton_chance": 0.0, "skeleton_spawn_chance": 0.0},
    skeletons_at_most=0.0,
)
WELL = {"health": 0, "food": 5, "drink": 5, "energy": 5}


def seen(ground: str = "grass", **objects: tuple[int, int]) -> View:
    """The view of a dead player: its ground, and objects around it by position."""
    materials = np.full((9, 7), MATERIALS.index(ground), np.uint8)
    there = np.zeros((9, 7), np.uint8)
    for name, place in objects.items():
        there[place] = 13 + OBJECTS.index(name)
    return View(materials, there, np.zeros_like(there), dict(WELL), False, 1.0, 100)


@pytest.mark.parametrize(
    ("view", "health", "wants", "cause"),
    [
        (seen("lava"), 9, {}, "lava"),
        (seen(zombie=(4, 2)), 2, {}, "zombie"),
        (seen(zombie=(4, 2)), 1, {"food": 0}, "zombie"),
        (seen(zombie=(4, 2)), 2, {"food": 0, "health": 1}, "hunger"),
        (seen(), 2, {}, "zombie"),  # it vanished in the step it bit in
        (seen(zombie=(3, 2)), 2, {}, "zombie"),
        (seen("path", skeleton=(4, 0)), 2, {}, "arrow"),
        (seen("path"), 1, {}, "arrow"),
        (seen("sand", arrow=(7, 3)), 2, {}, "arrow"),
        (seen("path"), 1, {"drink": 0}, "thirst"),
        (seen(), 1, {"energy": 0}, "fatigue"),
        (seen(), 1, {"food": 0, "drink": 0}, "thirst"),
    ],
)
def test_last_observation_determines_the_cause_of_death(
    view: View, health: int, wants: dict[str, Any], cause: str
) -> None:
    view.inventory.update(wants)
    assert cause_of_death(view, {**WELL, "health": health}) == cause


def death(world: World, *actions: str) -> str:
    draw = random.Random(2)
    while not world.done:
        before = world.view().inventory
        world.step(draw.choice(actions))
    return cause_of_death(world.view(), before)


def test_all_causes_of_death_occur_in_real_worlds() -> None:
    assert death(World(43, "hard"), "noop") == "zombie"
    assert death(World(1, PEACE), "noop") == "thirst"
    moves = ("move_left", "move_right", "move_up", "move_down", "do")
    assert death(World(2, replace(PEACE, lava_level=0.0)), *moves) == "lava"
