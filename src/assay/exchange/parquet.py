"""Parquet files from anywhere as plain Python values, and rows of chats into them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from assay.errors import UsageError

__all__ = ["ChatParquet", "parquet_columns", "parquet_rows"]


def parquet_columns(content: bytes) -> dict[str, list[Any]]:
    """Every column of a Parquet file by its name.

    Raises:
        UsageError: The bytes are no Parquet file, or hold the same column twice.
    """
    try:
        table = pq.read_table(pa.BufferReader(content))
        return {str(name): table.column(name).to_pylist() for name in table.column_names}
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"it is no Parquet file that can be read: {line}") from error


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
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield from (_without_nulls(row) for row in batch.to_pylist())
    except (pa.ArrowException, OSError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"{str(path)!r} is no Parquet file that can be read: {line}"
        ) from error


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
