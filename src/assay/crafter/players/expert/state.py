"""All that the expert carries from one decision to the next, as bytes, and back.

    version | CRC-32 of the rest | deflated: the player, what it knows, ways, the map

What follows from the next view is not in it: the fence, arrows, daylight. Reading trusts
nothing: bytes that could not have been written are `DamagedMemory`, and what was read keeps
every cell inside the map.

Small numbers, cells and words as bytes, and back. Knows nothing of what they mean.

Reading trusts nothing: what is too short, too long or out of bounds is `DamagedMemory`.
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
from assay.crafter.players.expert.walker import Walker, Way
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, AREA, ITEMS, MATERIALS, MAX_ITEM

MAX_BYTES: Final = 16_384
"""No state is larger before it is compressed; the map of a whole world takes a third."""
_MAX_TEXT: Final = 40
_MAX_NUMBER: Final = 10**9
MIDDLE: Final = START // STRIDE
"""Where the expert starts, along both axes."""


class DamagedMemory(Exception):
    """These bytes were not written by a `Packer`, or have changed since."""


def within(cell: int, reach: int) -> bool:
    """Whether a cell is at most so far from the start along each axis."""
    x, y = divmod(cell, STRIDE)
    return abs(x - MIDDLE) <= reach and abs(y - MIDDLE) <= reach


class Packer:
    """Appends values to `data`."""

    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, value: int) -> None:
        """A number from 0, small ones in one byte."""
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    def cell(self, cell: int) -> None:
        """A cell, in two bytes."""
        self.data += bytes(divmod(cell, STRIDE))

    def text(self, text: str) -> None:
        """A short word in ASCII."""
        self.number(len(text))
        self.data += text.encode("ascii")


class Unpacker:
    """Takes values from bytes, in the order in which they were written."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = 0

    def take(self, count: int) -> bytes:
        """The next so many bytes."""
        taken = self._data[self._next : self._next + count]
        if len(taken) != count:
            raise DamagedMemory("too short")
        self._next += count
        return taken

    def number(self, most: int = _MAX_NUMBER) -> int:
        """A number from 0 to `most`."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 28:
                raise DamagedMemory("a number is too long")
        if value > most:
            raise DamagedMemory(f"{value} is more than {most}")
        return value

    def cell(self, reach: int) -> int:
        """A cell at most so far from the start along each axis."""
        x, y = self.take(2)
        if abs(x - MIDDLE) > reach or abs(y - MIDDLE) > reach:
            raise DamagedMemory(f"the cell {x}, {y} is too far away")
        return x * STRIDE + y

    def text(self) -> str:
        """A short word."""
        word = self.take(self.number(_MAX_TEXT))
        if not word.isascii():
            raise DamagedMemory("a word is not ASCII")
        return word.decode("ascii")

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._next != len(self._data):
            raise DamagedMemory("too long")


def deflated(data: bytes, hint: bytes) -> bytes:
    """Bytes made shorter, behind a checksum; `hint` holds words that may occur in them."""
    press = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=hint)
    packed = press.compress(data) + press.flush()
    return zlib.crc32(packed).to_bytes(4, "big") + packed


def inflated(data: bytes, hint: bytes) -> bytes:
    """What `deflated` was given, if it is not too much."""
    if zlib.crc32(data[4:]) != int.from_bytes(data[:4]):
        raise DamagedMemory("cut off or altered")
    press = zlib.decompressobj(-15, zdict=hint)
    try:
        plain = press.decompress(data[4:], MAX_BYTES)
    except zlib.error:
        raise DamagedMemory("not deflated bytes") from None
    if not press.eof or press.unused_data:
        raise DamagedMemory("cut off, or too much")
    return plain


_VERSION: Final = 1
WALKED: Final = AREA - 1
"""The player never gets further from where it started, along one axis."""
_SEEN: Final = WALKED + ACROSS // 2
_NAMED: Final = _SEEN + 1
_MANY: Final = 500
"""No list is longer; there are 324 blocks of 8x8 cells, and far fewer of all else."""
_WORDS: Final = (
    b"tunnel: explore edges rest rock collect coal 40 iron 60 collect diamond 1000 go 11 20 "
    b"1000 deep burrow with gaps entrance fight skeleton fight zombie patrol again cow 25 "
    b"cow 8 cow 6 cow 10 water 30 water 10 collect wood 12 collect stone 2 collect stone 4"
) + b"".join(bytes([ground]) * 40 for ground in (STONE, PATH, GRASS, UNKNOWN))
"""What is likely to occur, the likeliest last; part of the format."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an expert that remember something."""

    memory: Memory
    walker: Walker
    combat: Combat
    needs: Needs
    garden: Garden
    shelter: Shelter


