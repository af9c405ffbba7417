"""What a command prints, kept within bounds: its beginning and its end."""

from typing import Final

__all__ = ["OUTPUT_LIMIT", "BoundedOutput"]

OUTPUT_LIMIT: Final = 2**20
"""Bytes of output that are kept."""


class BoundedOutput:
    """Takes any number of bytes, and holds at most twice its limit at any time."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many bytes of the middle are gone."""
        return self._dropped + max(0, len(self._tail) - self._half)

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._half:
            excess = len(self._tail) - self._half
            del self._tail[:excess]
            self._dropped += excess

    def kept(self) -> bytes:
        """What there is; where the middle is gone, a line says how much of it."""
        if not self.dropped:
            return bytes(self._head + self._tail)
        notice = f"\n[... {self.dropped} bytes left out ...]\n".encode()
        return bytes(self._head + notice + self._tail[-self._half :])
