"""Scouting: where to look next, for minerals, for cows, or for anything at all."""

from typing import Final

from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.terrain import (
    ACROSS,
    CORNER,
    GRASS,
    HIGH,
    NOOP,
    STRIDE,
    UNKNOWN,
)
from assay.crafter.players.expert.walker import ARRIVED, Test, Walker

_ROCKY: Final = 8
"""So many cells of rock in view promise minerals."""
_WORTH_SEEING: Final = 8
"""So many unknown cells in view make a cell worth exploring from."""
_WIDE: Final = 20
"""So many make it a good one."""


def explore(walker: Walker, *, rock: bool = False) -> int | None:
    """The next action towards cells that were never seen, with `rock` near rock first."""
    places = [
        ("explore", _WIDE, 0, 60),
        ("explore edges", _WORTH_SEEING, 0, 1000),
        ("explore rest", 1, 0, 1000),
    ]
    if rock:
        places.insert(0, ("explore rock", _WIDE, _ROCKY, 60))
    for key, least, rocky, limit in places:
        action = walker.approach(key, _overlooking(walker.memory, least, rocky), limit=limit)
        if action is not None:
            return NOOP if action == ARRIVED else action
    return None


def explore_near(walker: Walker, centre: int, radius: int) -> int | None:
    """Explore without going further than `radius` from a cell."""
    x, y = divmod(centre, STRIDE)
    overlooking = _overlooking(walker.memory, _WORTH_SEEING)

    def goal(cell: int) -> int:
        far = abs(cell // STRIDE - x) + abs(cell % STRIDE - y)
        return overlooking(cell) if far <= radius else 0

    action = walker.approach("explore near", goal, limit=2 * radius)
    return NOOP if action == ARRIVED else action


def patrol(walker: Walker, stale: int = 250) -> int | None:
    """The next action towards grass that was never seen, else not for long."""
    memory = walker.memory
    ground, visited, block = memory.ground, memory.visited, memory.block
    wide, narrow = (
        _overlooking(walker.memory, _WIDE),
        _overlooking(walker.memory, _WORTH_SEEING),
    )

    def meadow(cell: int) -> int:
        if ground[cell] != GRASS or not wide(cell):
            return 0
        return cell if memory.grass_around(cell) >= _WIDE else 0

    def unseen(cell: int) -> int:
        return narrow(cell) if ground[cell] == GRASS else 0

    def unvisited(cell: int) -> int:
        long_ago = memory.step - visited.get(block(cell), -10_000) > stale
        return cell if ground[cell] == GRASS and long_ago else 0

    for key, goal in (
        ("patrol", meadow),
        ("patrol edges", unseen),
        ("patrol again", unvisited),
    ):
        action = walker.approach(key, goal)
        if action is not None:
            return NOOP if action == ARRIVED else action
    return None


def _overlooking(memory: Memory, least: int, rocky: int = 0) -> Test:
    ground, rock_around = memory.ground, memory.rock_around
    reach = (ACROSS // 2 * STRIDE, -(ACROSS // 2) * STRIDE, HIGH // 2, -(HIGH // 2))
    corners = (CORNER, -CORNER, CORNER + HIGH - 1, -CORNER - HIGH + 1)
    spots = (*reach, *corners)

    def goal(cell: int) -> int:
        for spot in spots:
            if ground[cell + spot] == UNKNOWN:
                break
        else:
            return 0
        left = cell + CORNER
        unknown = 0
        for at in range(left, left + ACROSS * STRIDE, STRIDE):
            unknown += ground.count(UNKNOWN, at, at + HIGH)
        return cell if unknown >= least and rock_around(cell) >= rocky else 0

    return goal
