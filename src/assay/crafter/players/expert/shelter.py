"""Shelter: when to go into a closed place, how to build one, and how long to stay.

A burrow is a closed place of two cells, dug into rock, built into water or walled in. The
player faces an open cell only after walking towards it, so it can close the last opening only
in a burrow two cells deep: walk to the far end, step back, place a stone.
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

_LITTLE_GRASS = 6
"""Maximum number of visible grass cells for a place that zombies rarely reach."""


class Burrow(NamedTuple):
    """A place where a burrow can be made."""

    entrance: int
    near: int
    far: int
    end: int
    """Cell beyond the far one."""
    direction: int
    """Direction from the entrance inwards."""

    def sides(self) -> tuple[int, int, int, int]:
        """Return the cells left and right of the near and the far cell, near ones first."""
        side = STEPS[(self.direction + 2) % 4]
        return self.near + side, self.near - side, self.far + side, self.far - side


class Builder:
    """Finds places for burrows and builds them."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker
        self._cost = b""

    def find(self) -> Burrow | None:
        """Return the best reachable place: little grass around, near, few gaps."""
        if not self.memory.inventory["wood_pickaxe"]:
            return None
        self._cost = self.walker.costs(anywhere=True)
        for key, gaps, limit, deep in (
            ("deep burrow", 0, 20, True),
            ("burrow", 0, 30, False),
            ("burrow with a gap", 1, 15, False),
            ("burrow with gaps", 2, 10, False),
            ("far burrow", 0, 1000, False),
            ("open burrow", 4, 4, False),
        ):
            goal = partial(self._entrance_goal, gaps=gaps, deep=deep)
            action = self.walker.approach(key, goal, limit=limit, anywhere=True)
            if action is not None:
                return self._find_at(self.walker.target, gaps)
        return None

    def _entrance_goal(self, cell: int, gaps: int, deep: bool) -> int:
        if self._find_at(cell, gaps) is None:
            return 0
        return cell if not deep or self.memory.grass_around(cell) <= _LITTLE_GRASS else 0

    def _find_at(self, entrance: int, gaps: int) -> Burrow | None:
        """Return a burrow with this entrance and at most `gaps` gaps."""
        for d in self.walker.order:
            step = STEPS[d]
            near, far, end = entrance + step, entrance + 2 * step, entrance + 3 * step
            burrow = Burrow(entrance, near, far, end, d)
            if self._fits(burrow, gaps):
                return burrow
        return None

    def is_usable(self, burrow: Burrow) -> bool:
        """Return whether a burrow can still be built."""
        self._cost = self.walker.costs(anywhere=True)
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
        if walker.is_blocked(burrow.near) or walker.is_blocked(burrow.far):
            return False
        return self.memory.inventory["stone"] + (near == STONE) + (far == STONE) >= needed

    def next_action(self, burrow: Burrow) -> int | None:
        """Return the next action for building a burrow and closing it."""
        memory, walker = self.memory, self.walker
        ground, here = memory.ground, memory.here
        stones = memory.inventory["stone"]
        gaps = {cell for cell in burrow.sides() if OPEN[ground[cell]]}
        walker.walls = {*burrow.sides(), burrow.end} - gaps
        if gaps:
            action = walker.face("gap", gaps.__contains__, anywhere=True)
            if action != ARRIVED:
                return action
            return PLACE_STONE if stones and memory.is_free(memory.ahead) else None
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
"""Daylight below which zombies are frequent on grass."""


class Shelter:
    """Sleeping and resting behaviours."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker
        self._builder = Builder(memory, walker)
        self.burrow: Burrow | None = None
        """The burrow the player is walking to or building."""
        self.resting = False
        """Whether the player is resting in a closed place."""

    def rest(self) -> Choice | None:
        """Stay in a closed place while there is a reason to."""
        if not (self.resting or self._is_rest_needed()) or not self.walker.is_enclosed():
            self.resting = False
            return None
        self._abandon()
        self.resting = self._should_stay()
        return self._rest_inside() if self.resting else None

    def hide(self) -> Choice | None:
        """Wait in a closed place, and build one if necessary."""
        if self.walker.is_enclosed():
            return self._rest_inside()
        return self._enter()

    def _should_stay(self) -> bool:
        memory = self.memory
        inventory = memory.inventory
        lowest = min(inventory["food"], inventory["drink"])
        if lowest == 0 and (memory.daylight > _DARK or inventory["health"] <= 3):
            return False
        if inventory["energy"] < (9 if self.resting else 4):
            return True
        if lowest <= 2 and memory.daylight > _DARK:
            return False
        return inventory["health"] < (8 if lowest > 3 else 6)

    def is_besieged(self) -> bool:
        """Return whether the player is in a closed place and leaving it would be dangerous."""
        memory = self.memory
        lowest = min(memory.inventory["food"], memory.inventory["drink"])
        zombies = ZOMBIE in memory.things.values()
        if memory.daylight > (0.75 if zombies and lowest else 0.65 if lowest > 2 else 0.5):
            return False
        return self.walker.is_enclosed()

    @property
    def is_building(self) -> bool:
        """Whether the player is walking to a shelter or building one."""
        return self.burrow is not None

    def _rest_inside(self) -> Choice:
        action = self._wall_off_water()
        if action is not None:
            return Goal.BUILD_SHELTER, action
        if self.memory.inventory["energy"] < 9:
            return Goal.SLEEP, SLEEP
        return Goal.REST, NOOP

    def _wall_off_water(self) -> int | None:
        """Place stones on adjacent water, because arrows fly over it."""
        memory = self.memory
        if not memory.inventory["stone"]:
            return None
        for d, step in enumerate(STEPS):
            if memory.ground[memory.here + step] == WATER:
                return PLACE_STONE if memory.facing == d else MOVE + d
        return None

    def seek(self) -> Choice | None:
        """Build a shelter if rest is needed."""
        if self._is_rest_needed():
            return self._enter() or self._sleep_outside()
        self._abandon()
        return None

    def _abandon(self) -> None:
        self.burrow = None
        self.walker.walls = set()

    def _enter(self) -> Choice | None:
        builder = self._builder
        self.walker.walls = set()
        if self.burrow is None or not builder.is_usable(self.burrow):
            self.burrow = builder.find()
        if self.burrow is None:
            return None
        action = builder.next_action(self.burrow)
        if action is None:
            self._abandon()
            return None
        return Goal.BUILD_SHELTER, action

    def _is_rest_needed(self) -> bool:
        memory = self.memory
        inventory = memory.inventory
        lowest = min(inventory["food"], inventory["drink"])
        dark = memory.daylight < _DARK
        if lowest == 0 or (lowest <= 2 and not dark):
            return False
        if inventory["energy"] <= 2 or inventory["health"] <= (5 if lowest > 3 else 4):
            return True
        return dark and (
            inventory["energy"] <= 3
            or memory.ground[memory.here] == GRASS
            or ZOMBIE in memory.things.values()
        )

    def _sleep_outside(self) -> Choice | None:
        memory = self.memory
        if memory.inventory["energy"] <= 1 and not memory.things and memory.daylight > 0.5:
            return Goal.SLEEP, SLEEP
        return None
