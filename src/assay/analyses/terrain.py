"""What a world is like at its start: how far the things are that a player needs.

Steps are those of a player who knows the map: one for a free cell, two for a cell of stone,
which has to be dug first. The world is made anew from what an episode recorded.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.analyses.episodes import EpisodeFacts, TaskWorld, world_of
from assay.crafter import World as CrafterWorld
from assay.crafter.rules import AREA, MATERIALS, OBJECTS, TASK, WALKABLE
from assay.errors import ReplayError
from assay.metrics import Replay
from assay.traces.load import load_sessions
from assay.traces.store import Store

__all__ = ["WANTED", "Terrain", "look_at", "make_worlds"]

WANTED: Final = ("tree", "water", "cow", "stone", "coal", "iron", "diamond")
"""What people look for, in the order they need it."""
_DIG: Final = ("stone", "coal", "iron", "diamond")
_FIRST_OBJECT: Final = len(MATERIALS)


@dataclass(frozen=True, slots=True)
class Terrain:
    """A world at its start."""

    steps: Mapping[str, int | None]
    """To stand beside the nearest of each; None where there is none, or no way."""
    map: tuple[tuple[int, ...], ...]
    """Ids of materials, 64 x 64, indexed [x][y]."""
    start: tuple[int, int]


def make_worlds(
    store: Store, facts: Sequence[EpisodeFacts], worlds: Sequence[TaskWorld]
) -> dict[TaskWorld, Terrain]:
    """The worlds of some episodes at their start, those of Crafter alone."""
    first: dict[TaskWorld, str] = {}
    for one in facts:
        world = world_of(one)
        if world in worlds and one.row.task.startswith(TASK):
            first.setdefault(world, one.id)
    with store.reading() as connection:
        sessions = list(load_sessions(connection, list(first.values()), messages=False))
    found: dict[TaskWorld, Terrain] = {}
    for world, session in zip(first, sessions, strict=True):
        try:
            found[world] = look_at(Replay(session).world)
        except ReplayError:
            continue  # another program's world, or one that says too little
    return found


def look_at(world: CrafterWorld) -> Terrain:
    """How far everything is from the player."""
    materials, standing = world.materials(), world.semantic()
    away = _steps(materials, world.player_pos)
    steps: dict[str, int | None] = {}
    for name in WANTED:
        if name in OBJECTS:
            cells = np.argwhere(standing == _FIRST_OBJECT + OBJECTS.index(name))
        else:
            cells = np.argwhere(materials == MATERIALS.index(name))
        steps[name] = _nearest(cells, away)
    return Terrain(steps, tuple(map(tuple, materials.tolist())), world.player_pos)


def _steps(materials: NDArray[np.uint8], start: tuple[int, int]) -> dict[tuple[int, int], int]:
    """The steps to every cell that can be stood on (Dijkstra, 1959)."""
    cost = {MATERIALS.index(name): 1 for name in WALKABLE}
    cost |= {MATERIALS.index(name): 2 for name in _DIG}
    grid = materials.tolist()
    away = {start: 0}
    queue = [(0, start)]
    while queue:
        done, (x, y) = heapq.heappop(queue)
        if done > away[x, y]:
            continue
        for cell in ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)):
            if not (0 <= cell[0] < AREA and 0 <= cell[1] < AREA):
                continue
            price = cost.get(grid[cell[0]][cell[1]])
            if price is not None and done + price < away.get(cell, 1 << 30):
                away[cell] = done + price
                heapq.heappush(queue, (away[cell], cell))
    return away


def _nearest(cells: NDArray[np.intp], away: Mapping[tuple[int, int], int]) -> int | None:
    beside = [
        away[x + dx, y + dy]
        for x, y in cells.tolist()
        for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1))
        if (x + dx, y + dy) in away
    ]
    return min(beside, default=None)
