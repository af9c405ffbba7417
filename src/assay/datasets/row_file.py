"""One file of rows, JSON Lines or Parquet, written and hashed by a thread of its own."""

import hashlib
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import IO, Final

from assay.exchange.parquet import ChatParquet

__all__ = ["RowFile", "RowPieces"]

RowPieces = list[bytes | memoryview]
"""A row, with its newline, as texts to be put together; many rows share them."""

_LINES: Final = 100
"""Lines that are written together."""
_TABLE_ROWS: Final = 500
"""Rows of Parquet that are."""
_GROUPS: Final = 8
"""Groups that may wait for it."""
_CACHED: Final = 1 << 24
"""Bytes of a file that may wait in memory for the disk."""


class RowFile:
    """One file of rows, JSON Lines or Parquet, written and hashed by a thread of its own."""

    def __init__(self, stream: IO[bytes], columns: Sequence[str] | None) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self._table = None if columns is None else ChatParquet(stream, columns)
        self._group = _LINES if columns is None else _TABLE_ROWS
        self._waiting: list[RowPieces] = []
        self._thread = ThreadPoolExecutor(1)
        self._groups: deque[Future[None]] = deque()
        self._cached = 0
        self.rows = 0

    def write(self, lines: list[RowPieces]) -> None:
        """Add rows; waits where too many are in memory."""
        self.rows += len(lines)
        self._waiting += lines
        if len(self._waiting) >= self._group:
            self._flush()

    def _flush(self) -> None:
        while len(self._groups) >= _GROUPS:
            self._groups.popleft().result()
        self._groups.append(self._thread.submit(self._put, self._waiting))
        self._waiting = []

    def _put(self, lines: list[RowPieces]) -> None:
        if self._table is not None:
            self._table.write([b"".join(pieces) for pieces in lines])
            return
        # At once: between two calls a busy thread keeps this one waiting.
        whole = b"".join(chain.from_iterable(lines))
        self._hash.update(whole)
        self._stream.write(whole)
        self._cached += len(whole)
        if self._cached >= _CACHED:
            self._cached = 0
            _put_on_disk(self._stream)

    def close(self) -> str:
        """Write what is left; returns the hash of the whole file."""
        try:
            if self._waiting:
                self._flush()
            for group in self._groups:
                group.result()
        finally:
            self._thread.shutdown()
        if self._table is None:
            return self._hash.hexdigest()
        self._table.close()
        self._stream.flush()
        return hashlib.sha256(Path(self._stream.name).read_bytes()).hexdigest()


def _put_on_disk(stream: IO[bytes]) -> None:
    """Let the disk have now what it must have at the end, and its memory be used again.

    A system that keeps the whole of a large file in memory spends more time on finding that
    memory than on writing.
    """
    stream.flush()
    if hasattr(os, "posix_fadvise"):
        os.fdatasync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
