"""What the expert would see after an action, if nothing moved but the player.

Made from the memory and the rules alone. Cells that were never seen stay unknown, creatures
stay where they are, and hunger, thirst and chance are left out.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.crafter import View
from assay.crafter.rules import ACTIONS, COLLECT, FOOD, MAKE, MATERIALS, MAX_ITEM, PLACE
from assay.players.expert.memory import Memory
from assay.players.expert.terrain import (
    ACROSS,
    CORNER,
    COW,
    DO,
    HIGH,
    MIDDLE,
    MOVE,
    PLANT,
    PLAYER,
    SKELETON,
    SLEEP,
    STEPS,
    STRIDE,
)

__all__ = ["Foreseen", "foresee"]


_COLLECT: Final = {MATERIALS.index(name): rule for name, rule in COLLECT.items()}
_ROOM: Final = {
    name: tuple(MATERIALS.index(material) for material in rule.where)
    for name, rule in PLACE.items()
}
"""The materials that each thing can be placed on."""


class Foreseen(NamedTuple):
    """What is expected of an action."""

    view: View
    """The next view; materials that are not known are UNKNOWN."""
    here: int
    """Where the player is then."""


def foresee(memory: Memory, action: int, *, stays: bool = False) -> Foreseen:
    """The next view after an action; with `stays` a move only turns the player."""
    scene = _Scene(memory)
    name = ACTIONS[action]
    if scene.sleeping:
        pass
    elif MOVE <= action < MOVE + len(STEPS):
        scene.move(action - MOVE, stays)
    elif action == DO:
        scene.use()
    elif action == SLEEP:
        scene.sleeping = scene.inventory["energy"] < MAX_ITEM
    elif name.startswith("place_"):
        scene.place(name.removeprefix("place_"))
    elif name.startswith("make_"):
        scene.make(name.removeprefix("make_"))
    return Foreseen(scene.view(), scene.here)


class _Scene:
    """The player and what it knows around it, for one action."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.here, self.facing = memory.here, memory.facing
        self.inventory = dict(memory.inventory)
        self.sleeping = memory.sleeping and not memory.could_act
        self.things = (
            dict.fromkeys(memory.cows, COW)
            | dict.fromkeys(memory.skeletons, SKELETON)
            | dict.fromkeys(memory.plants, PLANT)
            | memory.things
        )
        self.ripe = {cell for cell, plant in memory.plants.items() if plant.ripe}
        self.ahead = memory.ground[memory.ahead]
        """The material ahead of where the player was."""

    def move(self, direction: int, stays: bool) -> None:
        self.facing = direction
        if not stays and self.memory.free(self.here + STEPS[direction]):
            self.here += STEPS[direction]

    def use(self) -> None:
        inventory, ahead = self.inventory, self.memory.ahead
        if ahead in self.ripe:
            inventory["food"] = min(inventory["food"] + FOOD["plant"], MAX_ITEM)
            self.ripe.discard(ahead)
        rule = _COLLECT.get(self.ahead)
        if ahead in self.memory.things or rule is None or rule.chance < 1:
            return
        if rule.tool is None or inventory[rule.tool]:
            inventory[rule.item] = min(inventory[rule.item] + 1, MAX_ITEM)
            self.ahead = MATERIALS.index(rule.leaves)

    def place(self, name: str) -> None:
        rule, ahead = PLACE[name], self.memory.ahead
        if ahead in self.memory.things or self.ahead not in _ROOM[name]:
            return
        if not _spend(self.inventory, rule.uses):
            return
        if name == "plant":
            self.things[ahead] = PLANT
        else:
            self.ahead = MATERIALS.index(name)

    def make(self, name: str) -> None:
        if _spend(self.inventory, MAKE[name].uses):
            self.inventory[name] = min(self.inventory[name] + 1, MAX_ITEM)

    def view(self) -> View:
        materials = _window(self.memory, self.here)
        materials[_place_in(self.memory.ahead, self.here)] = self.ahead
        objects, details = bytearray(ACROSS * HIGH), bytearray(ACROSS * HIGH)
        for cell, thing in self.things.items():
            k = _place_in(cell, self.here)
            if k >= 0:
                objects[k], details[k] = thing, cell in self.ripe
        objects[MIDDLE], details[MIDDLE] = PLAYER, self.facing + 1
        return View(
            materials=_plane(materials),
            objects=_plane(objects),
            details=_plane(details),
            inventory=self.inventory,
            sleeping=self.sleeping,
            daylight=self.memory.daylight,
            step=self.memory.step + 1,
        )


def _spend(inventory: dict[str, int], uses: Mapping[str, int]) -> bool:
    if any(inventory[item] < count for item, count in uses.items()):
        return False
    for item, count in uses.items():
        inventory[item] -= count
    return True


def _window(memory: Memory, here: int) -> bytearray:
    """The materials in view from a cell, as far as they are known."""
    left, ground = here + CORNER, memory.ground
    columns = range(left, left + ACROSS * STRIDE, STRIDE)
    return bytearray(b"".join([ground[at : at + HIGH] for at in columns]))


def _place_in(cell: int, here: int) -> int:
    """Where a cell is among those in view from another one; -1 if it is not."""
    x, y = divmod(cell, STRIDE)
    here_x, here_y = divmod(here, STRIDE)
    x, y = x - here_x + ACROSS // 2, y - here_y + HIGH // 2
    return x * HIGH + y if 0 <= x < ACROSS and 0 <= y < HIGH else -1


def _plane(cells: bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(bytes(cells), np.uint8).reshape(ACROSS, HIGH)
