"""Films: an episode as one small frame per step, and the tiles that draw them.

A frame has `FRAME` bytes: the numbers of the 63 tiles in view, row by row; the counts of all
items; a byte of flags; and the player's position. A tile is a material, or a sprite on a
material. The same tiles make the whole map. `sheet` has the pixels of all tiles, so that a
program without this package can draw a frame as `render` does. Filming never changes a world.
"""

from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.crafter.engine.layout import (
    AIM,
    CLOCK,
    DIED,
    FACING,
    FIELDS,
    INVENTORY,
    KIND,
    SCALARS,
    SLEEPING,
    STATUS,
    X,
    Y,
    section,
)
from assay.crafter.engine.look import VIEW_BYTES, look
from assay.crafter.render import NIGHT, SPRITES, draw_item, draw_materials, draw_sprite
from assay.crafter.rules import AREA, ITEMS, MATERIALS, MAX_ITEM, OBJECTS, RIPE_AFTER, VIEW
from assay.crafter.world import World

SPRITE_NAMES: Final = tuple(SPRITES.values())
"""All sprites; tile 13 + 13 * sprite + material is a sprite on a material."""
TILES: Final = len(MATERIALS) * (1 + len(SPRITE_NAMES))
"""Number of tiles; the first 13 are the materials."""
ASLEEP, DEAD = 1, 2
"""Flags of a frame."""
_CELLS: Final = VIEW[0] * VIEW[1]
FRAME: Final = _CELLS + len(ITEMS) + 3
"""Bytes of a frame."""
_PLAYER = len(MATERIALS)
_ARROW, _PLANT = (_PLAYER + OBJECTS.index(name) for name in ("arrow", "plant"))


def _make_offsets() -> NDArray[np.uint8]:
    """Return what to add to the number of a material, by object id and detail."""
    offsets = np.zeros((len(MATERIALS) + len(OBJECTS), 5), np.uint8)
    for number, (thing, detail) in enumerate(SPRITES, 1):
        offsets[thing, detail] = number * len(MATERIALS)
    return offsets


_OFFSETS: Final = _make_offsets()


class Camera:
    """Takes frames of one world while it is played."""

    def __init__(self, world: World, most: int) -> None:
        self._address, self._taken = world._block.ctypes.data, 0
        self._scalars = section(world._block, "scalars")
        self._place = section(world._block, "things")[X : Y + 1]
        # Arrays are filled with few calls per frame, and decoded together.
        self._seen = np.empty((most, VIEW_BYTES), np.uint8)
        self._states = np.empty((most, SCALARS), np.int32)
        self._places = np.empty((most, 2), np.uint8)
        self._out = self._seen.ctypes.data

    def take(self) -> None:
        """Take a frame of the world in its current state."""
        place = self._taken
        look(self._address, self._out + place * VIEW_BYTES)
        self._states[place] = self._scalars
        self._places[place] = self._place
        self._taken = place + 1

    def frames(self) -> NDArray[np.uint8]:
        """Return the frames taken so far, (frames, FRAME)."""
        count = self._taken
        states, places = self._states[:count], self._places[:count]
        seen = self._seen[:count].reshape(count, 3, *VIEW)
        materials, things, details = seen.transpose(1, 0, 3, 2).reshape(3, count, _CELLS)
        asleep, died = states[:, SLEEPING, None] > 0, states[:, STATUS, None] == DIED
        details = np.where(asleep & (things == _PLAYER), 0, details)
        tiles = materials + _OFFSETS[things, details]
        items = states[:, INVENTORY : INVENTORY + len(ITEMS)]
        parts = [tiles, items, ASLEEP * asleep + DEAD * died, places]
        frames: NDArray[np.uint8] = np.hstack(parts).astype(np.uint8)
        return frames


def film_frame(world: World) -> NDArray[np.uint8]:
    """Return one frame of a world, (FRAME,)."""
    camera = Camera(world, 1)
    camera.take()
    frame: NDArray[np.uint8] = camera.frames()[0]
    return frame


def map_tiles(world: World) -> NDArray[np.uint8]:
    """Return the tiles of the whole map, (64 * 64,) row by row."""
    block = world._block
    occupants = section(block, "occupants").reshape(AREA + 2, AREA + 2)[1:-1, 1:-1].T
    materials = world.materials().T
    tiles = materials.copy()
    ys, xs = occupants.nonzero()
    things = section(block, "things").reshape(-1, FIELDS)[occupants[ys, xs] - 1]
    kinds = things[:, KIND] + _PLAYER - 1
    details = np.where(kinds == _ARROW, 1 + things[:, AIM], 0)
    details[(kinds == _PLANT) & (things[:, CLOCK] > RIPE_AFTER)] = 1
    if not world.sleeping:
        details[kinds == _PLAYER] = 1 + section(block, "scalars")[FACING]
    tiles[ys, xs] += _OFFSETS[kinds, details]
    flat: NDArray[np.uint8] = tiles.reshape(-1)
    return flat


class Sheet(NamedTuple):
    """The pixels of all tiles at one size; each is (unit, unit, 3)."""

    day: NDArray[np.uint8]
    """All tiles by day, (TILES, unit, unit, 3)."""
    faded: NDArray[np.uint8]
    """All tiles with the colours of the night, before its tint is added."""
    items: NDArray[np.uint8]
    """Each item with a count from 1 to 9, (items * 9, unit, unit, 3)."""


@cache
def sheet(unit: int) -> Sheet:
    """Return all tiles, with `unit` pixels a cell."""
    both = np.concatenate(
        [
            draw_materials((unit, unit)),
            *(
                draw_sprite((unit, unit), material, sprite)
                for sprite in SPRITE_NAMES
                for material in range(len(MATERIALS))
            ),
        ]
    )
    items = [
        draw_item((unit, unit), name, count)
        for name in ITEMS
        for count in range(1, MAX_ITEM + 1)
    ]
    day, night = both[:, 0], both[:, 1]
    return Sheet(
        day.astype(np.uint8),
        (night - np.array(NIGHT, np.uint16)).astype(np.uint8),
        np.stack(items),
    )
