"""How the expert gets about: the cheapest way over its map, and turning to what it uses."""

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
"""More than any step costs."""
_DIG, _BRIDGE = 2, 4


class Way(NamedTuple):
    """How to get somewhere."""

    cells: list[int]
    """The cells to walk over, the last one first, without the one walked from."""
    target: int
    """What the goal function answered at the end of the way."""


@cache
def costs(tools: frozenset[str], stones: bool, off_grass: bool) -> bytes:
    """What a step onto each material costs; 0 where none is possible."""
    table = bytearray(256)
    for material in range(256):
        if OPEN[material]:
            table[material] = 1
        elif material in DIGGABLE:
            tool = DIGGABLE[material]
            table[material] = _DIG if tool is None or tool in tools else 0
    # A stone laid into water and dug out again leaves a path, and the stone.
    if stones and "wood_pickaxe" in tools:
        table[WATER] = _BRIDGE
    if off_grass:
        table[GRASS] = 0
    return bytes(table)


def search(
    ground: bytearray,
    start: int,
    cost: bytes,
    blocked: Collection[int],
    danger: dict[int, int],
    goal: Callable[[int], int],
    steps: Sequence[int],
    limit: int = 1000,
) -> Way | None:
    """The cheapest way to a cell where `goal` does not answer 0, and its answer.

    Dijkstra's search with a ring of buckets, since steps cost small whole numbers.
    """
    came = {start: 0}
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
                return Way(_trace(came, cell), target)
            for step in steps:
                near = cell + step
                price = cost[ground[near]]
                if price and near not in blocked:
                    sum_ = total + price
                    if danger:
                        sum_ += danger.get(near, 0)
                    if sum_ < best.get(near, 1_000_000):
                        best[near] = sum_
                        came[near] = cell
                        ring[sum_ % _RING].append(near)
                        pending += 1
        total += 1
    return None


def _trace(came: dict[int, int], cell: int) -> list[int]:
    cells = []
    while came[cell]:
        cells.append(cell)
        cell = came[cell]
    return cells


ARRIVED: Final = -1
"""In place of an action: the end of the way is reached, `Walker.target` says what for."""

_PICKAXES: Final = ("wood_pickaxe", "stone_pickaxe", "iron_pickaxe")
_DARK: Final = 0.5
"""Below this much daylight ways do not lead onto grass, where the zombies are."""
_PLAN_AGAIN: Final = 12
"""After this many steps a way is planned anew, with what was seen since."""
_TRY_AGAIN: Final = 6
"""For this many steps a search that found nothing is not repeated, then for twice as many."""
_DANGER: Final = (8, 8, 6, 3, 2)
"""What a step to a cell near a zombie costs more, by its distance from the zombie."""
_AROUND: Final = tuple(
    (dx * STRIDE + dy, _DANGER[abs(dx) + abs(dy)])
    for dx in range(-4, 5)
    for dy in range(-4, 5)
    if abs(dx) + abs(dy) < len(_DANGER)
)
"""The cells around a zombie, and what they cost more."""

Test = Callable[[int], int]
"""What a way is to lead to: not 0 for cells where it may end."""


