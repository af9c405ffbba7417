"""The expert's memory of the views it received, and its conclusions from them.

It tracks its position by counting its own steps: a step succeeds exactly when the cell ahead
was free in the view before. It has no access to the world.
"""

from dataclasses import dataclass

from assay.crafter.players.expert.terrain import (
    ACROSS,
    ARROW,
    CELLS,
    CORNER,
    COW,
    DO,
    GRASS,
    HIGH,
    LAVA,
    MIDDLE,
    MOVE,
    NOOP,
    OFFSETS,
    OPEN,
    PATH,
    PLACE_FURNACE,
    PLACE_PLANT,
    PLACE_STONE,
    PLANT,
    SKELETON,
    START,
    STEPS,
    STONE,
    STRIDE,
    UNKNOWN,
    WATER,
    ZOMBIE,
)
from assay.crafter.view import View

_GROWS_WITHIN = 18
"""Plants at this distance from the player or farther do not grow."""
_KILL_ACHIEVEMENTS = {COW: "eat_cow", ZOMBIE: "defeat_zombie", SKELETON: "defeat_skeleton"}
_AREA_HALF = (ACROSS // 2, HIGH // 2)


@dataclass(slots=True)
class Plant:
    """A plant placed by the expert."""

    grown: int = 0
    """Estimated number of steps it has grown."""
    ripe: bool = False
    """Whether it looked ripe when last seen."""


class Memory:
    """The map so far, the visible things, and the achievements."""

    def __init__(self) -> None:
        self.ground = bytearray([UNKNOWN]) * CELLS
        """The material of each cell when it was last seen."""
        self.here = START
        self.facing = 3
        """Direction the player faces, an index into STEPS."""
        self.ahead = START + STEPS[3]
        self.things: dict[int, int] = {}
        """Visible things by cell, without the player."""
        self.arrows: dict[int, int] = {}
        """Direction of each visible arrow, by cell."""
        self.cows: dict[int, int] = {}
        """Step at which each cow was last seen, by cell."""
        self.skeletons: dict[int, int] = {}
        """Step at which each skeleton was last seen, by cell."""
        self.plants: dict[int, Plant] = {}
        """The expert's own plants by cell."""
        self.done: set[str] = set()
        """Achievements inferred from the views."""
        self.known_achievements: frozenset[str] | None = None
        """Achievements at the next view, if given from outside."""
        self.inventory: dict[str, int] = {}
        self.step = 0
        self.daylight = 1.0
        self.sleeping = False
        self.zombie_near = False
        """Whether a zombie is near enough to change plans."""
        self.visited: dict[int, int] = {}
        """Step of the last visit to each block of 8x8 cells."""
        self.action = NOOP
        """The last action that was carried out."""
        self.could_act = True
        """Whether the player was awake to carry it out."""

    def record_action(self, action: int) -> None:
        """Record the action that is carried out next."""
        self.action = action

    def update(self, view: View) -> None:
        """Update the memory from a view."""
        action, ahead_before = self.action, self.ahead
        before = self.inventory
        if self.could_act and MOVE <= action < MOVE + 4:
            target = self.here + STEPS[action - MOVE]
            ground = self.ground[target]
            if target not in self.things and (OPEN[ground] or ground == LAVA):
                self.here = target
        here = self.here
        self.inventory = inventory = view.inventory
        self.step = view.step
        self.daylight = view.daylight
        self.visited[self.find_block(here)] = view.step
        self._update_map(view)
        attacked = self.things.get(ahead_before) if action == DO else None
        things_before = self.things
        self._update_things(view)
        if before:
            self._infer_changes(view, before, action, ahead_before, attacked, things_before)
        if self.known_achievements is not None:
            self.done, self.known_achievements = set(self.known_achievements), None
        self.sleeping = view.sleeping
        self.could_act = not view.sleeping or inventory["energy"] >= 9
        for cell, plant in self.plants.items():
            x, y = divmod(cell, STRIDE)
            if abs(x - here // STRIDE) + abs(y - here % STRIDE) < _GROWS_WITHIN:
                plant.grown += 1

    def _update_map(self, view: View) -> None:
        """Copy the visible materials to the map."""
        seen = view.materials.tobytes()
        ground, left = self.ground, self.here + CORNER
        for i in range(0, ACROSS * HIGH, HIGH):
            ground[left : left + HIGH] = seen[i : i + HIGH]
            left += STRIDE

    def _update_things(self, view: View) -> None:
        """Record the visible things."""
        objects = view.objects.tobytes()
        details = view.details.tobytes()
        here = self.here
        self.facing = max(details[MIDDLE], 1) - 1
        self.ahead = here + STEPS[self.facing]
        self.arrows = {}
        self.things = things = {
            here + OFFSETS[k]: thing for k, thing in enumerate(objects) if thing and k != MIDDLE
        }
        for remembered, kind in ((self.cows, COW), (self.skeletons, SKELETON)):
            if remembered:
                gone = [c for c in remembered if things.get(c) != kind and self.in_view(c)]
                for cell in gone:
                    del remembered[cell]
        self.zombie_near = False
        for cell, thing in things.items():
            if thing == ZOMBIE:
                self.zombie_near = self.zombie_near or self.distance(cell) <= 6
            elif thing == COW:
                self.cows[cell] = self.step
            elif thing == SKELETON:
                self.skeletons[cell] = self.step
            elif thing == ARROW:
                k = self._view_index(cell)
                self.arrows[cell] = max(details[k], 1) - 1
        if self.plants:
            for cell in list(self.plants):
                if self.in_view(cell):
                    if things.get(cell) != PLANT:
                        del self.plants[cell]
                    else:
                        self.plants[cell].ripe = details[self._view_index(cell)] == 1

    @staticmethod
    def find_block(cell: int) -> int:
        """Return the block of 8x8 cells that contains a cell."""
        return cell // STRIDE // 8 * STRIDE + cell % STRIDE // 8

    def in_view(self, cell: int) -> bool:
        """Return whether a cell is in the current view."""
        x, y = divmod(cell, STRIDE)
        here_x, here_y = divmod(self.here, STRIDE)
        return abs(x - here_x) <= _AREA_HALF[0] and abs(y - here_y) <= _AREA_HALF[1]

    def distance(self, cell: int) -> int:
        """Return the Manhattan distance from the player to a cell."""
        x, y = divmod(cell, STRIDE)
        here_x, here_y = divmod(self.here, STRIDE)
        return abs(x - here_x) + abs(y - here_y)

    def _view_index(self, cell: int) -> int:
        x, y = divmod(cell, STRIDE)
        here_x, here_y = divmod(self.here, STRIDE)
        return (x - here_x + _AREA_HALF[0]) * HIGH + y - here_y + _AREA_HALF[1]

    def _infer_changes(
        self,
        view: View,
        before: dict[str, int],
        action: int,
        ahead: int,
        attacked: int | None,
        things_before: dict[int, int],
    ) -> None:
        """Infer achievements and plants from the changes since the last view."""
        now, done = view.inventory, self.done
        for item in ("sapling", "wood", "stone", "coal", "iron", "diamond", "drink"):
            if now[item] > before[item]:
                done.add(f"collect_{item}")
        if self.sleeping and not view.sleeping and now["energy"] >= 9:
            done.add("wake_up")
        if attacked in _KILL_ACHIEVEMENTS and self._was_killed(ahead, attacked, things_before):
            done.add(_KILL_ACHIEVEMENTS[attacked])
            self.cows.pop(ahead, None)
        elif attacked == PLANT and now["food"] > before["food"]:
            done.add("eat_plant")
            if ahead in self.plants:
                self.plants[ahead].grown = 0
        elif attacked is None and action == DO and self.ground[ahead] == WATER:
            done.add("collect_drink")
        if action == PLACE_PLANT and now["sapling"] < before["sapling"]:
            done.add("place_plant")
            self.plants[ahead] = Plant()
        elif action == PLACE_STONE and now["stone"] < before["stone"]:
            done.add("place_stone")
        elif action == PLACE_FURNACE and now["stone"] < before["stone"]:
            done.add("place_furnace")

    def _was_killed(self, cell: int, kind: int, things_before: dict[int, int]) -> bool:
        """Return whether an attacked creature is gone from its cell and all adjacent ones."""
        cells = [cell, *(cell + step for step in STEPS)]
        return sum(self.things.get(c) == kind for c in cells) < sum(
            things_before.get(c) == kind for c in cells
        )

    def is_free(self, cell: int) -> bool:
        """Return whether the player can walk onto a cell unharmed."""
        return bool(OPEN[self.ground[cell]]) and cell not in self.things

    def is_near(self, material: int) -> bool:
        """Return whether a material is within one cell, near enough for making tools."""
        ground, here = self.ground, self.here
        for column in (here - STRIDE, here, here + STRIDE):
            if material in ground[column - 1 : column + 2]:
                return True
        return False

    def has_seen(self, material: int) -> bool:
        """Return whether the map contains a material."""
        return material in self.ground

    def grass_around(self, cell: int) -> int:
        """Return how many visible cells from a position are grass, where zombies appear."""
        left, ground = cell + CORNER, self.ground
        return sum(
            ground.count(GRASS, at, at + HIGH)
            for at in range(left, left + ACROSS * STRIDE, STRIDE)
        )

    def rock_around(self, cell: int) -> int:
        """Return how many visible cells from a position are known stone or path."""
        left, ground = cell + CORNER, self.ground
        return sum(
            ground.count(STONE, at, at + HIGH) + ground.count(PATH, at, at + HIGH)
            for at in range(left, left + ACROSS * STRIDE, STRIDE)
        )
