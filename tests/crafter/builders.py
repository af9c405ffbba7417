"""Saved worlds put together by hand, for tests of odd and crowded states."""

import struct

from assay.crafter import World

from .saved import SCALAR, Saved, chunk_of

SCALARS_AT, WORDS_AT, PARAMETERS_AT, MATERIALS_AT = 2768, 272, 16, 2992
PLAYER, COW, ZOMBIE, SKELETON, ARROW, PLANT = range(1, 7)
GRASS = 2
WALKABLE = (2, 4, 5)
GROUND = {
    PLAYER: (*WALKABLE, 7),
    COW: WALKABLE,
    ZOMBIE: WALKABLE,
    SKELETON: WALKABLE,
    ARROW: (*WALKABLE, 1, 7),
    PLANT: (GRASS,),
}
HEALTH = {PLAYER: 0, COW: 3, ZOMBIE: 5, SKELETON: 3, ARROW: 0, PLANT: 1}
CLOCK = {PLAYER: 0, COW: 0, ZOMBIE: 5, SKELETON: 4, ARROW: 0, PLANT: 32_000}
Things = list[list[int]]


def arrange(saved: Saved, things: Things) -> Saved:
    """Give a saved world these things, in this order; the first is the player."""
    groups: dict[int, list[int]] = {chunk: [] for chunk in saved.chunks}
    for index, (_, x, y, *_) in enumerate(things):
        groups.setdefault(chunk_of(x, y), []).append(index)
    saved.things, saved.chunks = things, list(groups)
    saved.order = [index for group in groups.values() for index in group]
    return saved


def full_health(kind: int, x: int, y: int, *, aim: int = 0) -> list[int]:
    return [kind, x, y, HEALTH[kind], 0, aim if kind == ARROW else 4]


def crowd(count: int, kind: int = PLANT) -> Saved:
    """A meadow with this many things, the player in a corner with a free cell before it."""
    saved = Saved.read(World(0).snapshot())
    saved.materials[:] = GRASS
    saved.scalars[SCALAR["facing"]] = 1
    saved.inventory[4] = 9
    cells = [divmod(cell, 64) for cell in range(2, 4096) if cell not in (64, 128)]
    others = [full_health(kind, x, y) for x, y in cells[: count - 1]]
    return arrange(saved, [full_health(PLAYER, 0, 0), *others])


def with_int(data: bytes, offset: int, value: int, kind: str = "<i") -> bytes:
    changed = bytearray(data)
    struct.pack_into(kind, changed, offset, value)
    return bytes(changed)
