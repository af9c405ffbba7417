"""Small numbers, cells and words as bytes, and back. Knows nothing of what they mean.

Reading trusts nothing: what is too short, too long or out of bounds is `DamagedMemory`.
"""

import zlib
from typing import Final

from assay.players.expert.terrain import START, STRIDE

__all__ = [
    "MAX_BYTES",
    "MIDDLE",
    "DamagedMemory",
    "Packer",
    "Unpacker",
    "deflated",
    "inflated",
    "within",
]

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
