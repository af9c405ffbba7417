"""Insertion of runs and sessions into the database. A session is stored whole or not at all.

A session that exists already is replaced, so ingesting twice adds nothing. A message body is
stored once for all sessions: finding new ones takes a pass over all hashes, which the sessions
of a batch share. All functions take an open connection that may write.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from assay.store.records import ExperimentRecord, LimitRecord, RunRecord
from assay.store.rows import SessionRows, build_columns, to_microseconds, to_table
from assay.store.schema import SESSION_TABLES, RunStatus, table

_VERSION = re.compile(r"v(\d+)\.(\d+)")


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Run the block in a transaction; roll back if it raises."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        # A failed commit has ended the transaction already; its own error is raised.
        with suppress(duckdb.Error):
            connection.rollback()
        raise


class Ingestion:
    """Stores a batch of sessions through an open connection."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, batch: Sequence[SessionRows]
    ) -> None:
        """Find out which parts of the batch are stored already.

        Once is enough, because no other process can write while the connection is open.
        """
        self._connection = connection
        bodies = list(dict.fromkeys(name for rows in batch for name in rows.bodies))
        self._new_bodies = _find_missing(connection, "message_bodies", "hash", bodies)
        ids = [rows.session_id for rows in batch]
        self._stored = set(ids) - _find_missing(connection, "session_traces", "session_id", ids)

    def store(self, *group: SessionRows) -> None:
        """Store sessions of the batch in one transaction."""
        last = {rows.session_id: rows for rows in group}
        bodies = {
            name: body
            for rows in last.values()
            for name, body in rows.bodies.items()
            if name in self._new_bodies
        }
        with transaction(self._connection):
            if stored := [name for name in last if name in self._stored]:
                delete_sessions(self._connection, stored)
            for name in group[0].tables:
                parts = [rows.tables[name] for rows in last.values()]
                _insert(self._connection, name, pa.concat_tables(parts))
            columns = {"hash": list(bodies), "body": list(bodies.values())}
            insert_rows(self._connection, "message_bodies", columns)
        self._new_bodies.difference_update(bodies)
        self._stored.update(last)


def _find_missing(
    connection: duckdb.DuckDBPyConnection, name: str, column: str, values: list[str]
) -> set[str]:
    kind = next(field.type for field in table(name).columns if field.name == column)
    connection.register("batch", pa.table({"value": pa.array(values, pa.string())}))
    try:
        found = connection.execute(
            f"SELECT value FROM batch ANTI JOIN {name} t ON t.{column} = batch.value::{kind}"
        )
        return {row[0] for row in found.fetchall()}
    finally:
        connection.unregister("batch")


def insert_rows(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, Sequence[Any]]
) -> None:
    """Add rows to a table, given as columns; missing columns are NULL."""
    _insert(connection, name, to_table(name, columns))


