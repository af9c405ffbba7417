"""Subsets of a data file: chosen by a seed, each inside the next larger one.

A row's place in the order follows from the seed and the number of the row alone, so that a
subset is the same in any process, and stays the same when a larger one is asked for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from assay._util.canonical import content_hash
from assay.errors import UsageError

__all__ = ["write_subset"]


def write_subset(data: Path, rows: int, seed: int, out: IO[bytes]) -> None:
    """Write so many rows of a JSON Lines file, in their order.

    Raises:
        UsageError: There are not so many rows.
    """
    numbers = [number for number, _ in _rows(data)]
    if rows > len(numbers):
        raise UsageError(
            f"--subset {rows} is not allowed; {str(data)!r} has {len(numbers):,} rows"
        )
    chosen = frozenset(sorted(numbers, key=lambda number: _rank(seed, number))[:rows])
    for number, line in _rows(data):
        if number in chosen:
            out.write(line if line.endswith(b"\n") else line + b"\n")


def _rows(data: Path) -> Iterator[tuple[int, bytes]]:
    with data.open("rb") as stream:
        yield from ((number, line) for number, line in enumerate(stream) if line.strip())


def _rank(seed: int, number: int) -> str:
    return content_hash(f"{seed} {number}".encode())
