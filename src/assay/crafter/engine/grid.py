"""Things on cells: add, remove and move them, and change the material of a cell.

Every kernel that changes a map uses these functions, because the maps, the slots of things,
their order within chunks and the counts per chunk must agree.
"""

from typing import Final

import numpy as np

from assay.crafter.engine.jit import inlined, kernel
from assay.crafter.engine.layout import (
    AIM,
    BROKEN,
    CAPACITY,
    CHUNK_FIELDS,
    CHUNKS,
    CHUNKS_ACROSS,
    CLOCK,
    COWS,
    FIELDS,
    FIRST,
    GRASS,
    HEALTH,
    HOLES,
    IS_OPEN,
    KIND,
    LAST,
    NEXT,
    OPENED,
    PATH,
    PREVIOUS,
    STATUS,
    USED,
    WIDTH,
    State,
    X,
    Y,
)
from assay.crafter.rules import CHUNK, MATERIALS, OBJECTS, WALKABLE

# Kinds of things; 0 is a hole. In semantic maps the id of a thing is 12 + kind.
PLAYER, COW, ZOMBIE, SKELETON, ARROW, PLANT = range(1, 1 + len(OBJECTS))

# Directions; STAY results from aiming at a target in the same row or column.
LEFT, RIGHT, UP, DOWN, STAY = range(5)
DX: Final = np.array([-1, 1, 0, 0, 0])
DY: Final = np.array([0, 0, -1, 1, 0])
OFFSET: Final = DX * WIDTH + DY
"""Change of the map index for a step in each direction."""

_GRASS: Final = MATERIALS.index("grass")
_PATH: Final = MATERIALS.index("path")


def material_mask(*names: str) -> int:
    """Return a set of materials as bits, for `mask >> material & 1`."""
    return sum(1 << MATERIALS.index(name) for name in names)


WALK: Final = material_mask(*WALKABLE)
PLAYER_WALK: Final = material_mask(*WALKABLE, "lava")
FLY: Final = material_mask(*WALKABLE, "water", "lava")


@inlined
def cell_at(x: int, y: int) -> int:
    """Return the map index of (x, y)."""
    return (x + 1) * WIDTH + y + 1


@inlined
def chunk_at(x: int, y: int) -> int:
    """Return the chunk of (x, y)."""
    return x // CHUNK * CHUNKS_ACROSS + y // CHUNK


@inlined
def distance(s: State, x: int, y: int) -> int:
    """Return the number of steps from the player to (x, y)."""
    return abs(s.things[X] - x) + abs(s.things[Y] - y)


@inlined
def _count_material(s: State, chunk: int, material: int, change: int) -> None:
    if material == _GRASS:
        s.chunks[chunk * CHUNK_FIELDS + GRASS] += change
    elif material == _PATH:
        s.chunks[chunk * CHUNK_FIELDS + PATH] += change


@kernel
def set_material(s: State, x: int, y: int, material: int) -> None:
    """Change the material of the cell (x, y)."""
    cell, chunk = cell_at(x, y), chunk_at(x, y)
    _count_material(s, chunk, s.materials[cell], -1)
    _count_material(s, chunk, material, 1)
    s.materials[cell] = material


@inlined
def _count_creature(s: State, chunk: int, kind: int, change: int) -> None:
    if COW <= kind <= SKELETON:
        s.chunks[chunk * CHUNK_FIELDS + COWS + kind - COW] += change


@kernel
def enter_chunk(s: State, slot: int, chunk: int) -> None:
    """Append a thing to the list of a chunk."""
    here = chunk * CHUNK_FIELDS
    if not s.chunks[here + IS_OPEN]:
        s.chunks[here + IS_OPEN] = 1
        s.chunks[here + FIRST] = s.chunks[here + LAST] = -1
        s.chunk_order[s.scalars[OPENED]] = chunk
        s.scalars[OPENED] += 1
    last = s.chunks[here + LAST]
    s.things[slot * FIELDS + PREVIOUS] = last
    s.things[slot * FIELDS + NEXT] = -1
    if last < 0:
        s.chunks[here + FIRST] = slot
    else:
        s.things[last * FIELDS + NEXT] = slot
    s.chunks[here + LAST] = slot
    _count_creature(s, chunk, s.things[slot * FIELDS + KIND], 1)


