"""Movement: plans the cheapest route over the remembered map, follows it, and faces targets."""

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.terrain import (
    DIGGABLE,
    DO,
    GRASS,
    LAVA,
    MOVE,
    NOOP,
    OPEN,
    PLACE_STONE,
    PLANT,
    SAND,
    STEPS,
    STRIDE,
    UNKNOWN,
    WATER,
    ZOMBIE,
)

_RING = 16
"""More than the cost of any step."""
_DIG, _BRIDGE = 2, 4


class Route(NamedTuple):
    """Route to a target."""

    cells: list[int]
    """Cells to walk over, the last one first, without the start."""
    target: int
    """Return value of the goal function at the end of the route."""


@cache
def compute_costs(tools: frozenset[str], stones: bool, off_grass: bool) -> bytes:
    """Return the cost of a step onto each material, 0 if impossible."""
    table = bytearray(256)
    for material in range(256):
        if OPEN[material]:
            table[material] = 1
        elif material in DIGGABLE:
            tool = DIGGABLE[material]
            table[material] = _DIG if tool is None or tool in tools else 0
    # A stone placed into water and dug out again leaves a path, and the stone is kept.
    if stones and "wood_pickaxe" in tools:
        table[WATER] = _BRIDGE
    if off_grass:
        table[GRASS] = 0
    return bytes(table)


def find_route(
    ground: bytearray,
    start: int,
    costs: bytes,
    blocked: Collection[int],
    danger: dict[int, int],
    goal: Callable[[int], int],
    steps: Sequence[int],
    limit: int = 1000,
) -> Route | None:
    """Return the cheapest route to a cell where `goal` returns a value other than 0.

    Dijkstra's algorithm with a ring of buckets, because costs are small integers.
    """
    previous = {start: 0}
    best = {start: 0}
    ring: list[list[int]] = [[] for _ in range(_RING)]
    ring[0].append(start)
    pending, total = 1, 0
    while pending and total <= limit:
        bucket = ring[total % _RING]
        ring[total % _RING] = []
        pending -= len(bucket)
        for cell in bucket:
            if best[cell] != total:
                continue
            target = goal(cell)
            if target:
                return Route(_trace_route(previous, cell), target)
            for step in steps:
                near = cell + step
                price = costs[ground[near]]
                if price and near not in blocked:
                    sum_ = total + price
                    if danger:
                        sum_ += danger.get(near, 0)
                    if sum_ < best.get(near, 1_000_000):
                        best[near] = sum_
                        previous[near] = cell
                        ring[sum_ % _RING].append(near)
                        pending += 1
        total += 1
    return None


def _trace_route(previous: dict[int, int], cell: int) -> list[int]:
    cells = []
    while previous[cell]:
        cells.append(cell)
        cell = previous[cell]
    return cells


ARRIVED: Final = -1
"""Returned instead of an action at the end of the route; the target is `Walker.target`."""

_PICKAXES: Final = ("wood_pickaxe", "stone_pickaxe", "iron_pickaxe")
_DARK: Final = 0.5
"""Daylight below which routes avoid grass, because of zombies."""
_REPLAN_AFTER: Final = 12
"""Number of steps after which a route is planned again, with the updated map."""
_RETRY_AFTER: Final = 6
"""Number of steps before a failed search is repeated; doubled after each failure."""
_DANGER: Final = (8, 8, 6, 3, 2)
"""Additional cost of a cell near a zombie, by its distance from the zombie."""
_AROUND: Final = tuple(
    (dx * STRIDE + dy, _DANGER[abs(dx) + abs(dy)])
    for dx in range(-4, 5)
    for dy in range(-4, 5)
    if abs(dx) + abs(dy) < len(_DANGER)
)
"""Offsets of the cells around a zombie, with their additional cost."""

CellGoal = Callable[[int], int]
"""Goal of a route: returns 0 for cells where it cannot end, else the target."""


