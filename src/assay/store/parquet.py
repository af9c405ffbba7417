"""Reading untrusted Parquet files as plain Python values, and writing chat rows to them."""

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
    """A Parquet file; only its metadata is read until `rows` is called.

    Raises:
        UsageError: The bytes are not a Parquet file, or two columns have the same name.
    """

    def __init__(self, content: bytes) -> None:
        with _translate_errors():
            about = pq.read_metadata(pa.BufferReader(content))
            chunks = [
                about.row_group(group).column(column)
                for group in range(about.num_row_groups)
                for column in range(about.num_columns)
            ]
            self.columns = about.schema.to_arrow_schema().names
            """Names of its columns."""
            self.cells = max(
                about.num_rows * about.num_columns, sum(chunk.num_values for chunk in chunks)
            )
            """Number of values in all columns, including values in lists."""
            self.unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
            """Uncompressed size in bytes."""
            texts = {
                chunk.path_in_schema for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"
            }
            # Repeated texts share one object.
            self._file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[*texts])
        if twice := [name for name, times in Counter(self.columns).items() if times > 1]:
            raise UsageError(f"two columns are named {twice[0]!r}; give each a different name")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, reading a few at a time."""
        with _translate_errors():
            for batch in self._file.iter_batches(_ROWS_AT_ONCE):
                columns = map(_to_list, batch.columns)
                for row in zip(*columns, strict=True):
                    yield dict(zip(self.columns, row, strict=True))


def _to_list(column: Any) -> list[Any]:
    if not isinstance(column, pa.DictionaryArray):
        values: list[Any] = column.to_pylist()
        return values
    words = column.dictionary.to_pylist()
    return [None if place is None else words[place] for place in column.indices.to_pylist()]


@contextmanager
def _translate_errors(name: str = "it") -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        if isinstance(error, UsageError):
            raise
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{name} is not a readable Parquet file: {line}") from error


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
    """Writer of chat messages to one Parquet file, a group of rows at a time."""

    def __init__(self, stream: IO[bytes], columns: Sequence[str]) -> None:
        """Set the columns with messages; a column `tools`, as JSON text, is added."""
        fields = [(name, _MESSAGES) for name in columns]
        self._schema = pa.schema([*fields, ("tools", pa.string())])
        self._stream = stream
        # Created only for rows, because a writer that is never closed warns when deleted.
        self._writer: pq.ParquetWriter | None = None

    def write(self, lines: Sequence[bytes]) -> None:
        """Add rows, each given as JSON text."""
        rows = [json.loads(line) for line in lines]
        self._open().write_table(pa.Table.from_pylist(rows, self._schema))

    def close(self) -> None:
        """Write the remaining rows and the end of the file."""
        self._open().close()

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, self._schema, compression="zstd")
        return self._writer


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, reading a few at a time; nulls in objects are dropped.

    Raises:
        UsageError: The file is not a Parquet file.
    """
    with _translate_errors(repr(str(path))), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            yield from (_drop_nulls(row) for row in batch.to_pylist())


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _drop_nulls(part) for name, part in value.items() if part is not None}
        # A reply that only calls tools has null as its content.
        return (
            {**kept, "content": None} if "content" in value and "content" not in kept else kept
        )
    if isinstance(value, list):
        return [_drop_nulls(part) for part in value]
    return value
