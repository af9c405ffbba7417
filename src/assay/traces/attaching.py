"""A DuckDB file, attached to an instance of DuckDB.

An instance takes twenty milliseconds to start, and a file two to attach, so that the instance
that was used last is kept for the file it was used for. A file may come from anywhere: only a
plain path is attached, and from then on nothing but that file can be reached. No extension is
installed or loaded.
"""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from .schema import CATALOG

__all__ = ["BESIDE", "OURS", "attached"]

BESIDE = "other"
"""The catalog of a second file."""
OURS = "memory.main"
"""The schema of the instance itself; what is made there is kept with it."""

_ISOLATED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
_ROW_GROUP = 16_384
"""Rows that are rewritten together. Whenever a file is closed, DuckDB reads and writes the
last group of each table again, so that larger ones take more memory and time."""

_idle: dict[Path, duckdb.DuckDBPyConnection] = {}
"""At most one instance, with no file attached, by the file that it may attach."""
# DuckDB lists what is left when Python ends.
atexit.register(_idle.clear)


@contextmanager
def attached(
    path: Path, *, read_only: bool, beside: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a file, and to another one to read from.

    Raises:
        duckdb.Error: the file cannot be opened.
    """
    path = path.absolute()
    instance = None if beside else _idle.pop(path, None)
    known = instance is not None
    instance = instance or duckdb.connect(":memory:", config=_ISOLATED)
    keep = False
    try:
        mode = "READ_ONLY" if read_only else "READ_WRITE"
        # Only ATTACH can say how large row groups are.
        instance.execute(
            f"ATTACH {_quoted(path)} AS {CATALOG} ({mode}, ROW_GROUP_SIZE {_ROW_GROUP})"
        )
        if beside is not None:
            instance.execute(f"ATTACH {_quoted(beside.absolute())} AS {BESIDE} (READ_ONLY)")
        if not known:
            instance.execute("SET enable_external_access = false")
        with instance.cursor() as connection:
            connection.execute(f"USE {CATALOG}")
            yield connection
        keep = beside is None and _detach(instance)
    finally:
        if keep:
            _idle.clear()
            _idle[path] = instance
        else:
            instance.close()


def _detach(instance: duckdb.DuckDBPyConnection) -> bool:
    """Let go of the file; what is committed is in it, or in its log, if that fails."""
    try:
        instance.execute(f"DETACH {CATALOG}")
    except duckdb.Error:
        return False
    return True


def _quoted(path: Path) -> str:
    # An absolute path has no prefix that DuckDB might obey.
    return "'" + str(path).replace("'", "''") + "'"
