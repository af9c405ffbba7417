"""GGUF files: their named values, and their tensors as 32-bit floats.

The quantisations that SmolLM2's file has are understood, and no other.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError

__all__ = ["Gguf", "read_gguf", "read_values"]

_SIMPLE: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"} | {
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT, _ARRAY = 8, 9
_ALIGNMENT: Final = 32
_BLOCK: Final = 32
"""Numbers that share a scale."""


class Gguf(NamedTuple):
    """What a file holds."""

    values: dict[str, Any]
    tensors: dict[str, NDArray[np.float32]]
    """By name, with the outermost dimension first."""


class _Reader:
    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.file.read(struct.calcsize(f"<{form}")))[0]

    def text(self) -> str:
        return self.file.read(self.read("Q")).decode()

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            inner, count = self.read("I"), self.read("Q")
            return [self.value(inner) for _ in range(count)]
        return self.read(_SIMPLE[kind])

    def header(self) -> tuple[int, dict[str, Any]]:
        if self.file.read(4) != b"GGUF":
            raise UsageError("is not a GGUF file")
        _version, tensors, count = self.read("I"), self.read("Q"), self.read("Q")
        return tensors, {self.text(): self.value(self.read("I")) for _ in range(count)}


def read_values(file: IO[bytes]) -> dict[str, Any]:
    """The named values at the start of a file."""
    return _Reader(file).header()[1]


def read_gguf(path: Path) -> Gguf:
    """All that a file holds.

    Raises:
        UsageError: It is no GGUF file, or has a quantisation that is not understood.
    """
    with path.open("rb") as file:
        reader = _Reader(file)
        count, values = reader.header()
        layout = []
        for _ in range(count):
            name = reader.text()
            shape = tuple(reader.read("Q") for _ in range(reader.read("I")))
            layout.append((name, shape[::-1], reader.read("I"), reader.read("Q")))
        start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    content = np.memmap(path, np.uint8, "r", offset=start)
    tensors = {}
    for name, shape, kind, offset in layout:
        if kind not in _KINDS:
            raise UsageError(f"{path}: {name} has the quantisation {kind}, which is unknown")
        size, numbers = int(np.prod(shape)), _KINDS[kind]
        stored = content[offset : offset + size // _BLOCK * numbers.size]
        tensors[name] = numbers.decode(stored).reshape(shape)
    return Gguf(values, tensors)


class _Kind(NamedTuple):
    size: int
    """Bytes of a block, scales included."""
    decode: Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def _f32(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    return stored.view("<f4").astype(np.float32)


def _q8_0(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A scale as a half, then 32 signed bytes."""
    blocks = stored.reshape(-1, 2 + _BLOCK)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return (blocks[:, 2:].copy().view(np.int8) * scale).ravel()


def _q4_1(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A scale and a least value as halves, then 32 numbers of 4 bits, the low ones first."""
    blocks = stored.reshape(-1, 4 + _BLOCK // 2)
    scale, least = blocks[:, :4].copy().view("<f2").astype(np.float32).T[:, :, None]
    packed = blocks[:, 4:]
    numbers = np.concatenate([packed & 15, packed >> 4], axis=1)
    return (numbers * scale + least).ravel()


_KINDS: Final = {0: _Kind(4 * _BLOCK, _f32), 3: _Kind(20, _q4_1), 8: _Kind(34, _q8_0)}
