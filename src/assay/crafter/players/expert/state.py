"""The expert's state between decisions as bytes, and back.

    version | CRC-32 of the rest | deflated: player, things, routes, map

The state omits what follows from the next view: fence, arrows, daylight. Input is not trusted:
bytes that cannot have been written raise `DamagedMemory`, and every cell read is inside the
map.
"""

import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from assay.crafter.players.expert.combat import Combat
from assay.crafter.players.expert.memory import Memory, Plant
from assay.crafter.players.expert.needs import Garden, Needs
from assay.crafter.players.expert.shelter import Burrow, Shelter
from assay.crafter.players.expert.terrain import (
    ACROSS,
    CELLS,
    COW,
    GRASS,
    HIGH,
    OFFSETS,
    PATH,
    PLANT,
    START,
    STEPS,
    STONE,
    STRIDE,
    UNKNOWN,
)
from assay.crafter.players.expert.walker import Route, Walker
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, AREA, ITEMS, MATERIALS, MAX_ITEM

MAX_BYTES: Final = 16_384
"""Maximum size of a state before compression; the map of a whole world takes a third."""
_MAX_TEXT: Final = 40
_MAX_NUMBER: Final = 10**9
MIDDLE: Final = START // STRIDE
"""Start coordinate of the expert, along both axes."""


class DamagedMemory(Exception):
    """The bytes were not written by a `Packer`, or have changed since."""


def is_within(cell: int, reach: int) -> bool:
    """Return whether a cell is at most `reach` from the start along each axis."""
    x, y = divmod(cell, STRIDE)
    return abs(x - MIDDLE) <= reach and abs(y - MIDDLE) <= reach


class Packer:
    """Appends small numbers, cells and words to `data`."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write_number(self, value: int) -> None:
        """Write a number from 0; small numbers take one byte."""
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    def write_cell(self, cell: int) -> None:
        """Write a cell in two bytes."""
        self.data += bytes(divmod(cell, STRIDE))

    def write_text(self, text: str) -> None:
        """Write a short ASCII word."""
        self.write_number(len(text))
        self.data += text.encode("ascii")


class Unpacker:
    """Reads values from bytes, in the order in which they were written."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = 0

    def read(self, count: int) -> bytes:
        """Read the next `count` bytes."""
        taken = self._data[self._next : self._next + count]
        if len(taken) != count:
            raise DamagedMemory("too short")
        self._next += count
        return taken

    def read_number(self, maximum: int = _MAX_NUMBER) -> int:
        """Read a number from 0 to `maximum`."""
        value = shift = 0
        while True:
            (byte,) = self.read(1)
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 28:
                raise DamagedMemory("a number is too long")
        if value > maximum:
            raise DamagedMemory(f"{value} is more than {maximum}")
        return value

    def read_cell(self, reach: int) -> int:
        """Read a cell at most `reach` from the start along each axis."""
        x, y = self.read(2)
        if abs(x - MIDDLE) > reach or abs(y - MIDDLE) > reach:
            raise DamagedMemory(f"the cell {x}, {y} is too far away")
        return x * STRIDE + y

    def read_text(self) -> str:
        """Read a short word."""
        word = self.read(self.read_number(_MAX_TEXT))
        if not word.isascii():
            raise DamagedMemory("a word is not ASCII")
        return word.decode("ascii")

    def check_end(self) -> None:
        """Raise DamagedMemory if bytes are left."""
        if self._next != len(self._data):
            raise DamagedMemory("too long")


def compress(data: bytes, hint: bytes) -> bytes:
    """Compress bytes and prepend a checksum; `hint` has words likely to occur in them."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=hint)
    packed = compressor.compress(data) + compressor.flush()
    return zlib.crc32(packed).to_bytes(4, "big") + packed


def decompress(data: bytes, hint: bytes) -> bytes:
    """Return the input of `compress`, up to MAX_BYTES."""
    if zlib.crc32(data[4:]) != int.from_bytes(data[:4]):
        raise DamagedMemory("cut off or altered")
    compressor = zlib.decompressobj(-15, zdict=hint)
    try:
        plain = compressor.decompress(data[4:], MAX_BYTES)
    except zlib.error:
        raise DamagedMemory("not deflated bytes") from None
    if not compressor.eof or compressor.unused_data:
        raise DamagedMemory("cut off, or too much")
    return plain


_VERSION: Final = 1
MAX_WALKED: Final = AREA - 1
"""Maximum distance of the player from its start, along one axis."""
_MAX_SEEN: Final = MAX_WALKED + ACROSS // 2
_MAX_NAMED: Final = _MAX_SEEN + 1
_MAX_COUNT: Final = 500
"""Maximum length of a list; there are 324 blocks of 8x8 cells, and far fewer of the rest."""
_WORDS: Final = (
    b"tunnel: explore edges rest rock collect coal 40 iron 60 collect diamond 1000 go 11 20 "
    b"1000 deep burrow with gaps entrance fight skeleton fight zombie patrol again cow 25 "
    b"cow 8 cow 6 cow 10 water 30 water 10 collect wood 12 collect stone 2 collect stone 4"
) + b"".join(bytes([ground]) * 40 for ground in (STONE, PATH, GRASS, UNKNOWN))
"""Likely content, the most likely last; part of the format."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an expert that have a state."""

    memory: Memory
    walker: Walker
    combat: Combat
    needs: Needs
    garden: Garden
    shelter: Shelter


