"""What the expert remembers of the views it was given, and what it concludes from them.

It knows where it is by counting its own steps: a step succeeds exactly when the cell
ahead was free in the view before. It never sees the world itself.
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
"""Plants further away than this stand still."""
_FELLED = {COW: "eat_cow", ZOMBIE: "defeat_zombie", SKELETON: "defeat_skeleton"}
_AREA_HALF = (ACROSS // 2, HIGH // 2)


@dataclass(slots=True)
class Plant:
    """A plant the expert put into the ground."""

    grown: int = 0
    """For how many steps it has grown, as far as the expert can tell."""
    ripe: bool = False
    """Whether it looked ripe when it was last seen."""


class Memory:
    """The map so far, what stands in view, and what has been achieved."""

    def __init__(self) -> None:
        self.ground = bytearray([UNKNOWN]) * CELLS
        """The material of each cell when it was last seen."""
        self.here = START
        self.facing = 3
        """The direction the player looks in, an index into STEPS."""
        self.ahead = START + STEPS[3]
        """The cell the player faces."""
        self.things: dict[int, int] = {}
        """What stands in view, by cell, without the player."""
        self.arrows: dict[int, int] = {}
        """The arrows in view and the direction each flies in."""
        self.cows: dict[int, int] = {}
        """Cows by the cell and step they were last seen at."""
        self.skeletons: dict[int, int] = {}
        """Skeletons by the cell and step they were last seen at."""
        self.plants: dict[int, Plant] = {}
        """The expert's own plants by cell."""
        self.done: set[str] = set()
        """Achievements, as far as they follow from what was seen."""
        self.told: frozenset[str] | None = None
        """What has been achieved by the next view, where the expert is told."""
        self.inventory: dict[str, int] = {}
        self.step = 0
        self.daylight = 1.0
        self.sleeping = False
        self.zombie_near = False
        """Whether a zombie is close enough to change plans."""
        self.visited: dict[int, int] = {}
        """When the player was last in each block of 8x8 cells."""
        self.action = NOOP
        """The action that was carried out last."""
        self.could_act = True
        """Whether the player was awake to carry it out."""

    def took(self, action: int) -> None:
        """Note the action that is carried out next."""
        self.action = action

    def see(self, view: View) -> None:
        """Take in a view."""
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
        self.visited[self.block(here)] = view.step
        self._draw(view)
        struck = self.things.get(ahead_before) if action == DO else None
        stood = self.things
        self._look(view)
        if before:
            self._conclude(view, before, action, ahead_before, struck, stood)
        if self.told is not None:
            self.done, self.told = set(self.told), None
        self.sleeping = view.sleeping
        self.could_act = not view.sleeping or inventory["energy"] >= 9
        for cell, plant in self.plants.items():
            x, y = divmod(cell, STRIDE)
            if abs(x - here // STRIDE) + abs(y - here % STRIDE) < _GROWS_WITHIN:
                plant.grown += 1

    def _draw(self, view: View) -> None:
        """Copy the materials in view to the map."""
        seen = view.materials.tobytes()
        ground, left = self.ground, self.here + CORNER
        for i in range(0, ACROSS * HIGH, HIGH):
            ground[left : left + HIGH] = seen[i : i + HIGH]
            left += STRIDE

    def _look(self, view: View) -> None:
        """Note what stands in view."""
        objects = view.objects.tobytes()
        details = view.details.tobytes()
        here = self.here
        self.facing = max(details[MIDDLE], 1) - 1
        self.ahead = here + STEPS[self.facing]
        self.arrows = {}
        self.things = things = {
            here + OFFSETS[k]: thing for k, thing in enumerate(objects) if thing and k != MIDDLE
        }
        for known, kind in ((self.cows, COW), (self.skeletons, SKELETON)):
            if known:
                gone = [c for c in known if things.get(c) != kind and self.in_view(c)]
                for cell in gone:
                    del known[cell]
        self.zombie_near = False
        for cell, thing in things.items():
            if thing == ZOMBIE:
                self.zombie_near = self.zombie_near or self.distance(cell) <= 6
            elif thing == COW:
                self.cows[cell] = self.step
            elif thing == SKELETON:
                self.skeletons[cell] = self.step
            elif thing == ARROW:
                k = self._index(cell)
                self.arrows[cell] = max(details[k], 1) - 1
        if self.plants:
            for cell in list(self.plants):
                if self.in_view(cell):
                    if things.get(cell) != PLANT:
                        del self.plants[cell]
                    else:
                        self.plants[cell].ripe = details[self._index(cell)] == 1

    @staticmethod
    def block(cell: int) -> int:
        """The block of 8x8 cells that a cell lies in."""
        return cell // STRIDE // 8 * STRIDE + cell % STRIDE // 8

    def in_view(self, cell: int) -> bool:
        """Whether a cell is in the present view."""
        x, y = divmod(cell, STRIDE)
        here_x, here_y = divmod(self.here, STRIDE)
        return abs(x - here_x) <= _AREA_HALF[0] and abs(y - here_y) <= _AREA_HALF[1]

    def distance(self, cell: int) -> int:
        """Steps from the player to a cell, as the crow walks."""
        x, y = divmod(cell, STRIDE)
        here_x, here_y = divmod(self.here, STRIDE)
        return abs(x - here_x) + abs(y - here_y)

    def _index(self, cell: int) -> int:
        x, y = divmod(cell, STRIDE)
        here_x, here_y = divmod(self.here, STRIDE)
        return (x - here_x + _AREA_HALF[0]) * HIGH + y - here_y + _AREA_HALF[1]

    def _conclude(
        self,
        view: View,
        before: dict[str, int],
        action: int,
        ahead: int,
        struck: int | None,
        stood: dict[int, int],
    ) -> None:
        """Draw conclusions from what has changed since the last view."""
        now, done = view.inventory, self.done
        for item in ("sapling", "wood", "stone", "coal", "iron", "diamond", "drink"):
            if now[item] > before[item]:
                done.add(f"collect_{item}")
        if self.sleeping and not view.sleeping and now["energy"] >= 9:
            done.add("wake_up")
        if struck in _FELLED and self._fell(ahead, struck, stood):
            done.add(_FELLED[struck])
            self.cows.pop(ahead, None)
        elif struck == PLANT and now["food"] > before["food"]:
            done.add("eat_plant")
            if ahead in self.plants:
                self.plants[ahead].grown = 0
        elif struck is None and action == DO and self.ground[ahead] == WATER:
            done.add("collect_drink")
        if action == PLACE_PLANT and now["sapling"] < before["sapling"]:
            done.add("place_plant")
            self.plants[ahead] = Plant()
        elif action == PLACE_STONE and now["stone"] < before["stone"]:
            done.add("place_stone")
        elif action == PLACE_FURNACE and now["stone"] < before["stone"]:
            done.add("place_furnace")

    def _fell(self, cell: int, kind: int, stood: dict[int, int]) -> bool:
        """Whether a creature that was struck is nowhere it could have walked to."""
        near = [cell, *(cell + step for step in STEPS)]
        return sum(self.things.get(c) == kind for c in near) < sum(
            stood.get(c) == kind for c in near
        )

    def free(self, cell: int) -> bool:
        """Whether the player could walk onto a cell unharmed."""
        return bool(OPEN[self.ground[cell]]) and cell not in self.things

    def near(self, material: int) -> bool:
        """Whether a material is within one cell, as making things needs it."""
        ground, here = self.ground, self.here
        for column in (here - STRIDE, here, here + STRIDE):
            if material in ground[column - 1 : column + 2]:
                return True
        return False

    def knows(self, material: int) -> bool:
        """Whether a material was ever seen and not seen to be gone."""
        return material in self.ground

    def grass_around(self, cell: int) -> int:
        """How many cells of the view from a cell are grass: where zombies appear."""
        left, ground = cell + CORNER, self.ground
        return sum(
            ground.count(GRASS, at, at + HIGH)
            for at in range(left, left + ACROSS * STRIDE, STRIDE)
        )

    def rock_around(self, cell: int) -> int:
        """How many known cells of the view from a cell are stone or path."""
        left, ground = cell + CORNER, self.ground
        return sum(
            ground.count(STONE, at, at + HIGH) + ground.count(PATH, at, at + HIGH)
            for at in range(left, left + ACROSS * STRIDE, STRIDE)
        )
