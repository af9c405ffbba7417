"""Runs and experiments of another store, taken into this one with the names they had."""

import re

from duckdb import DuckDBPyConnection

from assay._util.canonical import canonical_json
from assay.errors import UsageError
from assay.exchange.formats import StoredExperiment, StoredRun
from assay.traces.ingest import free_name

__all__ = ["adopt_experiment", "adopt_run"]

_COUNTER = re.compile(r" #\d+$")


def adopt_run(connection: DuckDBPyConnection, run: StoredRun) -> None:
    """Add a run, unless one with its id is there."""
    connection.execute(
        "INSERT INTO runs (id, command, configuration, provenance, status, created_at,"
        " finished_at) VALUES (?, ?, ?, ?, ?, make_timestamp(?), make_timestamp(?))"
        " ON CONFLICT DO NOTHING",
        [
            run.id,
            run.command,
            canonical_json(run.configuration).decode(),
            canonical_json(run.provenance).decode(),
            run.status,
            _microseconds(run.created_at),
            _microseconds(run.finished_at),
        ],
    )


def adopt_experiment(
    connection: DuckDBPyConnection, run_id: str, experiment: StoredExperiment
) -> str:
    """Add an experiment, unless one with its id is there; returns the name it has here.

    A name that is taken gets the next free number.

    Raises:
        UsageError: An experiment with its id is there, in another run.
    """
    known = connection.execute(
        "SELECT name, run_id FROM experiments WHERE id = ?", [experiment.id]
    ).fetchone()
    if known is not None:
        if known[1] != run_id:
            raise UsageError(
                f"experiment {experiment.id!r} belongs to run {known[1]!r} in this store"
            )
        return str(known[0])
    name = free_name(connection, _COUNTER.sub("", experiment.name), experiment.name)
    connection.execute(
        "INSERT INTO experiments (id, name, series, version, run_id, position, model,"
        " fingerprint, description, created_at, updated_at, tags, note)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, make_timestamp(?), make_timestamp(?), ?, ?)",
        [
            experiment.id,
            name,
            experiment.series,
            experiment.version,
            run_id,
            experiment.position,
            experiment.model,
            experiment.fingerprint,
            experiment.description,
            _microseconds(experiment.created_at),
            _microseconds(experiment.updated_at),
            canonical_json(experiment.tags).decode(),
            experiment.note,
        ],
    )
    return name


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)