def _insert(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    if not rows.num_rows:
        return
    connection.register("incoming", rows)
    try:
        connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM incoming")
    finally:
        connection.unregister("incoming")


def delete_sessions(connection: duckdb.DuckDBPyConnection, session_ids: list[str]) -> None:
    """Delete all rows of sessions except message bodies, in the caller's transaction."""
    chosen = "IN (SELECT unnest(?::VARCHAR[]))"
    for part in SESSION_TABLES:
        connection.execute(f"DELETE FROM {part.name} WHERE session_id {chosen}", [session_ids])
    connection.execute(f"DELETE FROM outcomes WHERE trial_id {chosen}", [session_ids])
    connection.execute(f"DELETE FROM trials WHERE id {chosen}", [session_ids])
    connection.execute(f"DELETE FROM session_traces WHERE session_id {chosen}", [session_ids])


def ensure_run(connection: duckdb.DuckDBPyConnection, *records: RunRecord) -> None:
    """Store runs, and their experiments with names, unless they are stored already."""
    with transaction(connection):
        missing = _find_missing(connection, "runs", "id", [record.id for record in records])
        new = [record for record in records if record.id in missing]
        status = [RunStatus.RUNNING.value] * len(new)
        columns = build_columns("runs", RunRecord, new)
        insert_rows(connection, "runs", {**columns, "status": status})
        ensure_experiments(
            connection,
            [
                NewExperiment(experiment, record.created_at, record.id, position)
                for record in records
                for position, experiment in enumerate(record.experiments)
            ],
        )


class NewExperiment(NamedTuple):
    """An experiment that may be new, and further columns of its row."""

    record: ExperimentRecord
    created_at: float
    run_id: str | None = None
    """None if the experiment was not run by an assay command."""
    position: int = 0


def ensure_experiments(
    connection: duckdb.DuckDBPyConnection, experiments: Sequence[NewExperiment]
) -> None:
    """Store experiments, each with a name and a version, unless they are stored already."""
    ids = [experiment.record.id for experiment in experiments]
    missing = _find_missing(connection, "experiments", "id", ids)
    new = [experiment for experiment in experiments if experiment.record.id in missing]
    series: dict[str, list[_Earlier]] = {}
    taken: dict[str, set[str]] = {}
    versions: list[str] = []
    names: list[str] = []
    for experiment in new:
        name = experiment.record.series
        if name not in series:
            series[name] = _read_series(connection, name)
        version = _choose_version(series[name], experiment)
        series[name].append(
            _Earlier(
                to_microseconds(experiment.created_at),
                experiment.run_id or "",
                experiment.position,
                version,
                experiment.record.fingerprint,
            )
        )
        base = f"{name} {version}"
        if base not in taken:
            taken[base] = _find_taken_names(connection, base)
        versions.append(version)
        names.append(_choose_free_name(taken[base], base, base))
        taken[base].add(names[-1])
    times = [to_microseconds(experiment.created_at) for experiment in new]
    columns = {
        **build_columns("experiments", ExperimentRecord, [item.record for item in new]),
        "name": names,
        "version": versions,
        "run_id": [experiment.run_id for experiment in new],
        "position": [experiment.position for experiment in new],
        "created_at": times,
        "updated_at": times,
    }
    insert_rows(connection, "experiments", columns)


class _Earlier(NamedTuple):
    """An earlier experiment of a series; sorting by the fields puts the latest last."""

    created_at: int
    run_id: str
    position: int
    version: str
    fingerprint: str


def _read_series(connection: duckdb.DuckDBPyConnection, series: str) -> list[_Earlier]:
    rows = connection.execute(
        "SELECT epoch_us(created_at), coalesce(run_id, ''), coalesce(position, 0), "
        "coalesce(version, ''), coalesce(fingerprint, '') FROM experiments WHERE series = ?",
        [series],
    ).fetchall()
    return [_Earlier(*row) for row in rows]


def _choose_version(series: Iterable[_Earlier], experiment: NewExperiment) -> str:
    """Return the version of this experiment in its series.

    It keeps the version of an experiment with the same fingerprint in its own run or in the
    latest other one; a new fingerprint gets the next minor version.
    """
    latest = sorted(series, reverse=True)
    run_id = experiment.run_id or ""
    before = next((known.run_id for known in latest if known.run_id != run_id), None)
    for known in latest:
        same = known.fingerprint == experiment.record.fingerprint
        if same and known.run_id in (run_id, before):
            return known.version
    if latest and experiment.record.tags.get("baseline") is True:
        return latest[0].version  # Baselines have no separate versions.
    found = [_VERSION.fullmatch(known.version) for known in latest]
    numbers = [(int(match[1]), int(match[2])) for match in found if match]
    if not numbers:
        return "v1.0"
    major, minor = max(numbers)
    return f"v{major}.{minor + 1}"


def free_name(
    connection: duckdb.DuckDBPyConnection, base: str, wanted: str | None = None
) -> str:
    """Return the first free name among `wanted` (default `base`), `base #2`, `base #3` etc."""
    return _choose_free_name(_find_taken_names(connection, base), base, wanted or base)


def _find_taken_names(connection: duckdb.DuckDBPyConnection, base: str) -> set[str]:
    rows = connection.execute(
        "SELECT name FROM experiments WHERE starts_with(name, ?)", [base]
    ).fetchall()
    return {name for (name,) in rows}


def _choose_free_name(taken: Collection[str], base: str, wanted: str) -> str:
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{base} #{count}"
    return name


def store_limits(
    connection: duckdb.DuckDBPyConnection, run_id: str, records: Iterable[LimitRecord]
) -> None:
    """Store the changes of provider limits in a run."""
    rows = list(records)
    columns = build_columns("provider_limits", LimitRecord, rows)
    insert_rows(connection, "provider_limits", {**columns, "run_id": [run_id] * len(rows)})


def finish_run(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    status: RunStatus,
    *,
    at: float | None = None,
) -> None:
    """Set the final status of a run; `at` is seconds since 1970."""
    connection.execute(
        "UPDATE runs SET status = ?, finished_at = make_timestamp(?) WHERE id = ?",
        [status.value, None if at is None else to_microseconds(at), run_id],
    )
