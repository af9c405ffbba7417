"""A copy of a store, taken between two transactions.

While the store is open for reading no process can write to it, so its file can be copied
as it is. The copy takes its name only once it has proved to be a store.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assay.errors import OutputError, UsageError
from assay.traces.folder import unfinished_runs
from assay.traces.store import Store

__all__ = ["Snapshot", "take_snapshot"]

_PIECE = 1 << 20
"""Bytes that are copied at once."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a copy holds."""

    path: Path
    sessions: int
    open_journals: int
    """Sessions that are still played, or wait to be stored, and are not in the copy."""


def take_snapshot(store: Store, output: Path, *, replace: bool = False) -> Snapshot:
    """Copy a store to `output`, waiting while another process writes.

    Raises:
        UsageError: There is no store, or `output` is there already.
        OutputError: The copy cannot be written.
    """
    if output.exists():
        if store.path.exists() and output.samefile(store.path):
            raise UsageError(f"{str(output)!r} is the store itself; name another file")
        if not replace or output.is_dir():
            raise UsageError(
                f"{str(output)!r} is there already; name another file, or give --force"
            )
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".snapshot-", dir=output.parent) as place:
            copy = Path(place) / "copy.duckdb"
            _copy(store, copy)
            sessions = _settle(copy)
            os.replace(copy, output)
    except OSError as error:
        if isinstance(error, OutputError) or error.errno is None:
            raise
        raise OutputError(f"cannot write {str(output)!r}: {error.strerror}") from error
    return Snapshot(output, sessions, _open_journals(store.path))


def _copy(store: Store, copy: Path) -> None:
    # To close the file would release the lock that DuckDB has on it, so that comes last.
    with store.reading(), store.path.open("rb") as source:
        with copy.open("wb") as target:
            shutil.copyfileobj(source, target, _PIECE)
        # Left by a process that died; without it the copy would lack what it had committed.
        file = store.path.resolve()
        log = file.with_name(f"{file.name}.wal")
        with suppress(FileNotFoundError):
            shutil.copyfile(log, copy.with_name(f"{copy.name}.wal"))


def _settle(copy: Path) -> int:
    """Bring everything into the one file, and count its sessions."""
    with Store(copy).writing() as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute("SELECT count(*) FROM session_traces").fetchone()
    return int(row[0]) if row else 0


def _open_journals(database: Path) -> int:
    return sum(len(run.journals()) for run in unfinished_runs(database))
