"""Migration of a database file to the newest schema version.

Versions are numbered and only ever added. The tables and columns that a version adds are read
from the schema; a version has a function here only if rows must change too. A migration is one
transaction: if it fails, the file is unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import duckdb

from assay.core.text import shown
from assay.errors import StoreError
from assay.store.schema import ASSAY_SOURCE, CATALOG, TABLES, VERSION, StoredKind, Table
from assay.store.views import VIEWS


def _fill_trials(connection: duckdb.DuckDBPyConnection) -> None:
    """Add a row to `trials` for every session and every training run."""
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
    # The experiments and outcomes of training runs cannot be computed here.
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
"""Changes of rows by version, made after its tables and columns were added."""


def stored_version(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the schema version of a file; 0 if it has no tables of assay.

    Raises:
        StoreError: The file is newer than this program, or was made by another program.
    """
    ours = {table.name for table in TABLES} | {"schema_version"}
    names = _list_names(connection, "table")
    if views := sorted(_list_names(connection, "view") & ours):
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
    # Fetches all rows, because unread rows would block the connection.
    rows = connection.execute("SELECT max(version) FROM schema_version").fetchall()
    version = rows[0][0] or 0
    if not isinstance(version, int):
        raise StoreError(
            f"the database has an invalid schema version, {shown(version)}; "
            "choose another --database"
        )
    if version > VERSION:
        raise StoreError(
            f"the database has schema version {version}, but this program supports versions up "
            f"to {VERSION}; install a newer assay"
        )
    return version


def _list_names(connection: duckdb.DuckDBPyConnection, kind: str) -> set[str]:
    """Return the names of tables or views in the file, without the views of the connection."""
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
    """Migrate a file from `version` to `target`, one version after another."""
    connection.execute("BEGIN")
    try:
        for step in range(version + 1, target + 1):
            _add_tables(connection, tables, step)
            if step in _CHANGES:
                _CHANGES[step](connection)
            connection.execute(
                "INSERT INTO schema_version VALUES (?, now() AT TIME ZONE 'UTC')", [step]
            )
        for view in VIEWS:
            connection.execute(view.ddl())
        connection.execute("COMMIT")
    except BaseException:
        # A failed COMMIT has ended the transaction already; its own error is raised.
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise


def _add_tables(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[Table], step: int
) -> None:
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
