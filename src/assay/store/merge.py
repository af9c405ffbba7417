"""Merging of several databases into one.

DuckDB copies the rows from file to file: their ids are computed from the session, so they are
the same in every database. A session that exists already is not changed. Runs and experiments
keep their names if these are free.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from assay.core.canonical_json import content_hash
from assay.errors import StoreError, UsageError
from assay.store.database import OTHER_CATALOG
from assay.store.ingest import free_name, insert_rows, transaction
from assay.store.load import load_experiment, load_stored_run
from assay.store.records import StoredExperiment, StoredRun
from assay.store.rows import build_columns
from assay.store.schema import SESSION_TABLES, Table, table
from assay.store.store import Store

_COUNTER = re.compile(r" #\d+$")


def adopt_run(connection: DuckDBPyConnection, run: StoredRun) -> None:
    """Add a run, unless one with its id exists."""
    if not connection.execute("FROM runs WHERE id = ?", [run.id]).fetchone():
        insert_rows(connection, "runs", build_columns("runs", StoredRun, [run]))


def adopt_experiment(
    connection: DuckDBPyConnection, run_id: str, experiment: StoredExperiment
) -> str:
    """Add an experiment, unless one with its id exists, and return its name in this database.

    A name that is taken gets the next free number.

    Raises:
        UsageError: An experiment with its id exists in another run.
    """
    known = connection.execute(
        "SELECT name, run_id FROM experiments WHERE id = ?", [experiment.id]
    ).fetchone()
    if known is not None:
        if known[1] != run_id:
            raise UsageError(
                f"experiment {experiment.id!r} belongs to run {known[1]!r} in this database"
            )
        return str(known[0])
    name = free_name(connection, _COUNTER.sub("", experiment.name), experiment.name)
    columns = build_columns("experiments", StoredExperiment, [experiment])
    insert_rows(connection, "experiments", {**columns, "name": [name], "run_id": [run_id]})
    return name


_AT_ONCE = 10_000
"""Messages checked at a time."""
_LOOKS = table("looks")
_BY_KEY = (
    *(table("provider_limits"), _LOOKS, table("training_runs"), table("metric_points")),
    *(table("analysis_plans"), table("analysis_looks"), table("dataset_worlds")),
    *(table("finetune_files"), table("finetune_jobs"), table("finetune_events")),
    *(table("session_notes"), table("session_labels")),
)
"""Tables whose rows belong to no session: rows with an existing key are not copied."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of a merge."""

    added: int
    """Sessions that were copied."""
    present: int
    """Sessions that existed already."""
    renamed: Mapping[str, str]
    """Experiments whose names were taken: the old name to the new one."""


def merge_stores(
    into: Store,
    others: Sequence[Store],
    *,
    on_store: Callable[[int], None] = lambda done: None,
) -> Merged:
    """Copy other databases into one; `on_store` is called with the number of databases done.

    Raises:
        UsageError: A database is missing, or is the one to copy into.
        StoreError: A database cannot be read or written.
    """
    for other in others:
        if not other.path.exists():
            raise UsageError(f"database {str(other.path)!r} not found")
        if into.path.exists() and into.path.samefile(other.path):
            raise UsageError(f"{str(other.path)!r} cannot be copied into itself")
    added = present = 0
    renamed: dict[str, str] = {}
    for done, other in enumerate(others, start=1):
        more, known = _merge_store(into, other, renamed)
        added += more
        present += known
        on_store(done)
    return Merged(added, present, renamed)


def _merge_store(into: Store, other: Store, renamed: dict[str, str]) -> tuple[int, int]:
    # Opened as a Store first, which waits for other processes and migrates an older file.
    with other.reading() as connection:
        runs = _load_runs(connection)
        experiments = _load_experiments(connection)
    with into.writing(beside=other.path) as connection, transaction(connection):
        for run in runs:
            adopt_run(connection, run)
        for run_id, experiment in experiments:
            name = adopt_experiment(connection, run_id, experiment)
            if name != experiment.name:
                renamed[experiment.name] = name
        _check_bodies(connection, other)
        return _copy_missing(connection)