def write_state(parts: Parts) -> bytes:
    """Return the state as bytes; equal states give equal bytes."""
    out = Packer()
    _write_player(out, parts)
    _write_things(out, parts.memory)
    _write_routes(out, parts)
    _write_ground(out, parts.memory.ground)
    return bytes([_VERSION]) + compress(bytes(out.data), _WORDS)


def read_state(data: bytes, parts: Parts) -> None:
    """Restore a written state into the parts of a new expert, or raise DamagedMemory."""
    if data[:1] != bytes([_VERSION]):
        raise DamagedMemory("another version")
    source = Unpacker(decompress(data[1:], _WORDS))
    _read_player(source, parts)
    _read_things(source, parts.memory)
    _read_routes(source, parts)
    _read_ground(source, parts.memory.ground)
    source.check_end()


def _write_player(out: Packer, parts: Parts) -> None:
    memory, combat = parts.memory, parts.combat
    out.write_number(memory.step)
    out.write_cell(memory.here)
    flags = (
        memory.could_act,
        memory.sleeping,
        parts.needs.drinking,
        parts.garden.returning,
        parts.shelter.resting,
        bool(memory.inventory),
    )
    out.write_number(memory.facing)
    out.write_number(sum(flag << i for i, flag in enumerate(flags)))
    out.write_number(memory.action)
    out.write_number(combat.chased)
    out.write_number(max(0, combat.tired_until - memory.step))
    out.data += bytes(memory.inventory.get(item, 0) for item in ITEMS)
    out.write_number(sum((name in memory.done) << i for i, name in enumerate(ACHIEVEMENTS)))


def _read_player(source: Unpacker, parts: Parts) -> None:
    memory, combat = parts.memory, parts.combat
    memory.step = source.read_number()
    memory.here = source.read_cell(MAX_WALKED)
    memory.facing = source.read_number(len(STEPS) - 1)
    memory.ahead = memory.here + STEPS[memory.facing]
    flags = source.read_number(63)
    memory.could_act, memory.sleeping = bool(flags & 1), bool(flags & 2)
    parts.needs.drinking, parts.garden.returning = bool(flags & 4), bool(flags & 8)
    parts.shelter.resting = bool(flags & 16)
    memory.action = source.read_number(len(ACTIONS) - 1)
    combat.chased = source.read_number(_MAX_COUNT)
    combat.tired_until = memory.step + source.read_number(_MAX_COUNT)
    counts = source.read(len(ITEMS))
    if max(counts) > MAX_ITEM:
        raise DamagedMemory(f"a count is {max(counts)}")
    if flags & 32:
        memory.inventory = dict(zip(ITEMS, counts, strict=True))
    done = source.read_number((1 << len(ACHIEVEMENTS)) - 1)
    memory.done = {name for i, name in enumerate(ACHIEVEMENTS) if done >> i & 1}


def _write_things(out: Packer, memory: Memory) -> None:
    out.write_number(len(memory.things))
    # Things are in view, so that one byte is enough for the position.
    for cell, kind in memory.things.items():
        out.data += bytes((_VIEW_INDEX[cell - memory.here], kind))
    for creatures in (memory.cows, memory.skeletons):
        out.write_number(len(creatures))
        for cell, seen in creatures.items():
            out.write_cell(cell)
            out.write_number(max(0, memory.step - seen))
    out.write_number(len(memory.visited))
    for block, seen in memory.visited.items():
        out.write_cell(block)
        out.write_number(max(0, memory.step - seen))
    out.write_number(len(memory.plants))
    for cell, plant in memory.plants.items():
        out.write_cell(cell)
        out.write_number(plant.grown << 1 | plant.ripe)


_VIEW_INDEX: Final = {offset: i for i, offset in enumerate(OFFSETS)}


def _read_things(source: Unpacker, memory: Memory) -> None:
    for _ in range(source.read_number(len(OFFSETS))):
        place, kind = source.read(2)
        if place >= len(OFFSETS) or not COW <= kind <= PLANT:
            raise DamagedMemory(f"invalid thing {kind} at {place}")
        memory.things[memory.here + OFFSETS[place]] = kind
    for creatures in (memory.cows, memory.skeletons):
        for _ in range(source.read_number(_MAX_COUNT)):
            cell = source.read_cell(_MAX_SEEN)
            creatures[cell] = memory.step - source.read_number()
    for _ in range(source.read_number(_MAX_COUNT)):
        block = int.from_bytes(source.read(1)) * STRIDE + int.from_bytes(source.read(1))
        memory.visited[block] = memory.step - source.read_number()
    for _ in range(source.read_number(_MAX_COUNT)):
        cell = source.read_cell(_MAX_SEEN)
        grown = source.read_number()
        memory.plants[cell] = Plant(grown >> 1, bool(grown & 1))