class Walker:
    """Turns destinations into moves."""

    def __init__(self, memory: Memory, order: Sequence[int]) -> None:
        self.memory = memory
        self.order = tuple(order)
        """Directions in the order in which ties are resolved."""
        self.steps = tuple(STEPS[d] for d in self.order)
        self.fence: set[int] = set()
        """Stones that must not be removed."""
        self.walls: set[int] = set()
        """Sides of a burrow under construction, which must not be changed."""
        self.tunnelling = False
        """Whether routes may only lead through rock, and never next to grass or sand."""
        self.target = 0
        """Target at the end of the current route."""
        self.key = ""
        """Purpose of the current route; empty without a route."""
        self.route = Route([], 0)
        self.planned = 0
        """Step in which the current route was planned."""
        self.origin = 0
        """Position of the player when it last followed the route."""
        self.failed: dict[str, tuple[int, int]] = {}
        """Failed searches: the step until which they pause, and the length of the pause."""

    def costs(self, *, anywhere: bool = False) -> bytes:
        """Return the cost of a step onto each material with the current inventory.

        In the dark grass is forbidden, unless the player is on it, food or drink is 0, or
        `anywhere` is set.
        """
        inventory = self.memory.inventory
        tools = frozenset(name for name in _PICKAXES if inventory[name])
        memory = self.memory
        off_grass = (
            memory.daylight < _DARK
            and not anywhere
            and memory.ground[memory.here] != GRASS
            and min(inventory["food"], inventory["drink"]) > 0
        )
        return compute_costs(tools, inventory["stone"] > 0, off_grass)

    def is_blocked(self, cell: int) -> bool:
        """Return whether a cell is occupied or must not be changed."""
        memory = self.memory
        if cell in memory.things or cell in memory.plants:
            return True
        return cell in self.fence or cell in self.walls

    def approach(
        self,
        key: str,
        goal: CellGoal,
        *,
        limit: int = 1000,
        breach: bool = False,
        anywhere: bool = False,
    ) -> int | None:
        """Return the next action towards a cell where `goal` does not return 0.

        Returns ARRIVED at the end, and None without a route. Routes are reused by `key` while
        valid. `breach` permits digging through fences; for `anywhere` see `costs`.
        """
        memory = self.memory
        if self.tunnelling:
            key = f"tunnel: {key}"
        until, pause = self.failed.get(key, (-1, _RETRY_AFTER))
        if until > memory.step:
            return None
        costs = self.costs(anywhere=anywhere)
        if key != self.key or not self._is_route_valid(goal, costs, breach):
            blocked = {*memory.things, *memory.plants, *self.walls}
            if not breach:
                blocked |= self.fence
            route = find_route(
                self._rock_map() if self.tunnelling else memory.ground,
                memory.here,
                costs,
                blocked,
                self._danger_costs(),
                goal,
                self.steps,
                limit,
            )
            if route is None:
                self.failed[key] = memory.step + pause, min(2 * pause, 200)
                self.key = ""
                return None
            self.failed.pop(key, None)
            self.route, self.key, self.planned = route, key, memory.step
        self.origin = memory.here
        self.target = self.route.target
        cells = self.route.cells
        return self.step_to(cells[-1]) if cells else ARRIVED

    def _rock_map(self) -> bytearray:
        """Return the map with cells next to grass or sand marked as unknown."""
        ground = np.frombuffer(self.memory.ground, np.uint8)
        outside = (ground == GRASS) | (ground == SAND)
        touched = outside.copy()
        for step in STEPS:
            touched |= np.roll(outside, step)
        return bytearray(np.where(touched, UNKNOWN, ground).astype(np.uint8).tobytes())

    def _danger_costs(self) -> dict[int, int]:
        """Return the additional cost of cells near zombies."""
        danger: dict[int, int] = {}
        for cell, thing in self.memory.things.items():
            if thing == ZOMBIE:
                for offset, price in _AROUND:
                    near = cell + offset
                    danger[near] = max(danger.get(near, 0), price)
        return danger

    def _is_route_valid(self, goal: CellGoal, costs: bytes, breach: bool) -> bool:
        memory, cells = self.memory, self.route.cells
        if cells and memory.here == cells[-1]:
            cells.pop()
        elif memory.here != self.origin:
            return False
        if memory.step - self.planned > _REPLAN_AFTER or memory.zombie_near:
            return False
        if not cells:
            return goal(memory.here) == self.route.target
        after = cells[-1]
        if self.tunnelling and any(memory.ground[after + s] in (GRASS, SAND) for s in STEPS):
            return False
        if not costs[memory.ground[after]] or after in memory.things or after in memory.plants:
            return False
        if after in self.walls or (after in self.fence and not breach):
            return False
        return goal(cells[0]) == self.route.target

    def step_to(self, cell: int) -> int:
        """Return the action that moves onto an adjacent cell, or first clears it."""
        memory = self.memory
        direction = self.direction_to(cell)
        ground = memory.ground[cell]
        if OPEN[ground] or memory.facing != direction:
            return NOOP if ground == LAVA else MOVE + direction
        return PLACE_STONE if ground == WATER else DO

    def direction_to(self, cell: int) -> int:
        """Return the direction of an adjacent cell."""
        return STEPS.index(cell - self.memory.here)

    def use(self, cell: int) -> int:
        """Return the action that uses an adjacent cell, or turns to it.

        Only for cells that cannot be walked on: moving towards one only turns the player.
        """
        return DO if self.memory.ahead == cell else MOVE + self.direction_to(cell)

    def next_to(self, wanted: bytes) -> CellGoal:
        """Return a goal: a cell next to a material in the table."""
        ground, steps, blocked = self.memory.ground, self.steps, self.is_blocked

        def goal(cell: int) -> int:
            for step in steps:
                if wanted[ground[cell + step]] and not blocked(cell + step):
                    return cell + step
            return 0

        return goal

    def next_to_any(self, cells: dict[int, int] | set[int]) -> CellGoal:
        """Return a goal: a cell next to one of some cells."""
        steps = self.steps

        def goal(cell: int) -> int:
            for step in steps:
                if cell + step in cells:
                    return cell + step
            return 0

        return goal

    def two_cells_before(self, wanted: Callable[[int], bool]) -> CellGoal:
        """Return a goal: two cells before an open cell that should be faced.

        Moving towards an adjacent open cell walks onto it, so the player must approach it in a
        straight line. The target is the cell in between.
        """
        memory, steps = self.memory, self.steps

        def goal(cell: int) -> int:
            for step in steps:
                stand = cell + step
                if (
                    wanted(stand + step)
                    and OPEN[memory.ground[stand]]
                    and not self.is_blocked(stand)
                ):
                    return stand
            return 0

        return goal

    def face(
        self, key: str, wanted: Callable[[int], bool], *, anywhere: bool = False
    ) -> int | None:
        """Return the next action towards facing a wanted open cell; ARRIVED if facing one."""
        if wanted(self.memory.ahead):
            return ARRIVED
        action = self.approach(key, self.two_cells_before(wanted), anywhere=anywhere)
        return self.step_to(self.target) if action == ARRIVED else action

    def make_room(self, keep_near: Callable[[int], bool]) -> int | None:
        """Return an action towards facing a cell to place something on; ARRIVED if facing one.

        The player only moves to cells where `keep_near` is true.
        """
        memory = self.memory
        ground, here = memory.ground, memory.here
        costs = self.costs()
        if OPEN[ground[memory.ahead]] and not self.is_blocked(memory.ahead):
            return ARRIVED
        for d in (memory.facing, *self.order):
            cell = here + STEPS[d]
            if self.is_blocked(cell):
                continue
            if OPEN[ground[cell]]:
                beyond = cell + STEPS[d]
                if keep_near(cell) and OPEN[ground[beyond]] and not self.is_blocked(beyond):
                    return MOVE + d
            elif costs[ground[cell]] and ground[cell] != WATER:
                return DO if memory.facing == d else MOVE + d
        for d in self.order:
            cell = here + STEPS[d]
            if OPEN[ground[cell]] and not self.is_blocked(cell) and keep_near(cell):
                return MOVE + d
        return None

    def is_enclosed(self, most: int = 60) -> bool:
        """Return whether no creature can reach the player."""
        memory = self.memory
        ground = memory.ground
        seen, edge = {memory.here}, [memory.here]
        while edge:
            cell = edge.pop()
            for step in STEPS:
                near = cell + step
                if near in seen or memory.things.get(near) == PLANT:
                    continue
                if OPEN[ground[near]]:
                    if len(seen) >= most or near in memory.things:
                        return False
                    seen.add(near)
                    edge.append(near)
                elif ground[near] in (UNKNOWN, LAVA):
                    return False
        return True
