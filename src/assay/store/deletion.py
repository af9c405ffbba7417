"""Sessions and experiments taken out of a store, with all that is theirs alone.

With a session go its steps, events, messages that nobody else uses, outcomes and trace file;
with the last session of an experiment the experiment, and with the last experiment of a run
the run and its files. Nothing of a run that is being played is touched.
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
from assay.store.trace_folder import forget_traces, traces_of_run

_CHOSEN = "IN (SELECT unnest(?::VARCHAR[]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What is deleted, or would be."""

    sessions: tuple[str, ...]
    """Ids of sessions, and of training runs."""
    experiments: tuple[str, ...]
    """Names of experiments of which nothing is left."""
    runs: tuple[str, ...]
    """Ids of runs of which nothing is left."""
    outcomes: int
    messages: int
    """Texts that no other session has."""
    files: tuple[str, ...]
    """Trace files, and results of runs of which nothing is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeletionPlan:
    sessions: list[str]
    experiments: dict[str, str]
    """Names by id."""
    runs: list[str]
    bodies: list[str]
    outcomes: int
    folders: list[RunFolder]
    """Journals of unfinished runs that nobody plays."""
    files: dict[Path, str]
    """Folders of traces, and the run whose they are."""


def plan_deletion(
    store: Store, session_ids: Sequence[str], experiment_ids: Collection[str] = ()
) -> Deletion:
    """What `delete` would do; changes nothing.

    Raises:
        UsageError: A run is being played, or is unfinished and would lose a part.
    """
    with store.reading() as connection:
        plan = _plan(connection, store, session_ids, experiment_ids)
    files = [
        name
        for folder, run in plan.files.items()
        for name in forget_traces(folder, run, plan.sessions, whole=run in plan.runs, dry=True)
    ]
    return _deletion(plan, files)


def delete(
    store: Store, session_ids: Sequence[str], experiment_ids: Collection[str] = ()
) -> Deletion:
    """Delete sessions, and experiments with all their sessions.

    Raises:
        UsageError: A run is being played, or is unfinished and would lose a part.
    """
    with store.writing() as connection:
        plan = _plan(connection, store, session_ids, experiment_ids)
        for folder in plan.folders:
            folder.discard()
        with transaction(connection):
            delete_sessions(connection, plan.sessions)
            for name, column, values in (
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
        for name in forget_traces(folder, run, plan.sessions, whole=run in plan.runs)
    ]
    return _deletion(plan, files)


def _deletion(plan: _DeletionPlan, files: Sequence[str]) -> Deletion:
    return Deletion(
        sessions=tuple(plan.sessions),
        experiments=tuple(plan.experiments.values()),
        runs=tuple(plan.runs),
        outcomes=plan.outcomes,
        messages=len(plan.bodies),
        files=tuple(files),
    )


def _plan(
    connection: duckdb.DuckDBPyConnection,
    store: Store,
    session_ids: Sequence[str],
    experiment_ids: Collection[str],
) -> _DeletionPlan:
    def ask(sql: str, *values: Any) -> list[Any]:
        return [row[0] for row in connection.execute(sql, list(values)).fetchall()]

    chosen = list(experiment_ids)
    sessions = [
        *dict.fromkeys(
            [*session_ids, *ask(f"SELECT id FROM trials WHERE experiment_id {_CHOSEN}", chosen)]
        )
    ]
    touched = ask(f"SELECT DISTINCT experiment_id FROM trials WHERE id {_CHOSEN}", sessions)
    empty = ask(
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
    of_runs = ask(
        f"SELECT DISTINCT run_id FROM trials WHERE id {_CHOSEN} AND run_id IS NOT NULL"
        f" UNION SELECT run_id FROM experiments WHERE id {_CHOSEN} AND run_id IS NOT NULL",
        sessions,
        empty,
    )
    runs = ask(
        f"SELECT id FROM runs WHERE id {_CHOSEN} AND id NOT IN (SELECT run_id FROM experiments"
        f" WHERE run_id IS NOT NULL AND NOT id {_CHOSEN}) ORDER BY created_at",
        of_runs,
        empty,
    )
    used = "SELECT hash FROM message_rows WHERE session_id {0} UNION SELECT tools_hash FROM"
    used += " session_traces WHERE tools_hash IS NOT NULL AND session_id {0}"
    theirs, others = used.format(_CHOSEN), used.format(f"NOT {_CHOSEN}")
    bodies = ask(f"({theirs}) EXCEPT ({others})", *[sessions] * 4)
    outcomes = ask(
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
        folders=_folders(store.path, of_runs, runs),
        files=_files(connection, store.path, of_runs),
    )


def _folders(
    database: Path, touched: Collection[str], whole: Collection[str]
) -> list[RunFolder]:
    """The journals of unfinished runs, which go with their runs; nobody may be playing."""
    found = []
    for folder in unfinished_runs(database):
        run = folder.record.id
        if run not in touched:
            continue
        if (process := folder.holder()) is not None:
            raise UsageError(
                f"run {run!r} is being played by process {process}; wait for it, or stop it"
            )
        if run not in whole:
            raise UsageError(
                f"run {run!r} is unfinished, and would play again what is deleted of it; "
                f"end it with 'assay run --resume {run}', or delete all of it"
            )
        found.append(folder)
    return found


def _files(
    connection: duckdb.DuckDBPyConnection, database: Path, runs: Sequence[str]
) -> dict[Path, str]:
    rows = connection.execute(
        "SELECT id, json_extract_string(configuration, '$.traces_dir') FROM runs"
        f" WHERE id {_CHOSEN}",
        [list(runs)],
    ).fetchall()
    found: dict[Path, str] = {}
    for run, said in rows:
        for place in (Path(said or "."), database.absolute().parent / (said or ".")):
            if said and (folder := traces_of_run(place, run, database)) is not None:
                found.setdefault(folder.absolute(), run)
    return found
