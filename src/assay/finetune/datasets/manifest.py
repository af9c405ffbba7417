"""Files of rows, and the manifest with the origin of each row.

The manifest of `data.jsonl` is `data.manifest.json`. It records how rows were chosen and made
and has one line per row: session, turns and reward. It may have a million rows, so it is read
line by line. A file of rows is JSON Lines or Parquet, written and hashed in a separate thread.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from assay.core.canonical_json import canonical_json
from assay.core.files import atomic_file
from assay.errors import UsageError
from assay.store.parquet import ChatParquet

FORMAT: Final = "assay-dataset/1"
_ROWS_START: Final = b'"rows":['
_BUFFER_BYTES: Final = 1 << 20
"""Size of write and copy buffers in bytes."""


class RowOrigin(NamedTuple):
    """Origin of one row."""

    session_id: str
    first_turn: int
    last_turn: int
    reward: float
    """Reward of its turns."""
    split: str
    """train or holdout."""
    other: str = ""
    """For a preference pair, an episode with the answer that is not preferred."""


def get_manifest_path(data: Path) -> Path:
    """Return the path of a data file's manifest, which need not exist."""
    name = data.name.removesuffix(data.suffix).removesuffix(".holdout")
    return data.with_name(f"{name}.manifest.json")


class Lineage:
    """Origins of rows, kept in a temporary file while the rows are written."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._first = True

    @classmethod
    @contextmanager
    def create(cls) -> "Iterator[Lineage]":
        """Create an empty lineage for the duration of the context."""
        with tempfile.TemporaryFile(buffering=_BUFFER_BYTES) as spool:
            yield cls(spool)

    def add(self, rows: list[str]) -> None:
        """Add the origins of rows, each as JSON text."""
        if rows:
            self._spool.write(
                ("\n" if self._first else ",\n").encode() + ",\n".join(rows).encode()
            )
            self._first = False

    def write(self, path: Path, fields: Mapping[str, Any]) -> None:
        """Write the manifest: general fields, then one line per row."""
        with atomic_file(path) as stream:
            stream.write(b"{\n")
            for name, value in fields.items():
                stream.write(canonical_json(name) + b":" + canonical_json(value) + b",\n")
            stream.write(
                b'"columns":' + canonical_json(RowOrigin._fields) + b",\n" + _ROWS_START
            )
            self._spool.seek(0)
            shutil.copyfileobj(self._spool, stream, _BUFFER_BYTES)
            stream.write(b"\n]}\n")


def read_lineage(data: Path) -> dict[str, Any] | None:
    """Return the general fields of a data file's manifest; None if it has none.

    Raises:
        UsageError: The manifest is damaged.
    """
    path = get_manifest_path(data)
    head: list[bytes] = []
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.startswith(_ROWS_START):
                    break
                head.append(line)
            fields = json.loads(b"".join(head).rstrip(b",\n") + b"}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} is not a readable manifest: {error}") from error
    if fields.get("format") != FORMAT:
        raise UsageError(f"{str(path)!r} is not a dataset manifest ({FORMAT})")
    return dict(fields)


def read_row_origins(data: Path, split: str = "train") -> Iterator[RowOrigin]:
    """Yield the origins of the rows in a data file.

    Raises:
        UsageError: The manifest is missing or damaged.
    """
    path = get_manifest_path(data)
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.startswith(_ROWS_START):
                    break
            for line in stream:
                if not line.startswith(b"["):
                    break
                origin = RowOrigin(*json.loads(line.rstrip(b",\n")))
                if origin.split == split:
                    yield origin
    except FileNotFoundError:
        raise UsageError(
            f"{str(path)!r}, the manifest with the origin of the rows, does not exist; "
            "'assay sft filter' writes it next to the data"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{str(path)!r} is not a readable manifest: {error}") from error


RowPieces = list[bytes | memoryview]
"""A row with its newline, as pieces to be joined; rows share pieces."""

_LINES_PER_GROUP: Final = 100
"""Lines of JSON written at once."""
_ROWS_PER_GROUP: Final = 500
"""Rows of Parquet written at once."""
_MAX_GROUPS: Final = 8
"""Maximum number of groups waiting to be written."""
_MAX_CACHED_BYTES: Final = 1 << 24
"""Bytes of a file that may stay in the page cache before they are flushed to disk."""


class RowFile:
    """File of rows, JSON Lines or Parquet, written and hashed in a separate thread."""

    def __init__(self, stream: IO[bytes], columns: Sequence[str] | None) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self._table = None if columns is None else ChatParquet(stream, columns)
        self._group = _LINES_PER_GROUP if columns is None else _ROWS_PER_GROUP
        self._waiting: list[RowPieces] = []
        self._thread = ThreadPoolExecutor(1)
        self._groups: deque[Future[None]] = deque()
        self._cached = 0
        self.rows = 0

    def write(self, lines: list[RowPieces]) -> None:
        """Add rows; blocks while too many are waiting."""
        self.rows += len(lines)
        self._waiting += lines
        if len(self._waiting) >= self._group:
            self._flush()

    def _flush(self) -> None:
        while len(self._groups) >= _MAX_GROUPS:
            self._groups.popleft().result()
        self._groups.append(self._thread.submit(self._write_group, self._waiting))
        self._waiting = []

    def _write_group(self, lines: list[RowPieces]) -> None:
        if self._table is not None:
            self._table.write([b"".join(pieces) for pieces in lines])
            return
        # In one write, because this thread may wait for a busy one between two calls.
        content = b"".join(chain.from_iterable(lines))
        self._hash.update(content)
        self._stream.write(content)
        self._cached += len(content)
        if self._cached >= _MAX_CACHED_BYTES:
            self._cached = 0
            _flush_to_disk(self._stream)

    def close(self) -> str:
        """Write the remaining rows and return the hash of the file."""
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


def _flush_to_disk(stream: IO[bytes]) -> None:
    """Flush the file to disk and drop it from the page cache.

    Otherwise the system spends more time finding memory for a large file than writing it.
    """
    stream.flush()
    if hasattr(os, "posix_fadvise"):
        os.fdatasync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