def write_state(parts: Parts) -> bytes:
    """The state as bytes; equal states give equal bytes."""
    out = Packer()
    _write_self(out, parts)
    _write_known(out, parts.memory)
    _write_ways(out, parts)
    _write_ground(out, parts.memory.ground)
    return bytes([_VERSION]) + deflated(bytes(out.data), _WORDS)


def read_state(data: bytes, parts: Parts) -> None:
    """Give the parts of a new expert the state that was written; else DamagedMemory."""
    if data[:1] != bytes([_VERSION]):
        raise DamagedMemory("of another version")
    source = Unpacker(inflated(data[1:], _WORDS))
    _read_self(source, parts)
    _read_known(source, parts.memory)
    _read_ways(source, parts)
    _read_ground(source, parts.memory.ground)
    source.end()


def _write_self(out: Packer, parts: Parts) -> None:
    memory, combat = parts.memory, parts.combat
    out.number(memory.step)
    out.cell(memory.here)
    flags = (
        memory.could_act,
        memory.sleeping,
        parts.needs.drinking,
        parts.garden.returning,
        parts.shelter.resting,
        bool(memory.inventory),
    )
    out.number(memory.facing)
    out.number(sum(flag << i for i, flag in enumerate(flags)))
    out.number(memory.action)
    out.number(combat.chased)
    out.number(max(0, combat.tired_until - memory.step))
    out.data += bytes(memory.inventory.get(item, 0) for item in ITEMS)
    out.number(sum((name in memory.done) << i for i, name in enumerate(ACHIEVEMENTS)))


def _read_self(source: Unpacker, parts: Parts) -> None:
    memory, combat = parts.memory, parts.combat
    memory.step = source.number()
    memory.here = source.cell(WALKED)
    memory.facing = source.number(len(STEPS) - 1)
    memory.ahead = memory.here + STEPS[memory.facing]
    flags = source.number(63)
    memory.could_act, memory.sleeping = bool(flags & 1), bool(flags & 2)
    parts.needs.drinking, parts.garden.returning = bool(flags & 4), bool(flags & 8)
    parts.shelter.resting = bool(flags & 16)
    memory.action = source.number(len(ACTIONS) - 1)
    combat.chased = source.number(_MANY)
    combat.tired_until = memory.step + source.number(_MANY)
    counts = source.take(len(ITEMS))
    if max(counts) > MAX_ITEM:
        raise DamagedMemory(f"a count is {max(counts)}")
    if flags & 32:
        memory.inventory = dict(zip(ITEMS, counts, strict=True))
    done = source.number((1 << len(ACHIEVEMENTS)) - 1)
    memory.done = {name for i, name in enumerate(ACHIEVEMENTS) if done >> i & 1}


def _write_known(out: Packer, memory: Memory) -> None:
    out.number(len(memory.things))
    # Things are in view, so one byte says where.
    for cell, kind in memory.things.items():
        out.data += bytes((_PLACES[cell - memory.here], kind))
    for known in (memory.cows, memory.skeletons):
        out.number(len(known))
        for cell, seen in known.items():
            out.cell(cell)
            out.number(max(0, memory.step - seen))
    out.number(len(memory.visited))
    for block, seen in memory.visited.items():
        out.cell(block)
        out.number(max(0, memory.step - seen))
    out.number(len(memory.plants))
    for cell, plant in memory.plants.items():
        out.cell(cell)
        out.number(plant.grown << 1 | plant.ripe)


_PLACES: Final = {offset: i for i, offset in enumerate(OFFSETS)}


def _read_known(source: Unpacker, memory: Memory) -> None:
    for _ in range(source.number(len(OFFSETS))):
        place, kind = source.take(2)
        if place >= len(OFFSETS) or not COW <= kind <= PLANT:
            raise DamagedMemory(f"no thing is {kind} at {place}")
        memory.things[memory.here + OFFSETS[place]] = kind
    for known in (memory.cows, memory.skeletons):
        for _ in range(source.number(_MANY)):
            cell = source.cell(_SEEN)
            known[cell] = memory.step - source.number()
    for _ in range(source.number(_MANY)):
        block = int.from_bytes(source.take(1)) * STRIDE + int.from_bytes(source.take(1))
        memory.visited[block] = memory.step - source.number()
    for _ in range(source.number(_MANY)):
        cell = source.cell(_SEEN)
        grown = source.number()
        memory.plants[cell] = Plant(grown >> 1, bool(grown & 1))


