"""The cheapest way over the remembered map. Knows cells and costs, no goals."""

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import NamedTuple

from assay.players.expert.terrain import DIGGABLE, GRASS, OPEN, WATER

__all__ = ["Way", "costs", "search"]

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
