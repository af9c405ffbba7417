"""Reads and writes saved worlds from the documented format alone, without the engine.

Tests look at a world and change it through its snapshot, so that every assisted test
also goes through `snapshot` and `restore`.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ORDER_AT", "SCALAR", "THINGS_AT", "Saved"]

SCALAR = {
    name: index
    for index, name in enumerate(
        [
            *("seed", "episode", "step", "length", "status", "facing", "sleeping", "hunger"),
            *("thirst", "fatigue", "recover", "felt_health", "paid_health", "position"),
            *("things", "holes", "chunks", "new"),
        ]
    )
}
INVENTORY_AT, COUNTS_AT = 18, 34
ORDER_AT, THINGS_AT = 7088, 7128


@dataclass
class Saved:
    """The parts of a snapshot, to read and to change."""

    parameters: NDArray[np.float64]
    words: NDArray[np.uint32]
    scalars: NDArray[np.int32]
    materials: NDArray[np.uint8]
    chunks: list[int]
    things: list[list[int]]
    order: list[int]

    @classmethod
    def read(cls, data: bytes) -> "Saved":
        magic, version, zero, length = struct.unpack_from("<8sHHI", data)
        assert (magic, version, zero, length) == (b"ASSAYCRF", 1, 0, len(data))
        scalars = np.frombuffer(data, "<i4", 56, 2768).copy()
        count = int(scalars[SCALAR["things"]])
        things = np.frombuffer(data, "<i2", 6 * count, THINGS_AT).reshape(count, 6)
        chunks = np.frombuffer(data, "<u1", 40, ORDER_AT).tolist()
        return cls(
            parameters=np.frombuffer(data, "<f8", 32, 16).copy(),
            words=np.frombuffer(data, "<u4", 624, 272).copy(),
            scalars=scalars,
            materials=np.frombuffer(data, "<u1", 4096, 2992).reshape(64, 64).copy(),
            chunks=chunks[: int(scalars[SCALAR["chunks"]])],
            things=things.tolist(),
            order=np.frombuffer(data, "<i2", count, THINGS_AT + 12 * count).tolist(),
        )

    def write(self) -> bytes:
        self.scalars[SCALAR["things"]] = len(self.things)
        self.scalars[SCALAR["chunks"]] = len(self.chunks)
        body = b"".join(
            [
                self.parameters.tobytes(),
                self.words.tobytes(),
                self.scalars.tobytes(),
                self.materials.tobytes(),
                bytes(self.chunks) + b"\xff" * (40 - len(self.chunks)),
                np.array(self.things, "<i2").tobytes(),
                np.array(self.order, "<i2").tobytes(),
            ]
        )
        length = -(-(16 + len(body)) // 32) * 32
        header = struct.pack("<8sHHI", b"ASSAYCRF", 1, 0, length)
        return (header + body).ljust(length, b"\0")

    @property
    def inventory(self) -> NDArray[np.int32]:
        return self.scalars[INVENTORY_AT:COUNTS_AT]

    @property
    def members(self) -> list[tuple[int, list[int]]]:
        """The things of each chunk, in order."""
        found: dict[int, list[int]] = {chunk: [] for chunk in self.chunks}
        for index in self.order:
            found[chunk_of(*self.things[index][1:3])].append(index)
        return list(found.items())

    def move_player(self, x: int, y: int) -> None:
        """Put the player elsewhere, as a walk of any length would."""
        old, new = chunk_of(*self.things[0][1:3]), chunk_of(x, y)
        members = self.members
        self.things[0][1:3] = x, y
        if old != new:
            groups = dict(members)
            groups[old].remove(0)
            groups.setdefault(new, []).append(0)
            self.chunks = list(groups)
            self.order = [index for group in groups.values() for index in group]


def chunk_of(x: int, y: int) -> int:
    """The chunk of a cell."""
    return x // 12 * 6 + y // 12
