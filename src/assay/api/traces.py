"""Recorded sessions: list, load, replay, verify, export, import, merge and delete.

`open_traces` opens traces in files and folders as a temporary database.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.core.options import takes_options
from assay.errors import UsageError
from assay.store.opening import Where, store_at
from assay.store.options import SessionFilters

if TYPE_CHECKING:
    from assay.episodes.replay import Replay, Verification
    from assay.store.dataframes import Database
    from assay.store.deletion import Deletion
    from assay.store.export import Exported, Snapshot
    from assay.store.imports import DamagedSource, ImportReport
    from assay.store.merge import Merged
    from assay.store.queries import ListedRun, OpenRun
    from assay.store.records import Trace
    from assay.store.store import Store

Progress = Callable[[int, int], None]
"""Called with the number of completed items and their total."""

_VERIFY_BATCH = 64


class SessionList(NamedTuple):
    """Sessions of a database by run, newest last."""

    total: int
    """Number of sessions before `limit` was applied."""
    runs: "list[ListedRun]"
    unfinished: "list[OpenRun]"
    """Runs that can be resumed or are still running; empty if sessions are filtered."""
    baselines: int = 0
    """Number of omitted sessions of automatically added baselines."""


def open(database: Where = None) -> "Database":
    """Open the traces in a database, as DataFrames and typed rows."""
    from assay.store.dataframes import Database

    return Database(store_at(database).path)


@takes_options
def list_sessions(
    *,
    only: SessionFilters,
    limit: int = 20,
    sort: str | None = None,
    baselines: bool = True,
    database: Where = None,
) -> SessionList:
    """Return the last sessions of a database.

    Args:
        only: Filters for the sessions.
        limit: Maximum number of sessions.
        sort: An outcome, or reward, steps, turns, cost_usd, duration_s or seed. The first
            `limit` sessions with the highest values are returned, not grouped by run.
        baselines: Whether to include automatically added baselines.
        database: Database to read.
    """
    from assay.store.queries import (
        list_open,
        list_sessions,
        list_sorted,
        select_sessions,
        sorted_sessions,
    )

    store = store_at(database)
    with store.reading() as connection:
        all_ids = select_sessions(connection, **asdict(only))
        session_ids = all_ids
        if not (baselines or only.experiment or only.model):
            session_ids = (
                select_sessions(connection, baselines=False, **asdict(only)) or all_ids
            )
        omitted = len(all_ids) - len(session_ids)
        if sort is None:
            listed = list_sessions(connection, session_ids[-limit:])
        else:
            session_ids = sorted_sessions(connection, session_ids, sort)
            listed = list_sorted(connection, session_ids[:limit])
    unfinished = list_open(store.path) if only == SessionFilters() else []
    return SessionList(len(session_ids), listed, unfinished, omitted)


def load_trace(session: str, *, database: Where = None) -> "Trace":
    """Load a session with its run and experiment; accepts `best`, `worst` and `latest`."""
    from assay.store.load import load_traces
    from assay.store.names import resolve_session

    with store_at(database).reading() as connection:
        return next(load_traces(connection, [resolve_session(connection, session)]))


def replay(session: str, *, database: Where = None) -> "Replay":
    """Return a session for replay; iterate over it to replay its steps.

    Raises:
        ReplayError: The session has too little data to be replayed.
    """
    from assay.episodes.replay import Replay

    return Replay(load_trace(session, database=database).session)


def verify(
    *names: str,
    environment: type | None = None,
    database: Where = None,
    progress: Progress = lambda done, total: None,
) -> "list[Verification]":
    """Replay stored sessions and compare every step with the trace; calls no model.

    Args:
        *names: Sessions, experiments or runs; default: all sessions.
        environment: Class that was given to `assay.run`, for sessions played in it.
        database: Database to read.
        progress: Called after each session.
    """
    from assay.episodes.environments import wrap_environment
    from assay.episodes.replay import verify_episode
    from assay.store.load import load_sessions
    from assay.store.queries import select_sessions

    user_environment = None if environment is None else wrap_environment(environment)
    store = store_at(database)
    with store.reading() as connection:
        session_ids = select_sessions(connection, names)
    verifications: list[Verification] = []
    # The database is closed between batches, so that an active run can write.
    for start in range(0, len(session_ids), _VERIFY_BATCH):
        with store.reading() as connection:
            batch_ids = session_ids[start : start + _VERIFY_BATCH]
            batch = list(load_sessions(connection, batch_ids))
        for session in batch:
            verifications.append(verify_episode(session, user_environment))
            progress(len(verifications), len(session_ids))
    return verifications


def export(
    *names: str,
    output: Path | str,
    format: str = "json",
    database: Where = None,
    progress: Progress = lambda done, total: None,
) -> "Exported":
    """Export sessions to files that need no database.

    Args:
        *names: Sessions, experiments or runs; default: all sessions.
        output: Folder, created if missing; for jsonl or a single session, also a file.
        format: json, jsonl, parquet or atif.
        database: Database to read.
        progress: Called after each session.
    """
    from assay.core.text import unknown_name
    from assay.store.export import ExportFormat, export_sessions
    from assay.store.queries import select_sessions

    if format not in list(ExportFormat):
        raise UsageError(unknown_name("format", format, list(ExportFormat)))
    store = store_at(database)
    with store.reading() as connection:
        session_ids = select_sessions(connection, names)
    if not session_ids:
        raise UsageError(f"no episodes to export in {str(store.path)!r}")
    return export_sessions(
        store,
        session_ids,
        ExportFormat(format),
        Path(output),
        on_session=lambda done: progress(done, len(session_ids)),
    )


def import_traces(
    *paths: Path | str,
    database: Where = None,
    progress: Progress = lambda done, total: None,
) -> "ImportReport":
    """Import sessions from files and folders of assay, and from logs of other programs.

    Sessions that are already in the database are kept. Damaged files are listed in the report.
    """
    from assay.store.imports import import_traces, trace_files

    if not paths:
        raise UsageError("give files or folders to import, such as traces_multi_model")
    files = trace_files([Path(path) for path in paths])
    return import_traces(
        store_at(database), files, on_file=lambda done: progress(done, len(files))
    )


def merge(
    *others: Where, database: Where = None, progress: Progress = lambda done, total: None
) -> "Merged":
    """Copy all sessions of other databases into one; the others are not changed."""
    from assay.store.merge import merge_stores

    if not others:
        raise UsageError("give the databases to copy from, such as monday.duckdb")
    return merge_stores(
        store_at(database),
        [store_at(other) for other in others],
        on_store=lambda done: progress(done, len(others)),
    )


def snapshot(output: Path | str, *, force: bool = False, database: Where = None) -> "Snapshot":
    """Copy the database in a consistent state; `force` replaces an existing file."""
    from assay.store.export import take_snapshot

    return take_snapshot(store_at(database), Path(output), replace=force)


def delete_sessions(*names: str, dry_run: bool = False, database: Where = None) -> "Deletion":
    """Delete sessions with all data that only they use.

    Args:
        *names: Sessions, experiments or runs; accepts `best`, `worst` and `latest`.
        dry_run: Delete nothing, and return what would be deleted.
        database: Database to change.
    """
    from assay.store.deletion import delete, plan_deletion
    from assay.store.queries import select_sessions

    if not names:
        raise UsageError("give the episodes to delete; 'assay traces list' shows them")
    store = store_at(database)
    with store.reading() as connection:
        session_ids = select_sessions(connection, names)
    return plan_deletion(store, session_ids) if dry_run else delete(store, session_ids)


class TraceStore(NamedTuple):
    """Traces from files and folders, as a temporary database."""

    store: "Store"
    damaged: "tuple[DamagedSource, ...]"
    """Sources that could not be read."""


@contextmanager
def open_traces(paths: Sequence[Path]) -> Iterator[TraceStore]:
    """Open the traces in files and folders as a temporary database, within a `with` block.

    Raises:
        UsageError: A path does not exist, or none of them contains a trace.
    """
    from assay.store.imports import import_traces, trace_files

    files = trace_files(paths)
    with tempfile.TemporaryDirectory(prefix="assay-traces-") as folder:
        store = store_at(Path(folder, "traces.duckdb"))
        report = import_traces(store, files)
        if not report.added:
            reasons = [f"{where} {reason}" for where, reason in report.damaged]
            reasons += [f"{where} {reason}" for where, reason in report.skipped]
            first_reason = f": {reasons[0]}" if reasons else ""
            raise UsageError(
                f"no traces in {', '.join(map(str, paths))}{first_reason}; give a folder"
                " written by 'assay run' or 'assay traces export', or logs of another program"
            )
        yield TraceStore(store, report.damaged)
