"""A data file of anybody's, read line by line in bounded memory."""

from collections.abc import Iterator
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from assay.errors import UsageError
from assay.exchange.parquet import parquet_rows

__all__ = ["data_lines", "read_values"]

_MAX_LINE: Final = 64 << 20
_BLOCK: Final = 1 << 18
"""Bytes whose lines are cut at once."""


def read_values(path: Path) -> Iterator[tuple[int, Any, str | None]]:
    """Each row of a file: its line, its value, and what is wrong with it if it has none.

    Raises:
        UsageError: There is no such file, or it cannot be read.
    """
    if path.suffix == ".parquet" and path.is_file():
        for number, value in enumerate(parquet_rows(path), start=1):
            yield number, value, None
        return
    for number, line in data_lines(path):
        try:
            yield number, from_json(line, allow_inf_nan=False), None
        except ValueError as error:
            yield number, None, str(error)


def data_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their ends, counted from 1.

    Raises:
        UsageError: There is no such file, or it cannot be read.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}; 'assay sft filter' writes one")
    return enumerate(chain.from_iterable(_blocks(path)), start=1)


def _blocks(path: Path) -> Iterator[list[bytes]]:
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                if not block.endswith(b"\n"):
                    block += stream.readline(_MAX_LINE)
                yield BytesIO(block).readlines()
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
