"""The entries of a zip archive from anywhere, read with bounds.

Knows the compression that Inspect uses (Zstandard), which the standard library of most
versions of Python cannot read. An archive cannot make a reader unpack more than a thousand
times its own size, or an entry that is larger than the limit.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from assay.errors import UsageError

__all__ = ["Archive", "open_archive"]

_ZSTD: Final = 93
_MAX_ENTRIES: Final = 200_000
_MAX_RATIO: Final = 1000
_SMALL: Final = 64 << 20
_LOCAL: Final = struct.Struct("<4s22xHH")
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, pa.ArrowException, OSError, struct.error)
_UNREADABLE: Final = (*_BROKEN, EOFError, NotImplementedError, RuntimeError, ValueError)


class Archive:
    """An open archive."""

    def __init__(self, zipped: zipfile.ZipFile, path: Path, limit: int) -> None:
        self._zip, self._path, self._limit = zipped, path, limit
        self._left = max(path.stat().st_size * _MAX_RATIO, _SMALL)
        self.names = list(dict.fromkeys(zipped.namelist()))
        """The names of its entries, in their order."""

    def read(self, name: str) -> bytes:
        """The content of an entry.

        Raises:
            UsageError: It is damaged, too large, or not there.
        """
        limit = min(self._limit, self._left)
        try:
            info = self._zip.getinfo(name)
            if info.compress_type == _ZSTD:
                content = self._zstd(info, limit)
            else:
                with self._zip.open(info) as stream:
                    content = stream.read(limit + 1)
        except KeyError as error:
            raise UsageError(f"has no entry {name!r}") from error
        except _UNREADABLE as error:
            raise UsageError(f"entry {name!r} is damaged: {error}") from error
        self._left -= len(content)
        if len(content) > limit:
            raise UsageError(f"entry {name!r} unpacks to more than {limit >> 20} MB")
        return content

    def _zstd(self, info: zipfile.ZipInfo, limit: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            mark, name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
            if mark != b"PK\3\4" or info.flag_bits & 1:
                raise zipfile.BadZipFile("its header is damaged, or it is encrypted")
            file.seek(name + extra, 1)
            packed = file.read(info.compress_size)
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            content: bytes = stream.read(limit + 1)
        if len(content) <= limit and zlib.crc32(content) != info.CRC:
            raise zipfile.BadZipFile("its checksum is wrong")
        return content


@contextmanager
def open_archive(path: Path, limit: int) -> Iterator[Archive]:
    """Open a zip archive; `limit` is the most bytes an entry may unpack to.

    Raises:
        UsageError: It is none.
    """
    try:
        zipped = zipfile.ZipFile(path)
    except _UNREADABLE as error:
        raise UsageError(f"is not a whole zip archive: {error}") from error
    with zipped:
        if len(zipped.filelist) > _MAX_ENTRIES:
            raise UsageError(f"has more than {_MAX_ENTRIES} entries")
        yield Archive(zipped, path, limit)