def _check_bodies(connection: DuckDBPyConnection, other: Store) -> None:
    """Raise StoreError if a message does not match its hash.

    Sessions share equal messages, so a wrong one would appear in other sessions, too.
    """
    connection.execute(
        f"SELECT hash, body FROM {OTHER_CATALOG}.message_bodies"
        " WHERE hash NOT IN (SELECT hash FROM message_bodies)"
    )
    wrong: list[str] = []
    while rows := connection.fetchmany(_AT_ONCE):
        wrong += [name.hex for name, body in rows if content_hash(body.encode()) != name.hex]
    if wrong:
        raise StoreError(
            f"{str(other.path)!r} is not copied: {len(wrong)} of its messages do not match "
            f"their hashes, the first has {wrong[0]}; the file was changed after recording"
        )


def _load_runs(connection: DuckDBPyConnection) -> list[StoredRun]:
    rows = connection.execute("SELECT id FROM runs ORDER BY created_at, id").fetchall()
    return [load_stored_run(connection, run_id) for (run_id,) in rows]


def _load_experiments(connection: DuckDBPyConnection) -> list[tuple[str, StoredExperiment]]:
    rows = connection.execute(
        "SELECT run_id, id FROM experiments ORDER BY created_at, run_id, position, id"
    ).fetchall()
    return [(run_id, load_experiment(connection, name)) for run_id, name in rows]


def _copy_missing(connection: DuckDBPyConnection) -> tuple[int, int]:
    """Copy missing rows; return the numbers of copied and of existing sessions."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE missing AS SELECT session_id"
        f" FROM {OTHER_CATALOG}.session_traces o ANTI JOIN session_traces USING (session_id)"
        # Sessions stored after the experiments were read are left for the next merge.
        " WHERE o.experiment_id IN (SELECT id FROM experiments)"
    )
    row = connection.execute(
        "SELECT (SELECT count(*) FROM missing),"
        f" (SELECT count(*) FROM {OTHER_CATALOG}.session_traces SEMI JOIN session_traces"
        " USING (session_id))"
    ).fetchone()
    added, present = row or (0, 0)
    for part in (table("session_traces"), *SESSION_TABLES):
        _copy_rows(connection, part, "session_id IN (FROM missing)")
    # Trials and outcomes may also belong to no session, such as those of training runs.
    _copy_rows(
        connection,
        table("trials"),
        "id NOT IN (SELECT id FROM trials)"
        " AND (experiment_id IS NULL OR experiment_id IN (SELECT id FROM experiments))",
    )
    _copy_rows(connection, table("outcomes"), "trial_id NOT IN (SELECT trial_id FROM outcomes)")
    _copy_rows(
        connection, table("message_bodies"), "hash NOT IN (SELECT hash FROM message_bodies)"
    )
    for part in _BY_KEY:
        _copy_new_keys(connection, part)
    connection.execute("DROP TABLE missing")
    return int(added), int(present)


def _copy_rows(connection: DuckDBPyConnection, what: Table, which: str) -> None:
    columns = ", ".join(f'"{name}"' for name in what.names)
    connection.execute(
        f"INSERT INTO {what.name} ({columns})"
        f" SELECT {columns} FROM {OTHER_CATALOG}.{what.name} WHERE {which}"
    )


def _copy_new_keys(connection: DuckDBPyConnection, what: Table) -> None:
    columns = ", ".join(f'"{name}"' for name in what.names)
    # Looks stored after the experiments were read are left for the next merge.
    known = "WHERE experiment_id IN (SELECT id FROM experiments)" if what is _LOOKS else ""
    connection.execute(
        f"INSERT INTO {what.name} ({columns})"
        f" SELECT {columns} FROM {OTHER_CATALOG}.{what.name} ANTI JOIN {what.name}"
        f" USING ({', '.join(what.key)}) {known}"
    )
