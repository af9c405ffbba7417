"""Memory layout of one world: a block of bytes divided into typed sections.

Kernels see a block as a `State`, a tuple of typed sequences; Python sees the same memory as
numpy arrays. The maps have a border of one cell, so that looking one cell beyond the edge is an
ordinary read of material 0 with nothing on it: no kernel has to compare a coordinate with the
size of the world.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from assay.crafter.engine.jit import Ints, Reals, inlined, pointer, register
from assay.crafter.rules import ACHIEVEMENTS, AREA, CHUNK, ITEMS

WIDTH: Final = AREA + 2
"""Distance in the maps between (x, y) and (x + 1, y)."""
CELLS: Final = WIDTH * WIDTH
"""Length of a map with its border."""
CHUNKS_ACROSS: Final = -(-AREA // CHUNK)
CHUNKS: Final = CHUNKS_ACROSS * CHUNKS_ACROSS
CAPACITY: Final = 1024
"""Maximum number of things in a world, including the holes of removed ones."""

# Indices into `scalars`. Hunger, thirst and recovery change by halves and are stored doubled.
SEED: Final = 0
EPISODE: Final = 1
STEP: Final = 2
LENGTH: Final = 3
STATUS: Final = 4
FACING: Final = 5
SLEEPING: Final = 6
HUNGER: Final = 7
THIRST: Final = 8
FATIGUE: Final = 9
RECOVER: Final = 10
FELT_HEALTH: Final = 11
"""Health in the step before; the player wakes up when it falls."""
PAID_HEALTH: Final = 12
"""Health already counted in rewards."""
POSITION: Final = 13
"""Index of the next word of the random generator; 624 if a new block is needed."""
USED: Final = 14
"""Number of slots of `things` in use, holes included; slot 0 is the player."""
HOLES: Final = 15
OPENED: Final = 16
"""Number of chunks that have ever contained a thing; see `chunk_order`."""
NEW: Final = 17
"""Achievements unlocked for the first time in this step, as bits; 0 between steps."""
INVENTORY: Final = 18
COUNTS: Final = INVENTORY + len(ITEMS)
"""Number of times each achievement was reached."""
SCALARS: Final = COUNTS + len(ACHIEVEMENTS)

# Values of STATUS.
RUNNING: Final = 0
DIED: Final = 1
TIME_UP: Final = 2
BROKEN: Final = 3

# Fields of one thing. A hole has kind 0.
KIND: Final = 0
X: Final = 1
Y: Final = 2
HEALTH: Final = 3
CLOCK: Final = 4
"""A zombie's cooldown, a skeleton's reload time, a plant's growth."""
AIM: Final = 5
"""Direction of an arrow, as in `FACING`."""
NEXT: Final = 6
"""Slot of the thing that entered the same chunk after this one, or -1."""
PREVIOUS: Final = 7
FIELDS: Final = 8

# Fields of one chunk.
FIRST: Final = 0
LAST: Final = 1
GRASS: Final = 2
PATH: Final = 3
COWS: Final = 4
ZOMBIES: Final = 5
SKELETONS: Final = 6
IS_OPEN: Final = 7
CHUNK_FIELDS: Final = 8


class State(NamedTuple):
    """One world, as kernels see it."""

    scalars: Ints
    parameters: Reals
    chunks: Ints
    chunk_order: Ints
    words: Ints
    materials: Ints
    occupants: Ints
    things: Ints


PARAMETERS: Final = 32
"""Space for the parameters of a difficulty."""

SECTIONS: Final = {
    "scalars": ("int32", SCALARS),
    "parameters": ("float64", PARAMETERS),
    "chunks": ("int16", CHUNKS * CHUNK_FIELDS),
    "chunk_order": ("uint8", CHUNKS),
    "words": ("uint32", 624),
    "materials": ("uint8", CELLS),
    "occupants": ("int16", CELLS),
    "things": ("int16", CAPACITY * FIELDS),
}
"""Type and length of each section, in the order of `State`."""

assert tuple(SECTIONS) == State._fields


def _compute_offsets() -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for name, (dtype, count) in SECTIONS.items():
        offsets[name] = end
        size = np.dtype(dtype).itemsize * count
        end += -(-size // 64) * 64
    return offsets, end


_OFFSET, BLOCK = _compute_offsets()
"""BLOCK is the size of one world in bytes, a multiple of 64."""

_SCALARS, _PARAMETERS = _OFFSET["scalars"], _OFFSET["parameters"]
_CHUNKS, _CHUNK_ORDER = _OFFSET["chunks"], _OFFSET["chunk_order"]
_WORDS, _MATERIALS = _OFFSET["words"], _OFFSET["materials"]
_OCCUPANTS, _THINGS = _OFFSET["occupants"], _OFFSET["things"]

INT16, int16_at = pointer("int16")
INT32, int32_at = pointer("int32")
INT64, int64_at = pointer("int64")
UINT8, uint8_at = pointer("uint8")
UINT16, uint16_at = pointer("uint16")
UINT32, uint32_at = pointer("uint32")
UINT64, uint64_at = pointer("uint64")
FLOAT64, float64_at = pointer("float64")

register(
    State,
    types.NamedTuple([INT32, FLOAT64, INT16, UINT8, UINT32, UINT8, INT16, INT16], State),
)


@inlined
def state(address: int) -> State:
    """Return the world whose block starts at `address`."""
    return State(
        int32_at(address + _SCALARS, SCALARS),
        float64_at(address + _PARAMETERS, PARAMETERS),
        int16_at(address + _CHUNKS, CHUNKS * CHUNK_FIELDS),
        uint8_at(address + _CHUNK_ORDER, CHUNKS),
        uint32_at(address + _WORDS, 624),
        uint8_at(address + _MATERIALS, CELLS),
        int16_at(address + _OCCUPANTS, CELLS),
        int16_at(address + _THINGS, CAPACITY * FIELDS),
    )


def new_blocks(count: int) -> NDArray[np.uint8]:
    """Allocate memory for `count` worlds, (count, BLOCK), each aligned to 64 bytes."""
    memory = np.zeros(count * BLOCK + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    return memory[skip : skip + count * BLOCK].reshape(count, BLOCK)


def section(block: NDArray[np.uint8], name: str) -> NDArray[np.generic]:
    """Return one section of a world's block as an array on the same memory."""
    dtype, count = SECTIONS[name]
    start = _OFFSET[name]
    return block[start : start + np.dtype(dtype).itemsize * count].view(dtype)