class Walker:
    """Turns places to be into moves."""

    def __init__(self, memory: Memory, order: Sequence[int]) -> None:
        self.memory = memory
        self.order = tuple(order)
        """The directions in the order in which ties are broken."""
        self.steps = tuple(STEPS[d] for d in self.order)
        self.fence: set[int] = set()
        """Stones that must stay where they are."""
        self.walls: set[int] = set()
        """The sides of a burrow that is being built, which must stay as they are."""
        self.tunnelling = False
        """Whether ways lead through rock only, and never next to grass or sand."""
        self.target = 0
        """What the goal function answered at the end of the present way."""
        self.key = ""
        """What the present way is for; empty without a way."""
        self.way = Way([], 0)
        self.planned = 0
        """The step in which the present way was planned."""
        self.origin = 0
        """Where the player was when it last followed the way."""
        self.failed: dict[str, tuple[int, int]] = {}
        """For searches that found nothing: until when they rest, and for how long."""

    def cost(self, *, anywhere: bool = False) -> bytes:
        """What a step onto each material costs with the present inventory.

        In the dark grass is out of bounds, except for who stands on it, starves, or has
        to go `anywhere`.
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
        return costs(tools, inventory["stone"] > 0, off_grass)

    def blocked(self, cell: int) -> bool:
        """Whether something stands on a cell, or it must not be touched."""
        memory = self.memory
        if cell in memory.things or cell in memory.plants:
            return True
        return cell in self.fence or cell in self.walls

    def approach(
        self,
        key: str,
        goal: Test,
        *,
        limit: int = 1000,
        breach: bool = False,
        anywhere: bool = False,
    ) -> int | None:
        """The next action on the way to a cell where `goal` does not answer 0.

        ARRIVED at its end, None without a way. Ways are kept by `key` while they are good.
        With `breach` fences may be dug through; for `anywhere` see `cost`.
        """
        memory = self.memory
        if self.tunnelling:
            key = f"tunnel: {key}"
        until, pause = self.failed.get(key, (-1, _TRY_AGAIN))
        if until > memory.step:
            return None
        cost = self.cost(anywhere=anywhere)
        if key != self.key or not self._still_good(goal, cost, breach):
            blocked = {*memory.things, *memory.plants, *self.walls}
            if not breach:
                blocked |= self.fence
            way = search(
                self._rock() if self.tunnelling else memory.ground,
                memory.here,
                cost,
                blocked,
                self._danger(),
                goal,
                self.steps,
                limit,
            )
            if way is None:
                self.failed[key] = memory.step + pause, min(2 * pause, 200)
                self.key = ""
                return None
            self.failed.pop(key, None)
            self.way, self.key, self.planned = way, key, memory.step
        self.origin = memory.here
        self.target = self.way.target
        cells = self.way.cells
        return self.step_to(cells[-1]) if cells else ARRIVED

    def _rock(self) -> bytearray:
        """The map without the cells that touch grass or sand."""
        ground = np.frombuffer(self.memory.ground, np.uint8)
        outside = (ground == GRASS) | (ground == SAND)
        touched = outside.copy()
        for step in STEPS:
            touched |= np.roll(outside, step)
        return bytearray(np.where(touched, UNKNOWN, ground).astype(np.uint8).tobytes())

    def _danger(self) -> dict[int, int]:
        """What cells near zombies cost more."""
        danger: dict[int, int] = {}
        for cell, thing in self.memory.things.items():
            if thing == ZOMBIE:
                for offset, price in _AROUND:
                    near = cell + offset
                    danger[near] = max(danger.get(near, 0), price)
        return danger

    def _still_good(self, goal: Test, cost: bytes, breach: bool) -> bool:
        memory, cells = self.memory, self.way.cells
        if cells and memory.here == cells[-1]:
            cells.pop()
        elif memory.here != self.origin:
            return False
        if memory.step - self.planned > _PLAN_AGAIN or memory.zombie_near:
            return False
        if not cells:
            return goal(memory.here) == self.way.target
        after = cells[-1]
        if self.tunnelling and any(memory.ground[after + s] in (GRASS, SAND) for s in STEPS):
            return False
        if not cost[memory.ground[after]] or after in memory.things or after in memory.plants:
            return False
        if after in self.walls or (after in self.fence and not breach):
            return False
        return goal(cells[0]) == self.way.target

    def step_to(self, cell: int) -> int:
        """The action that leads onto a neighbouring cell, or makes way for it."""
        memory = self.memory
        direction = self.direction(cell)
        ground = memory.ground[cell]
        if OPEN[ground] or memory.facing != direction:
            return NOOP if ground == LAVA else MOVE + direction
        return PLACE_STONE if ground == WATER else DO

    def direction(self, cell: int) -> int:
        """The direction of a neighbouring cell."""
        return STEPS.index(cell - self.memory.here)

    def use(self, cell: int) -> int:
        """The action that uses a neighbouring cell, or turns to it.

        Only for cells the player cannot walk onto: a move towards those only turns it.
        """
        return DO if self.memory.ahead == cell else MOVE + self.direction(cell)

    def beside(self, wanted: bytes) -> Test:
        """A goal: next to a material of a table."""
        ground, steps, blocked = self.memory.ground, self.steps, self.blocked

        def goal(cell: int) -> int:
            for step in steps:
                if wanted[ground[cell + step]] and not blocked(cell + step):
                    return cell + step
            return 0

        return goal

    def beside_any(self, cells: dict[int, int] | set[int]) -> Test:
        """A goal: next to one of some cells."""
        steps = self.steps

        def goal(cell: int) -> int:
            for step in steps:
                if cell + step in cells:
                    return cell + step
            return 0

        return goal

    def run_up_to(self, wanted: Callable[[int], bool]) -> Test:
        """A goal: one step before a cell from which an open cell is faced.

        Who moves towards an open cell walks onto it. To face it, one has to come from
        the other side. The answer is the cell to step onto next.
        """
        memory, steps = self.memory, self.steps

        def goal(cell: int) -> int:
            for step in steps:
                stand = cell + step
                if (
                    wanted(stand + step)
                    and OPEN[memory.ground[stand]]
                    and not self.blocked(stand)
                ):
                    return stand
            return 0

        return goal

    def face(
        self, key: str, wanted: Callable[[int], bool], *, anywhere: bool = False
    ) -> int | None:
        """The next action towards facing an open cell that is wanted; ARRIVED when faced."""
        if wanted(self.memory.ahead):
            return ARRIVED
        action = self.approach(key, self.run_up_to(wanted), anywhere=anywhere)
        return self.step_to(self.target) if action == ARRIVED else action

    def make_room(self, keep_near: Callable[[int], bool]) -> int | None:
        """An action towards facing a cell to place something on; ARRIVED when facing one.

        Stays where `keep_near` holds for the player's cell.
        """
        memory = self.memory
        ground, here = memory.ground, memory.here
        cost = self.cost()
        if OPEN[ground[memory.ahead]] and not self.blocked(memory.ahead):
            return ARRIVED
        for d in (memory.facing, *self.order):
            cell = here + STEPS[d]
            if self.blocked(cell):
                continue
            if OPEN[ground[cell]]:
                beyond = cell + STEPS[d]
                if keep_near(cell) and OPEN[ground[beyond]] and not self.blocked(beyond):
                    return MOVE + d
            elif cost[ground[cell]] and ground[cell] != WATER:
                return DO if memory.facing == d else MOVE + d
        for d in self.order:
            cell = here + STEPS[d]
            if OPEN[ground[cell]] and not self.blocked(cell) and keep_near(cell):
                return MOVE + d
        return None

    def enclosed(self, most: int = 60) -> bool:
        """Whether no creature can get to the player."""
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
