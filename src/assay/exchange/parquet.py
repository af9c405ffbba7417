"""Reads the columns of a Parquet file as plain Python values."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assay.errors import UsageError

__all__ = ["parquet_columns"]


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
