"""Brings a file to the newest version of the schema.

Migrations are numbered and only ever added. What a version added to tables follows from the
schema; a function stands here only where rows have to change too. All of it is one
transaction, so that a file is always of one version, and as it was if anything fails.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import duckdb

from assay.core.text import shown
from assay.errors import StoreError
from assay.store.schema import ASSAY_SOURCE, CATALOG, TABLES, VERSION, StoredKind, Table
from assay.store.views import VIEWS


def _fill_trials(connection: duckdb.DuckDBPyConnection) -> None:
    """Give every session and every training run its row among the trials."""
    connection.execute(
        f"""
        INSERT INTO trials BY NAME
        SELECT s.session_id AS id, s.run_id, s.experiment_id, s.subject, s.task, s.seed,
               coalesce(s.replicate, 0) AS replicate, s.state, s.stop_reason AS reason,
               s.error_type || coalesce(': ' || nullif(s.error_message, ''), '') AS error,
               s.created_at AS started_at, s.ended_at,
               CASE WHEN s.source <> '{ASSAY_SOURCE}' THEN '{StoredKind.IMPORTED}'
                    WHEN r.command = 'SessionTracer' THEN '{StoredKind.TRACED}'
                    ELSE '{StoredKind.EPISODE}' END AS kind
        FROM session_traces s LEFT JOIN runs r ON r.id = s.run_id
        """
    )
    # Their experiments and outcomes are not known here: see `experiments.curves`.
    connection.execute(
        f"""
        INSERT INTO trials BY NAME
        SELECT id, subject, task, seed, 0 AS replicate, status AS reason,
               CASE status WHEN 'finished' THEN 'result' WHEN 'crashed' THEN 'infrastructure'
               END AS state, created_at AS started_at, finished_at AS ended_at,
               '{StoredKind.TRAINING}' AS kind
        FROM training_runs
        """
    )


_CHANGES: Mapping[int, Callable[[duckdb.DuckDBPyConnection], None]] = {3: _fill_trials}
"""What a version does to rows, after its tables and columns were added."""


def stored_version(connection: duckdb.DuckDBPyConnection) -> int:
    """The version of the schema in a file; 0 where there is none.

    Raises:
        StoreError: the file is newer than this program, or somebody else's.
    """
    ours = {table.name for table in TABLES} | {"schema_version"}
    names = _names(connection, "table")
    if views := sorted(_names(connection, "view") & ours):
        raise StoreError(
            f"the database has a view {views[0]!r} where assay has a table; "
            "choose another --database"
        )
    if "schema_version" not in names:
        if taken := sorted(names & ours):
            raise StoreError(
                f"the database has a table {taken[0]!r} that assay did not make; "
                "choose another --database"
            )
        return 0
    # All rows are fetched: a result with rows left would keep the connection from other work.
    rows = connection.execute("SELECT max(version) FROM schema_version").fetchall()
    version = rows[0][0] or 0
    if not isinstance(version, int):
        raise StoreError(
            f"the database says that its schema has version {shown(version)}, which is no "
            "number; choose another --database"
        )
    if version > VERSION:
        raise StoreError(
            f"the database has version {version} of the schema, this program knows up to "
            f"{VERSION}; install a newer assay"
        )
    return version


def _names(connection: duckdb.DuckDBPyConnection, kind: str) -> set[str]:
    """The names of what is in the file; views of a connection are elsewhere."""
    rows = connection.execute(
        f"SELECT {kind}_name FROM duckdb_{kind}s() WHERE schema_name = 'main' AND NOT internal"
        " AND database_name = coalesce((SELECT min(database_name) FROM duckdb_databases()"
        f" WHERE database_name = '{CATALOG}'), current_database())"
    ).fetchall()
    return {name for (name,) in rows}


def migrate(
    connection: duckdb.DuckDBPyConnection,
    version: int,
    *,
    tables: Sequence[Table] = TABLES,
    target: int = VERSION,
) -> None:
    """Bring a file from a version to the newest one, step by step."""
    connection.execute("BEGIN")
    try:
        for step in range(version + 1, target + 1):
            _add(connection, tables, step)
            if step in _CHANGES:
                _CHANGES[step](connection)
            connection.execute(
                "INSERT INTO schema_version VALUES (?, now() AT TIME ZONE 'UTC')", [step]
            )
        for view in VIEWS:
            connection.execute(view.ddl())
        connection.execute("COMMIT")
    except BaseException:
        # A COMMIT that failed has ended it already, and its own error is the one to tell.
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise


def _add(connection: duckdb.DuckDBPyConnection, tables: Sequence[Table], step: int) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER, applied_at TIMESTAMP)"
    )
    for table in tables:
        if table.since == step:
            connection.execute(table.ddl(step))
            continue
        for column in table.columns:
            if table.since < step == column.since:
                connection.execute(f"ALTER TABLE {table.name} ADD COLUMN {column.ddl}")
