"""Deletion of sessions and experiments, with everything that belongs only to them.

Deleting a session deletes its steps, events, outcomes, trace file, and the messages that no
other session uses. Deleting the last session of an experiment deletes the experiment, and
deleting the last experiment of a run deletes the run and its files. A run that is in progress
is not changed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from assay.errors import UsageError
from assay.store.ingest import delete_sessions, transaction
from assay.store.run_folder import RunFolder, unfinished_runs
from assay.store.store import Store
from assay.store.trace_folder import find_trace_folder, remove_traces

_CHOSEN = "IN (SELECT unnest(?::VARCHAR[]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Items that were deleted, or would be."""

    sessions: tuple[str, ...]
    """Ids of sessions and of training runs."""
    experiments: tuple[str, ...]
    """Names of experiments that are deleted entirely."""
    runs: tuple[str, ...]
    """Ids of runs that are deleted entirely."""
    outcomes: int
    messages: int
    """Message texts that no other session uses."""
    files: tuple[str, ...]
    """Trace files, and result files of runs that are deleted entirely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeletionPlan:
    sessions: list[str]
    experiments: dict[str, str]
    """Names by id."""
    runs: list[str]
    bodies: list[str]
    outcomes: int
    folders: list[RunFolder]
    """Journal folders of interrupted runs."""
    files: dict[Path, str]
    """Trace folders, each with the id of its run."""


def plan_deletion(
    store: Store, session_ids: Sequence[str], experiment_ids: Collection[str] = ()
) -> Deletion:
    """Return what `delete` would delete; changes nothing.

    Raises:
        UsageError: A run is in progress, or is unfinished and would be deleted in part.
    """
    with store.reading() as connection:
        plan = _make_plan(connection, store, session_ids, experiment_ids)
    files = [
        name
        for folder, run in plan.files.items()
        for name in remove_traces(folder, run, plan.sessions, whole=run in plan.runs, dry=True)
    ]
    return _to_deletion(plan, files)


def delete(
    store: Store, session_ids: Sequence[str], experiment_ids: Collection[str] = ()
) -> Deletion:
    """Delete sessions, and experiments with all their sessions.

    Raises:
        UsageError: A run is in progress, or is unfinished and would be deleted in part.
    """
    with store.writing() as connection:
        plan = _make_plan(connection, store, session_ids, experiment_ids)
        for folder in plan.folders:
            folder.discard()
        with transaction(connection):
            delete_sessions(connection, plan.sessions)
            for name, column, values in (
                ("session_notes", "session_id", plan.sessions),
                ("session_labels", "session_id", plan.sessions),
                ("training_runs", "id", plan.sessions),
                ("metric_points", "run_id", plan.sessions),
                ("outcomes", "experiment_id", [*plan.experiments]),
                ("looks", "experiment_id", [*plan.experiments]),
                ("looks", "baseline_id", [*plan.experiments]),
                ("experiments", "id", [*plan.experiments]),
                ("provider_limits", "run_id", plan.runs),
                ("runs", "id", plan.runs),
            ):
                connection.execute(f"DELETE FROM {name} WHERE {column} {_CHOSEN}", [values])
            connection.execute(
                "DELETE FROM message_bodies WHERE hash IN (SELECT unnest(?::UUID[]))",
                [plan.bodies],
            )
        connection.execute("CHECKPOINT")
    files = [
        name
        for folder, run in plan.files.items()
        for name in remove_traces(folder, run, plan.sessions, whole=run in plan.runs)
    ]
    return _to_deletion(plan, files)


def _to_deletion(plan: _DeletionPlan, files: Sequence[str]) -> Deletion:
    return Deletion(
        sessions=tuple(plan.sessions),
        experiments=tuple(plan.experiments.values()),
        runs=tuple(plan.runs),
        outcomes=plan.outcomes,
        messages=len(plan.bodies),
        files=tuple(files),
    )


def _make_plan(
    connection: duckdb.DuckDBPyConnection,
    store: Store,
    session_ids: Sequence[str],
    experiment_ids: Collection[str],
) -> _DeletionPlan:
    def select(sql: str, *values: Any) -> list[Any]:
        return [row[0] for row in connection.execute(sql, list(values)).fetchall()]

    chosen = list(experiment_ids)
    sessions = [
        *dict.fromkeys(
            [
                *session_ids,
                *select(f"SELECT id FROM trials WHERE experiment_id {_CHOSEN}", chosen),
            ]
        )
    ]
    touched = select(f"SELECT DISTINCT experiment_id FROM trials WHERE id {_CHOSEN}", sessions)
    empty = select(
        f"SELECT id FROM experiments WHERE id {_CHOSEN} AND id NOT IN (SELECT experiment_id"
        f" FROM trials WHERE experiment_id IS NOT NULL AND NOT id {_CHOSEN})",
        [name for name in [*chosen, *touched] if name is not None],
        sessions,
    )
    experiments = dict(
        connection.execute(
            f"SELECT id, coalesce(name, id) FROM experiments WHERE id {_CHOSEN}"
            " ORDER BY created_at, position",
            [empty],
        ).fetchall()
    )
    of_runs = select(
        f"SELECT DISTINCT run_id FROM trials WHERE id {_CHOSEN} AND run_id IS NOT NULL"
        f" UNION SELECT run_id FROM experiments WHERE id {_CHOSEN} AND run_id IS NOT NULL",
        sessions,
        empty,
    )
    runs = select(
        f"SELECT id FROM runs WHERE id {_CHOSEN} AND id NOT IN (SELECT run_id FROM experiments"
        f" WHERE run_id IS NOT NULL AND NOT id {_CHOSEN}) ORDER BY created_at",
        of_runs,
        empty,
    )
    used = "SELECT hash FROM message_rows WHERE session_id {0} UNION SELECT tools_hash FROM"
    used += " session_traces WHERE tools_hash IS NOT NULL AND session_id {0}"
    theirs, others = used.format(_CHOSEN), used.format(f"NOT {_CHOSEN}")
    bodies = select(f"({theirs}) EXCEPT ({others})", *[sessions] * 4)
    outcomes = select(
        f"SELECT count(*) FROM outcomes WHERE trial_id {_CHOSEN} OR experiment_id {_CHOSEN}",
        sessions,
        empty,
    )[0]
    return _DeletionPlan(
        sessions=sessions,
        experiments=experiments,
        runs=runs,
        bodies=[str(body) for body in bodies],
        outcomes=outcomes,
        folders=_find_run_folders(store.path, of_runs, runs),
        files=_find_trace_folders(connection, store.path, of_runs),
    )


def _find_run_folders(
    database: Path, touched: Collection[str], whole: Collection[str]
) -> list[RunFolder]:
    """Return the journal folders of runs to delete; raise UsageError if one must not be."""
    found = []
    for folder in unfinished_runs(database):
        run = folder.record.id
        if run not in touched:
            continue
        if (process := folder.holder()) is not None:
            raise UsageError(
                f"run {run!r} is in progress in process {process}; wait for it, or stop it"
            )
        if run not in whole:
            raise UsageError(
                f"run {run!r} is unfinished and would repeat the deleted trials when resumed; "
                f"finish it with 'assay run --resume {run}', or delete all of it"
            )
        found.append(folder)
    return found


def _find_trace_folders(
    connection: duckdb.DuckDBPyConnection, database: Path, runs: Sequence[str]
) -> dict[Path, str]:
    rows = connection.execute(
        "SELECT id, json_extract_string(configuration, '$.traces_dir') FROM runs"
        f" WHERE id {_CHOSEN}",
        [list(runs)],
    ).fetchall()
    found: dict[Path, str] = {}
    for run, name in rows:
        for place in (Path(name or "."), database.absolute().parent / (name or ".")):
            if name and (folder := find_trace_folder(place, run, database)) is not None:
                found.setdefault(folder.absolute(), run)
    return found