@kernel
def _leave_chunk(s: State, slot: int, chunk: int) -> None:
    here, base = chunk * CHUNK_FIELDS, slot * FIELDS
    before, after = s.things[base + PREVIOUS], s.things[base + NEXT]
    if before < 0:
        s.chunks[here + FIRST] = after
    else:
        s.things[before * FIELDS + NEXT] = after
    if after < 0:
        s.chunks[here + LAST] = before
    else:
        s.things[after * FIELDS + PREVIOUS] = before
    _count_creature(s, chunk, s.things[base + KIND], -1)


@kernel
def add_thing(s: State, kind: int, x: int, y: int, health: int, aim: int) -> None:
    """Put a new thing on an empty cell; if no slot is free, mark the world as broken."""
    slot = s.scalars[USED]
    if slot >= CAPACITY:
        s.scalars[STATUS] = BROKEN
        return
    s.scalars[USED] = slot + 1
    base = slot * FIELDS
    s.things[base + KIND] = kind
    s.things[base + X] = x
    s.things[base + Y] = y
    s.things[base + HEALTH] = health
    s.things[base + CLOCK] = 0
    s.things[base + AIM] = aim
    s.occupants[cell_at(x, y)] = slot + 1
    enter_chunk(s, slot, chunk_at(x, y))


@kernel
def remove_thing(s: State, slot: int) -> None:
    """Remove a thing from its cell; its slot becomes a hole."""
    base = slot * FIELDS
    x, y = s.things[base + X], s.things[base + Y]
    s.occupants[cell_at(x, y)] = 0
    _leave_chunk(s, slot, chunk_at(x, y))
    s.things[base + KIND] = 0
    s.scalars[HOLES] += 1


@inlined
def move_thing(s: State, slot: int, direction: int, mask: int) -> bool:
    """Move a thing one cell if the cell is free and its material is in `mask`."""
    base = slot * FIELDS
    x, y = s.things[base + X], s.things[base + Y]
    cell = cell_at(x, y)
    target = cell + OFFSET[direction]
    if s.occupants[target] or not mask >> s.materials[target] & 1:
        return False
    s.occupants[target] = slot + 1
    s.occupants[cell] = 0
    new_x, new_y = x + DX[direction], y + DY[direction]
    s.things[base + X] = new_x
    s.things[base + Y] = new_y
    old, new = chunk_at(x, y), chunk_at(new_x, new_y)
    if old != new:
        _leave_chunk(s, slot, old)
        enter_chunk(s, slot, new)
    return True


@kernel
def close_holes(s: State) -> None:
    """Compact the slots in order, so that none is a hole."""
    used = s.scalars[USED]
    live = 0
    for slot in range(used):
        # PREVIOUS of the old slot stores the new slot, to repair the links below.
        base, new = slot * FIELDS, live * FIELDS
        if s.things[base + KIND]:
            if slot != live:
                for field in range(PREVIOUS):
                    s.things[new + field] = s.things[base + field]
                cell = cell_at(s.things[new + X], s.things[new + Y])
                s.occupants[cell] = live + 1
            s.things[base + PREVIOUS] = live
            live += 1
    for chunk in range(CHUNKS):
        here = chunk * CHUNK_FIELDS
        if s.chunks[here + IS_OPEN] and s.chunks[here + FIRST] >= 0:
            s.chunks[here + FIRST] = s.things[s.chunks[here + FIRST] * FIELDS + PREVIOUS]
            s.chunks[here + LAST] = s.things[s.chunks[here + LAST] * FIELDS + PREVIOUS]
    for slot in range(live):
        after = s.things[slot * FIELDS + NEXT]
        if after >= 0:
            s.things[slot * FIELDS + NEXT] = s.things[after * FIELDS + PREVIOUS]
    for chunk in range(CHUNKS):
        here = chunk * CHUNK_FIELDS
        if s.chunks[here + IS_OPEN]:
            before, slot = -1, s.chunks[here + FIRST]
            while slot >= 0:
                s.things[slot * FIELDS + PREVIOUS] = before
                before, slot = slot, s.things[slot * FIELDS + NEXT]
    s.scalars[USED] = live
    s.scalars[HOLES] = 0
