"""A world as canonical bytes, and back.

Equal states give equal bytes, independent of the slots, holes and links of their blocks: live
things are written in order without holes, and so is the order of things within chunks.
Everything is little-endian and at a fixed offset, except for the two lists of things at the
end.

    offset  content
         0  magic, format version (uint16), 0 (uint16), total length (uint32)
        16  float64[32]   the parameters of the difficulty
       272  uint32[624]   the random generator
      2768  int32[56]     scalars (see layout), with USED as the number of live things
      2992  uint8[64, 64] materials, [x, y]
      7088  uint8[40]     chunks in the order they were opened, then 255
      7128  int16[n, 6]   kind, x, y, health, clock, aim
         …  int16[n]      the things in the order of their chunks
            zeros up to a multiple of 32
"""

import sys
from typing import Final

import numpy as np

from assay.crafter.engine.grid import cell_at, chunk_at, enter_chunk, set_material
from assay.crafter.engine.jit import entry
from assay.crafter.engine.layout import (
    CAPACITY,
    CELLS,
    CHUNK_FIELDS,
    CHUNKS,
    FIELDS,
    FIRST,
    HOLES,
    IS_OPEN,
    KIND,
    LAST,
    NEXT,
    OPENED,
    PARAMETERS,
    SCALARS,
    USED,
    X,
    Y,
    float64_at,
    int16_at,
    int32_at,
    state,
    uint8_at,
    uint32_at,
)
from assay.crafter.rules import AREA

SNAPSHOT_VERSION: Final = 1
MAGIC: Final = b"ASSAYCRF"
PARAMETERS_AT: Final = 16
WORDS_AT: Final = PARAMETERS_AT + 8 * PARAMETERS
SCALARS_AT: Final = WORDS_AT + 4 * 624
MATERIALS_AT: Final = SCALARS_AT + 4 * SCALARS
ORDER_AT: Final = MATERIALS_AT + AREA * AREA
ORDER_ROOM: Final = 40
THINGS_AT: Final = ORDER_AT + ORDER_ROOM
THING_FIELDS: Final = 6
PER_THING: Final = 2 * (THING_FIELDS + 1)
UNUSED: Final = 255
_MAGIC_BYTES: Final = np.frombuffer(MAGIC, np.uint8).astype(np.int64)

MAX_SNAPSHOT: Final = -(-(THINGS_AT + PER_THING * CAPACITY) // 32) * 32
"""Maximum size of a snapshot in bytes."""

assert sys.byteorder == "little", "assay.crafter runs on little-endian machines only"
assert SCALARS == 56 and KIND == 0


@entry
def pack(address: int, out: int) -> int:
    """Write the world at `address` to the MAX_SNAPSHOT bytes at `out`; return its length."""
    s = state(address)
    raw = uint8_at(out, MAX_SNAPSHOT)
    parameters = float64_at(out + PARAMETERS_AT, PARAMETERS)
    for i in range(PARAMETERS):
        parameters[i] = s.parameters[i]
    words = uint32_at(out + WORDS_AT, 624)
    for i in range(624):
        words[i] = s.words[i]
    for x in range(AREA):
        for y in range(AREA):
            raw[MATERIALS_AT + x * AREA + y] = s.materials[cell_at(x, y)]
    opened = s.scalars[OPENED]
    for i in range(ORDER_ROOM):
        raw[ORDER_AT + i] = s.chunk_order[i] if i < opened else UNUSED

    # Slots become ranks among live things; the rank of a hole is never read.
    ranks = np.empty(CAPACITY, np.int16)
    live = 0
    things = int16_at(out + THINGS_AT, THING_FIELDS * CAPACITY)
    for slot in range(s.scalars[USED]):
        if s.things[slot * FIELDS + KIND]:
            for field in range(THING_FIELDS):
                things[live * THING_FIELDS + field] = s.things[slot * FIELDS + field]
            ranks[slot] = live
            live += 1
    order = int16_at(out + THINGS_AT + 2 * THING_FIELDS * live, live)
    written = 0
    for i in range(opened):
        slot = s.chunks[s.chunk_order[i] * CHUNK_FIELDS + FIRST]
        while slot >= 0:
            order[written] = ranks[slot]
            written += 1
            slot = s.things[slot * FIELDS + NEXT]

    scalars = int32_at(out + SCALARS_AT, SCALARS)
    for i in range(SCALARS):
        scalars[i] = s.scalars[i]
    scalars[USED] = live
    scalars[HOLES] = 0
    end = THINGS_AT + PER_THING * live
    length = (end + 31) // 32 * 32
    for i in range(end, length):
        raw[i] = 0
    for i in range(8):
        raw[i] = _MAGIC_BYTES[i]
    header = int32_at(out, 4)
    header[2] = SNAPSHOT_VERSION
    header[3] = length
    return length


@entry
def unpack(address: int, data: int) -> None:
    """Create the world at `address` from validated bytes at `data`."""
    s = state(address)
    raw = uint8_at(data, MAX_SNAPSHOT)
    parameters = float64_at(data + PARAMETERS_AT, PARAMETERS)
    for i in range(PARAMETERS):
        s.parameters[i] = parameters[i]
    words = uint32_at(data + WORDS_AT, 624)
    for i in range(624):
        s.words[i] = words[i]
    scalars = int32_at(data + SCALARS_AT, SCALARS)
    for i in range(SCALARS):
        s.scalars[i] = scalars[i]
    for i in range(CHUNKS * CHUNK_FIELDS):
        s.chunks[i] = 0
    for cell in range(CELLS):
        s.materials[cell] = 0
        s.occupants[cell] = 0
    for x in range(AREA):
        for y in range(AREA):
            set_material(s, x, y, raw[MATERIALS_AT + x * AREA + y])
    for i in range(scalars[OPENED]):
        chunk = raw[ORDER_AT + i]
        s.chunk_order[i] = chunk
        s.chunks[chunk * CHUNK_FIELDS + IS_OPEN] = 1
        s.chunks[chunk * CHUNK_FIELDS + FIRST] = -1
        s.chunks[chunk * CHUNK_FIELDS + LAST] = -1
    live = scalars[USED]
    things = int16_at(data + THINGS_AT, THING_FIELDS * CAPACITY)
    for slot in range(live):
        base = slot * FIELDS
        for field in range(THING_FIELDS):
            s.things[base + field] = things[slot * THING_FIELDS + field]
        s.occupants[cell_at(s.things[base + X], s.things[base + Y])] = slot + 1
    order = int16_at(data + THINGS_AT + 2 * THING_FIELDS * live, live)
    for i in range(live):
        slot = order[i]
        x, y = s.things[slot * FIELDS + X], s.things[slot * FIELDS + Y]
        enter_chunk(s, slot, chunk_at(x, y))