def _write_ways(out: Packer, parts: Parts) -> None:
    walker, step = parts.walker, parts.memory.step
    out.text(walker.key)
    if walker.key:
        out.cell(walker.origin)
        out.cell(walker.way.target)
        out.number(max(0, step - walker.planned))
        _write_way(out, walker)
    out.number(len(walker.failed))
    for key, (until, pause) in walker.failed.items():
        out.text(key)
        out.number(max(0, until - step))
        out.number(pause)
    out.number(len(walker.walls))
    for cell in sorted(walker.walls):
        out.cell(cell)
    burrow = parts.shelter.burrow
    out.number(0 if burrow is None else burrow.direction + 1)
    if burrow:
        out.cell(burrow.entrance)


def _read_ways(source: Unpacker, parts: Parts) -> None:
    walker, step = parts.walker, parts.memory.step
    walker.key = source.text()
    if walker.key:
        walker.origin = source.cell(WALKED)
        target = source.cell(_NAMED)
        walker.planned = step - source.number()
        walker.way = Way(_read_way(source, walker.origin), target)
    for _ in range(source.number(_MANY)):
        key = source.text()
        walker.failed[key] = step + source.number(_MANY), source.number(_MANY)
    walker.walls = {source.cell(_NAMED) for _ in range(source.number(_MANY))}
    direction = source.number(len(STEPS)) - 1
    if direction >= 0:
        entrance = source.cell(_SEEN - 4)
        one = STEPS[direction]
        inside = (entrance + one, entrance + 2 * one, entrance + 3 * one)
        parts.shelter.burrow = Burrow(entrance, *inside, direction)


def _write_way(out: Packer, walker: Walker) -> None:
    """A way as directions, four to a byte, so that none can be written that has gaps."""
    cells = [walker.origin, *reversed(walker.way.cells)]
    turns = [STEPS.index(b - a) for a, b in pairwise(cells)]
    out.number(len(turns))
    turns += [0] * (-len(turns) % 4)
    for i in range(0, len(turns), 4):
        a, b, c, d = turns[i : i + 4]
        out.data.append(a | b << 2 | c << 4 | d << 6)


def _read_way(source: Unpacker, cell: int) -> list[int]:
    count = source.number(AREA * AREA)
    packed = source.take(-(-count // 4))
    cells = []
    for i in range(count):
        cell += STEPS[packed[i >> 2] >> (i & 3) * 2 & 3]
        if not within(cell, _SEEN):
            raise DamagedMemory("a way leads out of the world")
        cells.append(cell)
    return cells[::-1]


def _write_ground(out: Packer, ground: bytearray) -> None:
    """The smallest part of the map, column by column, that holds all that is known."""
    plain = bytes(ground)
    blank = bytes([UNKNOWN]) * STRIDE
    columns = [plain[i : i + STRIDE] for i in range(0, CELLS, STRIDE)]
    known = [x for x, column in enumerate(columns) if column != blank]
    if not known:
        out.number(0)
        return
    left, right = known[0], known[-1] + 1
    top = min(STRIDE - len(columns[x].lstrip(_BLANK)) for x in known)
    bottom = max(len(columns[x].rstrip(_BLANK)) for x in known)
    out.number(right - left)
    out.data += bytes((left, top, bottom - top))
    out.data += b"".join(column[top:bottom] for column in columns[left:right])


_BLANK: Final = bytes([UNKNOWN])
_NO_MATERIAL: Final = bytes(i for i in range(256) if i >= len(MATERIALS) and i != UNKNOWN)


def _read_ground(source: Unpacker, ground: bytearray) -> None:
    across = source.number(AREA + ACROSS - 1)
    if not across:
        return
    left, top, high = source.take(3)
    right, bottom = left + across, top + high
    low, above = MIDDLE - _SEEN, MIDDLE + _SEEN + 1
    if high >= AREA + HIGH or min(left, top) < low or max(right, bottom) > above:
        raise DamagedMemory("the map is larger than a world")
    for x in range(left, right):
        column = source.take(high)
        if len(column.translate(None, _NO_MATERIAL)) != high:
            raise DamagedMemory("there is no such material")
        ground[x * STRIDE + top : x * STRIDE + bottom] = column
