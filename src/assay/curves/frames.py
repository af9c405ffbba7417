"""Files that are records one after another, as trackers of training write them.

Each record has a checksum. A file may end in the middle of one, where its writer was killed or
still writes: what came before is read, and `torn` tells of the rest. A record that is damaged
elsewhere is an error.
"""

import struct
import zlib
from collections.abc import Iterator

from assay.errors import UsageError

__all__ = ["EventFrames", "WandbFrames"]

_BLOCK = 32 * 1024
_MAGIC = b":W&B\xe1\xbe\x00"
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class WandbFrames:
    """The records of a `.wandb` file: the log format of LevelDB after a header of seven bytes.

    A file is blocks of 32 KiB. A record that does not fit into the rest of a block is split,
    and fewer than seven bytes at the end of one are left empty. The checksum is a CRC-32 of
    the type and the content. See https://github.com/google/leveldb/blob/main/doc/log_format.md.
    """

    def __init__(self, content: bytes) -> None:
        if not content.startswith(_MAGIC[: len(content)]):
            raise UsageError(
                f"it begins with {content[:7]!r}, not as a file of W&B's offline mode does; "
                "name the .wandb file that wandb wrote, or its folder"
            )
        self._content = content
        self.torn: str | None = None
        """Why the file ends before its time, once all records were read."""

    def __iter__(self) -> Iterator[bytes]:
        content, at, end = self._content, len(_MAGIC), len(self._content)
        parts: list[bytes] = []
        record = at
        while at < end:
            left = _BLOCK - at % _BLOCK
            if left < 7:
                at += left
                continue
            if at + 7 > end or _only_zeros(content, at, 7):
                break
            checksum, size, kind = struct.unpack_from("<IHB", content, at)
            stop = at + 7 + size
            if stop > end:
                break
            data = content[at + 7 : stop]
            fits = kind in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST))
            whole = checksum == zlib.crc32(data, zlib.crc32(bytes([kind])))
            if not (fits and whole and size + 7 <= left):
                if stop == end:
                    break
                raise _damaged(at)
            parts.append(data)
            at = stop
            if kind in (_WHOLE, _LAST):
                yield b"".join(parts)
                parts, record = [], at
        if at < end or parts:
            self.torn = _torn(record, end)


class EventFrames:
    """The records of a TensorBoard event file: TensorFlow's TFRecord format.

    A record is its length, content, and a CRC-32C of each, turned and shifted.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.torn: str | None = None
        """Why the file ends before its time, once all records were read."""

    def __iter__(self) -> Iterator[bytes]:
        content, at, end = self._content, 0, len(self._content)
        while at < end:
            if at + 12 > end or _only_zeros(content, at, 12):
                break
            size, checksum = struct.unpack_from("<QI", content, at)
            if _masked_crc32c(content[at : at + 8]) != checksum:
                raise _damaged(at)
            stop = at + 16 + size
            if stop > end:
                break
            data = content[at + 12 : stop - 4]
            if _masked_crc32c(data) != struct.unpack_from("<I", content, stop - 4)[0]:
                if stop == end:
                    break
                raise _damaged(at)
            yield data
            at = stop
        if at < end:
            self.torn = _torn(at, end)


def _only_zeros(content: bytes, at: int, size: int) -> bool:
    """Whether nothing was written from here on, though the file is longer."""
    return content[at : at + size] == bytes(size) and not content[at:].strip(b"\0")


def _torn(at: int, end: int) -> str:
    return f"its file ends within a record: the last {end - at:,} of {end:,} bytes are lost"


def _damaged(at: int) -> UsageError:
    return UsageError(
        f"the record at byte {at:,} is damaged: its checksum is that of other bytes; copy the "
        "file again from where it was written"
    )


def _table() -> tuple[int, ...]:
    """What each byte does to a CRC-32C (Castagnoli)."""
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return tuple(found)


_TABLE = _table()


def _masked_crc32c(data: bytes) -> int:
    value, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
