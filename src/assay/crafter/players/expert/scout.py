"""Scouting: where to look for minerals, cows or unexplored cells."""

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
from assay.crafter.players.expert.walker import ARRIVED, CellGoal, Walker

_ROCKY: Final = 8
"""Number of visible rock cells that promises minerals."""
_FEW_UNKNOWN: Final = 8
"""Number of unknown visible cells that makes a position worth exploring."""
_MANY_UNKNOWN: Final = 20
"""Number of unknown visible cells that makes a position a good one."""


def explore(walker: Walker, *, rock: bool = False) -> int | None:
    """Return the next action towards unexplored cells; with `rock`, near rock first."""
    places = [
        ("explore", _MANY_UNKNOWN, 0, 60),
        ("explore edges", _FEW_UNKNOWN, 0, 1000),
        ("explore rest", 1, 0, 1000),
    ]
    if rock:
        places.insert(0, ("explore rock", _MANY_UNKNOWN, _ROCKY, 60))
    for key, least, rocky, limit in places:
        action = walker.approach(key, _make_goal(walker.memory, least, rocky), limit=limit)
        if action is not None:
            return NOOP if action == ARRIVED else action
    return None


def explore_near(walker: Walker, centre: int, radius: int) -> int | None:
    """Return the next action towards unexplored cells within `radius` of a cell."""
    x, y = divmod(centre, STRIDE)
    is_unexplored = _make_goal(walker.memory, _FEW_UNKNOWN)

    def goal(cell: int) -> int:
        far = abs(cell // STRIDE - x) + abs(cell % STRIDE - y)
        return is_unexplored(cell) if far <= radius else 0

    action = walker.approach("explore near", goal, limit=2 * radius)
    return NOOP if action == ARRIVED else action


def patrol(walker: Walker, stale: int = 250) -> int | None:
    """Return the next action towards unexplored grass, or grass not visited recently."""
    memory = walker.memory
    ground, visited, block = memory.ground, memory.visited, memory.find_block
    wide, narrow = (
        _make_goal(walker.memory, _MANY_UNKNOWN),
        _make_goal(walker.memory, _FEW_UNKNOWN),
    )

    def meadow(cell: int) -> int:
        if ground[cell] != GRASS or not wide(cell):
            return 0
        return cell if memory.grass_around(cell) >= _MANY_UNKNOWN else 0

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


def _make_goal(memory: Memory, least: int, rocky: int = 0) -> CellGoal:
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
