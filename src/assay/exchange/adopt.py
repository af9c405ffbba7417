"""Runs and experiments of another store, taken into this one with the names they had."""

import re

from duckdb import DuckDBPyConnection

from assay.errors import UsageError
from assay.exchange.formats import StoredExperiment, StoredRun
from assay.traces.columns import columns_of
from assay.traces.ingest import free_name, insert_rows

__all__ = ["adopt_experiment", "adopt_run"]

_COUNTER = re.compile(r" #\d+$")


def adopt_run(connection: DuckDBPyConnection, run: StoredRun) -> None:
    """Add a run, unless one with its id is there."""
    if not connection.execute("FROM runs WHERE id = ?", [run.id]).fetchone():
        insert_rows(connection, "runs", columns_of("runs", StoredRun, [run]))


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
    columns = columns_of("experiments", StoredExperiment, [experiment])
    insert_rows(connection, "experiments", {**columns, "name": [name], "run_id": [run_id]})
    return name
