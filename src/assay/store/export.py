"""Sessions out of a store, into files.

Sessions are read a few at a time, and the database is let go in between, so that the size
of an export needs no memory and holds nobody up for long. Each file appears whole.

A copy of a store, taken between two transactions.

While the store is open for reading no process can write to it, so its file can be copied
as it is. The copy takes its name only once it has proved to be a store.
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
"""How many sessions are read before the database is let go."""
_ROWS_AT_ONCE = 100_000


class ExportFormat(StrEnum):
    """What an export may look like."""

    JSON = "json"
    """One file per session, `assay-trace/1`."""
    JSONL = "jsonl"
    """One file, a session in each line."""
    PARQUET = "parquet"
    """One file per table."""
    ATIF = "atif"
    """One file per session, for tools that read Harbor's trajectories."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

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
    """Write sessions into a folder, or into one file where the format allows it.

    Args:
        store: Where the sessions are.
        session_ids: Which ones, in which order.
        form: The format.
        output: A folder, made if missing; for `jsonl`, and for one session, also a file.
        on_session: Told after each session how many are done.

    Raises:
        UsageError: The output cannot hold this.
        OutputError: A file cannot be written.
    """
    if output.exists() and not output.is_dir() and _is_folder(form, session_ids, output):
        raise UsageError(f"{str(output)!r} is a file; name a folder with --output")
    if form is ExportFormat.PARQUET:
        return _export_tables(store, session_ids, output, on_session)
    traces = _counted(read_traces(store, session_ids), on_session)
    if form is ExportFormat.JSONL:
        path = output if output.suffix == ".jsonl" else output / "traces.jsonl"
        with atomic_file(path) as stream:
            for trace in traces:
                stream.write(dump_line(trace))
        return Exported(len(session_ids), (path,))
    folder = _is_folder(form, session_ids, output)
    if form is ExportFormat.JSON:
        # Loaders of many files, such as `datasets`, take a file for lines of JSON.
        dump, ending = dump_line if folder else dump_trace, ".json"
    else:
        dump, ending = dump_atif, ".atif.json"
    files: list[Path] = []
    for trace in traces:
        name = _file_name(trace.session.header.session_id)
        files.append(output / f"{name}{ending}" if folder else output)
        atomic_write(files[-1], dump(trace))
    return Exported(len(session_ids), tuple(files))


def read_traces(store: Store, session_ids: Sequence[str]) -> Iterator[Trace]:
    """Read sessions in order, letting go of the database now and then."""
    for start in range(0, len(session_ids), _AT_ONCE):
        with store.reading() as connection:
            batch = session_ids[start : start + _AT_ONCE]
            yield from load_traces(connection, batch)


def _is_folder(form: ExportFormat, session_ids: Sequence[str], output: Path) -> bool:
    match form:
        case ExportFormat.PARQUET:
            return True
        case ExportFormat.JSONL:
            return output.suffix != ".jsonl"
    if output.suffix != ".json":
        return True
    if len(session_ids) != 1:
        raise UsageError(
            f"{str(output)!r} can hold one episode, not {len(session_ids)}; "
            "name a folder with --output, or choose --format jsonl"
        )
    return False


def _counted(traces: Iterator[Trace], on_session: Callable[[int], None]) -> Iterator[Trace]:
    for done, trace in enumerate(traces, start=1):
        yield trace
        on_session(done)


def _file_name(session_id: str) -> str:
    """A session id as the name of a file; one that is odd gets its hash."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", session_id):
        return session_id
    tame = re.sub(r"[^A-Za-z0-9-]", "_", session_id)[:60]
    return f"{tame}-{content_hash(session_id.encode())[:12]}"


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
    # Few readers of Parquet know UUID and JSON.
    columns = ", ".join(
        f't."{column.name}"::VARCHAR AS "{column.name}"'
        if column.type in (Type.HASH, Type.JSON)
        else f't."{column.name}"'
        for column in table.columns
    )
    order = ", ".join(f't."{name}"' for name in table.key)
    rows = f"SELECT {columns} FROM {table.name} t WHERE {_CHOSEN[table.name]} ORDER BY {order}"
    # Written here, because a connection to a store reaches no other file.
    found = connection.sql(rows).to_arrow_reader(_ROWS_AT_ONCE)
    with (
        atomic_file(path) as stream,
        pyarrow.parquet.ParquetWriter(stream, found.schema) as writer,
    ):
        for batch in found:
            writer.write_batch(batch)


_OF_SESSIONS = "SELECT {} FROM session_traces WHERE session_id IN (FROM chosen)"
_BY_SESSION = "t.session_id IN (FROM chosen)"
# What belongs to no session goes along with all of them, and never with some.
_EVERYTHING = "NOT EXISTS (FROM session_traces WHERE session_id NOT IN (FROM chosen))"
_CHOSEN = {
    "runs": f"t.id IN ({_OF_SESSIONS.format('run_id')})",
    "experiments": (
        f"t.id IN ({_OF_SESSIONS.format('experiment_id')})"
        f" OR t.run_id IS NULL AND {_EVERYTHING}"
    ),
    "trials": f"t.id IN (FROM chosen) OR {_EVERYTHING}",
    "session_traces": _BY_SESSION,
    "session_timesteps": _BY_SESSION,
    "events": _BY_SESSION,
    "message_rows": _BY_SESSION,
    "hook_results": _BY_SESSION,
    "message_bodies": (
        "t.hash IN (SELECT hash FROM message_rows WHERE session_id IN (FROM chosen))"
        f" OR t.hash IN ({_OF_SESSIONS.format('tools_hash')})"
    ),
    "outcomes": f"t.trial_id IN (FROM chosen) OR {_EVERYTHING}",
    "provider_limits": f"t.run_id IN ({_OF_SESSIONS.format('run_id')})",
    "looks": f"t.experiment_id IN ({_OF_SESSIONS.format('experiment_id')})",
    "training_runs": _EVERYTHING,
    "metric_points": _EVERYTHING,
    "analysis_plans": _EVERYTHING,
    "analysis_looks": _EVERYTHING,
    "dataset_worlds": _EVERYTHING,
    "finetune_files": _EVERYTHING,
    "finetune_jobs": _EVERYTHING,
    "finetune_events": _EVERYTHING,
}

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
    return Snapshot(
        output, sessions, sum(len(run.journals()) for run in unfinished_runs(store.path))
    )


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
