"""Export of sessions to files, and snapshots of a database.

An export reads a few sessions at a time and closes the database in between, so that memory
stays bounded and other processes can write. Files are written atomically.

A snapshot copies the database file while it is open for reading, because no process can write
to it then. The copy is opened and checked before it gets its name.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import duckdb
import pyarrow.parquet

from assay.core.canonical_json import content_hash
from assay.core.files import atomic_file, atomic_write
from assay.errors import OutputError, UsageError
from assay.store.formats.atif import dump_atif
from assay.store.formats.trace_json import dump_line, dump_trace
from assay.store.load import load_traces
from assay.store.records import Trace
from assay.store.run_folder import unfinished_runs
from assay.store.schema import TABLES, Table, Type
from assay.store.store import Store

_AT_ONCE = 256
"""Sessions read before the database is closed for a moment."""
_ROWS_AT_ONCE = 100_000


class ExportFormat(StrEnum):
    """File format of an export."""

    JSON = "json"
    """One file per session, `assay-trace/1`."""
    JSONL = "jsonl"
    """One file, one session per line."""
    PARQUET = "parquet"
    """One file per table."""
    ATIF = "atif"
    """One file per session, for tools that read Harbor's trajectories."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of an export."""

    sessions: int
    files: tuple[Path, ...]


def export_sessions(
    store: Store,
    session_ids: Sequence[str],
    form: ExportFormat,
    output: Path,
    *,
    on_session: Callable[[int], None] = lambda done: None,
) -> Exported:
    """Write sessions to a folder, or to one file if the format allows it.

    Args:
        store: The database.
        session_ids: The sessions, in order.
        form: The format.
        output: A folder, created if missing; or a file, for `jsonl` and for a single session.
        on_session: Called after each session with the number of sessions done.

    Raises:
        UsageError: `output` is a file and a folder is needed.
        OutputError: A file cannot be written.
    """
    if output.exists() and not output.is_dir() and _writes_folder(form, session_ids, output):
        raise UsageError(f"{str(output)!r} is a file; give a folder with --output")
    if form is ExportFormat.PARQUET:
        return _export_tables(store, session_ids, output, on_session)
    traces = _count_traces(read_traces(store, session_ids), on_session)
    if form is ExportFormat.JSONL:
        path = output if output.suffix == ".jsonl" else output / "traces.jsonl"
        with atomic_file(path) as stream:
            for trace in traces:
                stream.write(dump_line(trace))
        return Exported(len(session_ids), (path,))
    folder = _writes_folder(form, session_ids, output)
    if form is ExportFormat.JSON:
        # Loaders of many files, such as `datasets`, expect JSON Lines.
        dump, ending = dump_line if folder else dump_trace, ".json"
    else:
        dump, ending = dump_atif, ".atif.json"
    files: list[Path] = []
    for trace in traces:
        name = _make_file_name(trace.session.header.session_id)
        files.append(output / f"{name}{ending}" if folder else output)
        atomic_write(files[-1], dump(trace))
    return Exported(len(session_ids), tuple(files))


def read_traces(store: Store, session_ids: Sequence[str]) -> Iterator[Trace]:
    """Read sessions in order, closing the database between batches."""
    for start in range(0, len(session_ids), _AT_ONCE):
        with store.reading() as connection:
            batch = session_ids[start : start + _AT_ONCE]
            yield from load_traces(connection, batch)


def _writes_folder(form: ExportFormat, session_ids: Sequence[str], output: Path) -> bool:
    match form:
        case ExportFormat.PARQUET:
            return True
        case ExportFormat.JSONL:
            return output.suffix != ".jsonl"
    if output.suffix != ".json":
        return True
    if len(session_ids) != 1:
        raise UsageError(
            f"{str(output)!r} can contain one episode, not {len(session_ids)}; "
            "give a folder with --output, or choose --format jsonl"
        )
    return False


def _count_traces(
    traces: Iterator[Trace], on_session: Callable[[int], None]
) -> Iterator[Trace]:
    for done, trace in enumerate(traces, start=1):
        yield trace
        on_session(done)