def _write_routes(out: Packer, parts: Parts) -> None:
    walker, step = parts.walker, parts.memory.step
    out.write_text(walker.key)
    if walker.key:
        out.write_cell(walker.origin)
        out.write_cell(walker.route.target)
        out.write_number(max(0, step - walker.planned))
        _write_route(out, walker)
    out.write_number(len(walker.failed))
    for key, (until, pause) in walker.failed.items():
        out.write_text(key)
        out.write_number(max(0, until - step))
        out.write_number(pause)
    out.write_number(len(walker.walls))
    for cell in sorted(walker.walls):
        out.write_cell(cell)
    burrow = parts.shelter.burrow
    out.write_number(0 if burrow is None else burrow.direction + 1)
    if burrow:
        out.write_cell(burrow.entrance)


def _read_routes(source: Unpacker, parts: Parts) -> None:
    walker, step = parts.walker, parts.memory.step
    walker.key = source.read_text()
    if walker.key:
        walker.origin = source.read_cell(MAX_WALKED)
        target = source.read_cell(_MAX_NAMED)
        walker.planned = step - source.read_number()
        walker.route = Route(_read_route(source, walker.origin), target)
    for _ in range(source.read_number(_MAX_COUNT)):
        key = source.read_text()
        until = step + source.read_number(_MAX_COUNT)
        walker.failed[key] = until, source.read_number(_MAX_COUNT)
    walker.walls = {source.read_cell(_MAX_NAMED) for _ in range(source.read_number(_MAX_COUNT))}
    direction = source.read_number(len(STEPS)) - 1
    if direction >= 0:
        entrance = source.read_cell(_MAX_SEEN - 4)
        inward = STEPS[direction]
        inside = (entrance + inward, entrance + 2 * inward, entrance + 3 * inward)
        parts.shelter.burrow = Burrow(entrance, *inside, direction)


def _write_route(out: Packer, walker: Walker) -> None:
    """Write a route as directions, four per byte, so that it cannot have gaps."""
    cells = [walker.origin, *reversed(walker.route.cells)]
    turns = [STEPS.index(b - a) for a, b in pairwise(cells)]
    out.write_number(len(turns))
    turns += [0] * (-len(turns) % 4)
    for i in range(0, len(turns), 4):
        a, b, c, d = turns[i : i + 4]
        out.data.append(a | b << 2 | c << 4 | d << 6)


def _read_route(source: Unpacker, cell: int) -> list[int]:
    count = source.read_number(AREA * AREA)
    packed = source.read(-(-count // 4))
    cells = []
    for i in range(count):
        cell += STEPS[packed[i >> 2] >> (i & 3) * 2 & 3]
        if not is_within(cell, _MAX_SEEN):
            raise DamagedMemory("a route leaves the map")
        cells.append(cell)
    return cells[::-1]


def _write_ground(out: Packer, ground: bytearray) -> None:
    """Write the smallest rectangle of the map that contains all known cells, by column."""
    plain = bytes(ground)
    blank = bytes([UNKNOWN]) * STRIDE
    columns = [plain[i : i + STRIDE] for i in range(0, CELLS, STRIDE)]
    creatures = [x for x, column in enumerate(columns) if column != blank]
    if not creatures:
        out.write_number(0)
        return
    left, right = creatures[0], creatures[-1] + 1
    top = min(STRIDE - len(columns[x].lstrip(_BLANK)) for x in creatures)
    bottom = max(len(columns[x].rstrip(_BLANK)) for x in creatures)
    out.write_number(right - left)
    out.data += bytes((left, top, bottom - top))
    out.data += b"".join(column[top:bottom] for column in columns[left:right])


_BLANK: Final = bytes([UNKNOWN])
_NO_MATERIAL: Final = bytes(i for i in range(256) if i >= len(MATERIALS) and i != UNKNOWN)


def _read_ground(source: Unpacker, ground: bytearray) -> None:
    across = source.read_number(AREA + ACROSS - 1)
    if not across:
        return
    left, top, high = source.read(3)
    right, bottom = left + across, top + high
    low, above = MIDDLE - _MAX_SEEN, MIDDLE + _MAX_SEEN + 1
    if high >= AREA + HIGH or min(left, top) < low or max(right, bottom) > above:
        raise DamagedMemory("the map is larger than a world")
    for x in range(left, right):
        column = source.read(high)
        if len(column.translate(None, _NO_MATERIAL)) != high:
            raise DamagedMemory("unknown material")
        ground[x * STRIDE + top : x * STRIDE + bottom] = column
