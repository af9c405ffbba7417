"""Parquet files from anywhere as plain Python values, and rows of chats into them."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from assay.errors import UsageError


class ParquetTable:
    """A Parquet file of which only the end is read, until its rows are asked for.

    Raises:
        UsageError: The bytes are no Parquet file, or hold the same column twice.
    """

    def __init__(self, content: bytes) -> None:
        with _readable():
            about = pq.read_metadata(pa.BufferReader(content))
            chunks = [
                about.row_group(group).column(column)
                for group in range(about.num_row_groups)
                for column in range(about.num_columns)
            ]
            self.columns = about.schema.to_arrow_schema().names
            """The names of its columns."""
            self.cells = max(
                about.num_rows * about.num_columns, sum(chunk.num_values for chunk in chunks)
            )
            """Values in all columns, those in lists included."""
            self.unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
            """Bytes."""
            texts = {
                chunk.path_in_schema for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"
            }
            # A text that many rows have is kept once.
            self._file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[*texts])
        if twice := [name for name, times in Counter(self.columns).items() if times > 1]:
            raise UsageError(f"column {twice[0]!r} is there twice; give each a name of its own")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, a few at a time."""
        with _readable():
            for batch in self._file.iter_batches(_ROWS_AT_ONCE):
                columns = map(_plain_values, batch.columns)
                for row in zip(*columns, strict=True):
                    yield dict(zip(self.columns, row, strict=True))


def _plain_values(column: Any) -> list[Any]:
    if not isinstance(column, pa.DictionaryArray):
        values: list[Any] = column.to_pylist()
        return values
    words = column.dictionary.to_pylist()
    return [None if place is None else words[place] for place in column.indices.to_pylist()]


@contextmanager
def _readable(name: str = "it") -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        if isinstance(error, UsageError):
            raise
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{name} is no Parquet file that can be read: {line}") from error


_ROWS_AT_ONCE = 1_000
_CALL = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
_MESSAGES = pa.list_(
    pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("tool_calls", pa.list_(_CALL)),
            ("tool_call_id", pa.string()),
        ]
    )
)


class ChatParquet:
    """Rows of chat messages written to one Parquet file, a group at a time."""

    def __init__(self, stream: IO[bytes], columns: Sequence[str]) -> None:
        """Name the columns that hold messages; beside them are `tools`, as JSON text."""
        fields = [(name, _MESSAGES) for name in columns]
        self._schema = pa.schema([*fields, ("tools", pa.string())])
        self._stream = stream
        # A writer that is never closed complains when it goes, so there is none without rows.
        self._writer: pq.ParquetWriter | None = None

    def write(self, lines: Sequence[bytes]) -> None:
        """Add rows, each as JSON text."""
        rows = [json.loads(line) for line in lines]
        self._open().write_table(pa.Table.from_pylist(rows, self._schema))

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._open().close()

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, self._schema, compression="zstd")
        return self._writer


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, a few at a time; what is null is left out of objects.

    Raises:
        UsageError: It is no Parquet file.
    """
    with _readable(repr(str(path))), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            yield from (_without_nulls(row) for row in batch.to_pylist())


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _without_nulls(part) for name, part in value.items() if part is not None}
        # An answer that only calls tools has a content that is null.
        return (
            {**kept, "content": None} if "content" in value and "content" not in kept else kept
        )
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value