def _make_file_name(session_id: str) -> str:
    """Return a file name for a session id; an id with unsafe characters gets a hash added."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", session_id):
        return session_id
    safe = re.sub(r"[^A-Za-z0-9-]", "_", session_id)[:60]
    return f"{safe}-{content_hash(session_id.encode())[:12]}"


def _export_tables(
    store: Store,
    session_ids: Sequence[str],
    output: Path,
    on_session: Callable[[int], None],
) -> Exported:
    files: list[Path] = []
    with store.reading() as connection:
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE chosen AS SELECT unnest(?::VARCHAR[]) AS session_id",
            [list(session_ids)],
        )
        for table in TABLES:
            files.append(output / f"{table.name}.parquet")
            _export_table(connection, table, files[-1])
        connection.execute("DROP TABLE chosen")
    on_session(len(session_ids))
    return Exported(len(session_ids), tuple(files))


def _export_table(connection: duckdb.DuckDBPyConnection, table: Table, path: Path) -> None:
    # Few Parquet readers support UUID and JSON.
    columns = ", ".join(
        f't."{column.name}"::VARCHAR AS "{column.name}"'
        if column.type in (Type.HASH, Type.JSON)
        else f't."{column.name}"'
        for column in table.columns
    )
    order = ", ".join(f't."{name}"' for name in table.key)
    rows = f"SELECT {columns} FROM {table.name} t WHERE {_CHOSEN[table.name]} ORDER BY {order}"
    # Written here, because the connection cannot access any other file.
    found = connection.sql(rows).to_arrow_reader(_ROWS_AT_ONCE)
    with (
        atomic_file(path) as stream,
        pyarrow.parquet.ParquetWriter(stream, found.schema) as writer,
    ):
        for batch in found:
            writer.write_batch(batch)


_FROM_CHOSEN = "SELECT {} FROM session_traces WHERE session_id IN (FROM chosen)"
_BY_SESSION = "t.session_id IN (FROM chosen)"
# Rows that belong to no session are exported only if all sessions are.
_ALL_CHOSEN = "NOT EXISTS (FROM session_traces WHERE session_id NOT IN (FROM chosen))"
_CHOSEN = {
    "runs": f"t.id IN ({_FROM_CHOSEN.format('run_id')})",
    "experiments": (
        f"t.id IN ({_FROM_CHOSEN.format('experiment_id')})"
        f" OR t.run_id IS NULL AND {_ALL_CHOSEN}"
    ),
    "trials": f"t.id IN (FROM chosen) OR {_ALL_CHOSEN}",
    "session_traces": _BY_SESSION,
    "session_timesteps": _BY_SESSION,
    "events": _BY_SESSION,
    "message_rows": _BY_SESSION,
    "hook_results": _BY_SESSION,
    "message_bodies": (
        "t.hash IN (SELECT hash FROM message_rows WHERE session_id IN (FROM chosen))"
        f" OR t.hash IN ({_FROM_CHOSEN.format('tools_hash')})"
    ),
    "outcomes": f"t.trial_id IN (FROM chosen) OR {_ALL_CHOSEN}",
    "provider_limits": f"t.run_id IN ({_FROM_CHOSEN.format('run_id')})",
    "looks": f"t.experiment_id IN ({_FROM_CHOSEN.format('experiment_id')})",
    "training_runs": _ALL_CHOSEN,
    "metric_points": _ALL_CHOSEN,
    "analysis_plans": _ALL_CHOSEN,
    "analysis_looks": _ALL_CHOSEN,
    "dataset_worlds": _ALL_CHOSEN,
    "finetune_files": _ALL_CHOSEN,
    "finetune_jobs": _ALL_CHOSEN,
    "finetune_events": _ALL_CHOSEN,
    "session_notes": _BY_SESSION,
    "session_labels": _BY_SESSION,
}

_PIECE = 1 << 20
"""Bytes copied at a time."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a database."""

    path: Path
    sessions: int
    open_journals: int
    """Sessions that are in progress or not stored yet, and so are not in the copy."""


def take_snapshot(store: Store, output: Path, *, replace: bool = False) -> Snapshot:
    """Copy a database to `output`, waiting while another process writes.

    Raises:
        UsageError: The database is missing, or `output` exists already.
        OutputError: The copy cannot be written.
    """
    if output.exists():
        if store.path.exists() and output.samefile(store.path):
            raise UsageError(f"{str(output)!r} is the database itself; give another file")
        if not replace or output.is_dir():
            raise UsageError(
                f"{str(output)!r} exists already; give another file, or use --force"
            )
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".snapshot-", dir=output.parent) as place:
            copy = Path(place) / "copy.duckdb"
            _copy(store, copy)
            sessions = _checkpoint(copy)
            os.replace(copy, output)
    except OSError as error:
        if isinstance(error, OutputError) or error.errno is None:
            raise
        raise OutputError(f"cannot write {str(output)!r}: {error.strerror}") from error
    return Snapshot(output, sessions, _count_open_journals(store.path))


def _copy(store: Store, copy: Path) -> None:
    # Closing the file releases the lock that DuckDB has on it, so that comes last.
    with store.reading(), store.path.open("rb") as source:
        with copy.open("wb") as target:
            shutil.copyfileobj(source, target, _PIECE)
        # Left by a process that died; it has committed data that the copy must include.
        file = store.path.resolve()
        log = file.with_name(f"{file.name}.wal")
        with suppress(FileNotFoundError):
            shutil.copyfile(log, copy.with_name(f"{copy.name}.wal"))


def _checkpoint(copy: Path) -> int:
    """Merge the write-ahead log into the copy and return the number of sessions."""
    with Store(copy).writing() as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute("SELECT count(*) FROM session_traces").fetchone()
    return int(row[0]) if row else 0


def _count_open_journals(database: Path) -> int:
    return sum(len(run.journals()) for run in unfinished_runs(database))
