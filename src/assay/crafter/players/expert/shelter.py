"""Shelter: when to go into a closed place, and how long to stay there.

Burrows: closed places of two cells, dug into rock, built into water or walled in.

Facing an open cell takes a run-up, so the last opening can be closed only from a place
that is two cells deep: in to the far end, one step back, and a stone on the entrance.
"""

from functools import partial
from typing import NamedTuple

from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.terrain import (
    GRASS,
    LAVA,
    MOVE,
    NOOP,
    OPEN,
    PLACE_STONE,
    SLEEP,
    STEPS,
    STONE,
    UNKNOWN,
    WATER,
    ZOMBIE,
    Goal,
)
from assay.crafter.players.expert.walker import ARRIVED, Walker

_FEW = 6
"""A place with no more cells of grass in view is out of the way of zombies."""


class Burrow(NamedTuple):
    """Where a closed place can be made."""

    entrance: int
    near: int
    far: int
    end: int
    """The cell beyond the far one."""
    direction: int
    """From the entrance inwards."""

    def sides(self) -> tuple[int, int, int, int]:
        """The cells left and right of the near and the far cell, the near ones first."""
        side = STEPS[(self.direction + 2) % 4]
        return self.near + side, self.near - side, self.far + side, self.far - side


class Builder:
    """Finds places for burrows and builds them."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker
        self._cost = b""

    def find(self) -> Burrow | None:
        """The best place that can be reached: with little grass around, near, with few gaps."""
        if not self.memory.inventory["wood_pickaxe"]:
            return None
        self._cost = self.walker.cost(anywhere=True)
        for key, gaps, limit, deep in (
            ("deep burrow", 0, 20, True),
            ("burrow", 0, 30, False),
            ("burrow with a gap", 1, 15, False),
            ("burrow with gaps", 2, 10, False),
            ("far burrow", 0, 1000, False),
            ("open burrow", 4, 4, False),
        ):
            goal = partial(self._entrance, gaps=gaps, deep=deep)
            action = self.walker.approach(key, goal, limit=limit, anywhere=True)
            if action is not None:
                return self._at(self.walker.target, gaps)
        return None

    def _entrance(self, cell: int, gaps: int, deep: bool) -> int:
        if self._at(cell, gaps) is None:
            return 0
        return cell if not deep or self.memory.grass_around(cell) <= _FEW else 0

    def _at(self, entrance: int, gaps: int) -> Burrow | None:
        """A burrow with this entrance and at most so many gaps."""
        for d in self.walker.order:
            step = STEPS[d]
            near, far, end = entrance + step, entrance + 2 * step, entrance + 3 * step
            burrow = Burrow(entrance, near, far, end, d)
            if self._fits(burrow, gaps):
                return burrow
        return None

    def usable(self, burrow: Burrow) -> bool:
        """Whether a burrow can still be built."""
        self._cost = self.walker.cost(anywhere=True)
        return self._fits(burrow, 4)

    def _fits(self, burrow: Burrow, gaps: int) -> bool:
        ground, walker, plants = self.memory.ground, self.walker, self.memory.plants
        near, far = ground[burrow.near], ground[burrow.far]
        if not (self._cost[near] and self._cost[far]) or burrow.entrance in plants:
            return False
        needed = 1
        for i, cell in enumerate((*burrow.sides(), burrow.end)):
            material = ground[cell]
            if material in (UNKNOWN, LAVA) or cell in plants:
                return False
            if OPEN[material]:
                needed += 1
                if i < 4:
                    gaps -= 1
                    if gaps < 0:
                        return False
            elif material == WATER and i not in (2, 3):
                needed += 1
        if walker.blocked(burrow.near) or walker.blocked(burrow.far):
            return False
        return self.memory.inventory["stone"] + (near == STONE) + (far == STONE) >= needed

    def step(self, burrow: Burrow) -> int | None:
        """The next action towards being shut in."""
        memory, walker = self.memory, self.walker
        ground, here = memory.ground, memory.here
        stones = memory.inventory["stone"]
        gaps = {cell for cell in burrow.sides() if OPEN[ground[cell]]}
        walker.walls = {*burrow.sides(), burrow.end} - gaps
        if gaps:
            action = walker.face("gap", gaps.__contains__, anywhere=True)
            if action != ARRIVED:
                return action
            return PLACE_STONE if stones and memory.free(memory.ahead) else None
        end_open = stones > 1 and (OPEN[ground[burrow.end]] or ground[burrow.end] == WATER)
        back = burrow.direction ^ 1
        if here == burrow.far:
            facing_end = memory.facing == burrow.direction
            return PLACE_STONE if end_open and facing_end else walker.step_to(burrow.near)
        if here == burrow.near:
            if memory.facing == back and not end_open:
                return PLACE_STONE if stones else None
            return walker.step_to(burrow.far)
        entrance = burrow.entrance
        if here != entrance:
            action = walker.approach(
                "entrance", lambda cell: cell if cell == entrance else 0, anywhere=True
            )
            if action != ARRIVED:
                return action
        return walker.step_to(burrow.near)


Choice = tuple[Goal, int]
_DARK = 0.45
"""Below this much daylight the meadows fill with zombies."""


class Shelter:
    """Decides on sleep and rest."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker
        self._builder = Builder(memory, walker)
        self.burrow: Burrow | None = None
        """The place that is being gone to or built."""
        self.resting = False
        """Whether the player is in a closed place to rest."""

    def rest(self) -> Choice | None:
        """Stay in a closed place as long as there is a reason to."""
        if not (self.resting or self._wanted()) or not self.walker.enclosed():
            self.resting = False
            return None
        self._leave()
        self.resting = self._worth_staying()
        return self._stay_in() if self.resting else None

    def hide(self) -> Choice | None:
        """Wait in a closed place, for whatever reason."""
        if self.walker.enclosed():
            return self._stay_in()
        return self._go_in()

    def _worth_staying(self) -> bool:
        memory = self.memory
        inventory = memory.inventory
        lacking = min(inventory["food"], inventory["drink"])
        if lacking == 0 and (memory.daylight > _DARK or inventory["health"] <= 3):
            return False
        if inventory["energy"] < (9 if self.resting else 4):
            return True
        if lacking <= 2 and memory.daylight > _DARK:
            return False
        return inventory["health"] < (8 if lacking > 3 else 6)

    def besieged(self) -> bool:
        """Whether the player is in a closed place and had better not come out."""
        memory = self.memory
        lacking = min(memory.inventory["food"], memory.inventory["drink"])
        zombies = ZOMBIE in memory.things.values()
        if memory.daylight > (0.75 if zombies and lacking else 0.65 if lacking > 2 else 0.5):
            return False
        return self.walker.enclosed()

    @property
    def heading(self) -> bool:
        """Whether a shelter is being gone to or built."""
        return self.burrow is not None

    def _stay_in(self) -> Choice:
        action = self._wall_off_water()
        if action is not None:
            return Goal.BUILD_SHELTER, action
        if self.memory.inventory["energy"] < 9:
            return Goal.SLEEP, SLEEP
        return Goal.REST, NOOP

    def _wall_off_water(self) -> int | None:
        """Arrows fly over water: put stones where it touches the player's cell."""
        memory = self.memory
        if not memory.inventory["stone"]:
            return None
        for d, step in enumerate(STEPS):
            if memory.ground[memory.here + step] == WATER:
                return PLACE_STONE if memory.facing == d else MOVE + d
        return None

    def seek(self) -> Choice | None:
        """Go to a place that can be closed and close it, when rest is wanted."""
        if self._wanted():
            return self._go_in() or self._in_the_open()
        self._leave()
        return None

    def _leave(self) -> None:
        self.burrow = None
        self.walker.walls = set()

    def _go_in(self) -> Choice | None:
        builder = self._builder
        self.walker.walls = set()
        if self.burrow is None or not builder.usable(self.burrow):
            self.burrow = builder.find()
        if self.burrow is None:
            return None
        action = builder.step(self.burrow)
        if action is None:
            self._leave()
            return None
        return Goal.BUILD_SHELTER, action

    def _wanted(self) -> bool:
        memory = self.memory
        inventory = memory.inventory
        lacking = min(inventory["food"], inventory["drink"])
        dark = memory.daylight < _DARK
        if lacking == 0 or (lacking <= 2 and not dark):
            return False
        if inventory["energy"] <= 2 or inventory["health"] <= (5 if lacking > 3 else 4):
            return True
        return dark and (
            inventory["energy"] <= 3
            or memory.ground[memory.here] == GRASS
            or ZOMBIE in memory.things.values()
        )

    def _in_the_open(self) -> Choice | None:
        memory = self.memory
        if memory.inventory["energy"] <= 1 and not memory.things and memory.daylight > 0.5:
            return Goal.SLEEP, SLEEP
        return None
