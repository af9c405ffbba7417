"""Reads the fields of Protocol Buffers messages, without their schemas.

Who calls it knows the numbers of the few fields that matter, and skips the rest. See
https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator

__all__ = ["fields", "signed"]

_FIXED = {1: 8, 5: 4}
"""The sizes of numbers of a fixed length, by their wire type."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field of a message in its order: its number, and its value.

    A variable-length whole number is an int, without its sign; all else are the bytes.

    Raises:
        ValueError: It is no message.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"field {number} is of kind {kind}, which is not known")
        if at + size > end:
            raise ValueError(f"field {number} is longer than its message")
        yield number, message[at : at + size]
        at += size


def signed(value: int) -> int:
    """A whole number of 64 bits that may be negative."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A whole number, and where it ends."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is cut off")
