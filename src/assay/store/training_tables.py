"""Training runs and their curves in the database.

A run is stored whole or not at all, and storing it again adds nothing. A run is also a trial:
the runs of a series are one experiment per subject. Outcomes such as `reward.auc` and
`reward.final` are the area under the end of each curve and its last value, so that series can
be compared like other experiments. A run without a series is a trial without an experiment.
Functions take an open connection; points are handled as columns, never one by one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from assay.core.canonical_json import canonical_json, content_hash, derive_id
from assay.core.text import natural_key, printable, unknown_name_error
from assay.errors import UsageError
from assay.store.ingest import NewExperiment, ensure_experiments, insert_rows, transaction
from assay.store.records import ExperimentRecord
from assay.store.schema import StoredKind, arrow_schema
from assay.store.store import Store
from assay.store.training_runs import Curve, TrainingRun, TrainingStatus
from assay.types import TrialState

_FACTS = (
    *("id", "series", "subject", "task", "seed", "status", "configuration", "provenance"),
    *("created_at", "finished_at", "source"),
)


class Written(StrEnum):
    """Result of storing a training run."""

    ADDED = "added"
    """It is new."""
    PRESENT = "present"
    """It existed already with the same content."""
    REPLACED = "replaced"
    """It replaced another run with the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTrainingRun:
    """Summary of one training run."""

    id: str
    series: str | None
    subject: str | None
    task: str | None
    seed: int | None
    status: TrainingStatus
    points: int
    last_step: int | None
    metrics: tuple[str, ...]


def write_training_runs(
    connection: duckdb.DuckDBPyConnection,
    runs: Sequence[TrainingRun],
    *,
    swap: bool = False,
) -> dict[str, Written]:
    """Store runs in one transaction; return the result by id.

    Args:
        connection: A connection that may write.
        runs: The runs, with different ids.
        swap: Whether a run replaces one with the same id but different content.

    Raises:
        UsageError: An id exists with different content, or is repeated.
    """
    done: dict[str, Written] = {}
    with transaction(connection):
        for run in runs:
            if run.id in done:
                raise UsageError(f"two training runs have the id {run.id!r}; make ids unique")
            done[run.id] = _write(connection, run, swap=swap)
    return done


def _write(connection: duckdb.DuckDBPyConnection, run: TrainingRun, *, swap: bool) -> Written:
    stored = load_training_runs(connection, [run.id])
    if stored and stored[0].same_content(run):
        return Written.PRESENT
    if stored and not swap:
        raise UsageError(
            f"training run {run.id!r} exists with different content "
            f"({_format_differences(stored[0], run)}); replace it with --replace, or give this "
            "one another id with --prefix"
        )
    for table, key in (("training_runs", "id"), ("metric_points", "run_id")):
        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", [run.id])
    run = replace(run, created_at=run.created_at or datetime.now(UTC).replace(tzinfo=None))
    facts = [_to_column(getattr(run, name)) for name in _FACTS]
    marks = ", ".join("?" * len(_FACTS))
    connection.execute(
        f"INSERT INTO training_runs ({', '.join(_FACTS)}) VALUES ({marks})", facts
    )
    points = _make_points(run)
    connection.register("points_to_add", points)
    try:
        connection.execute("INSERT INTO metric_points SELECT * FROM points_to_add")
    finally:
        connection.unregister("points_to_add")
    _store_trial(connection, run)
    return Written.REPLACED if stored else Written.ADDED


@contextmanager
def open_with_trials(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection after making every training run of a series a trial of its experiment.

    Runs stored by an earlier version of assay may not be trials yet.
    """
    with store.reading() as connection:
        waiting = connection.execute(
            "SELECT r.id FROM training_runs r JOIN trials t USING (id) "
            "WHERE r.series IS NOT NULL AND t.experiment_id IS NULL"
        ).fetchall()
        if not waiting:
            yield connection
            return
    with store.writing() as connection:
        with transaction(connection):
            for run in load_training_runs(connection, [run_id for (run_id,) in waiting]):
                _store_trial(connection, run)
        yield connection


def series_experiment(series: str, subject: str) -> ExperimentRecord:
    """Return the experiment of all runs of a subject in a series."""
    return ExperimentRecord(
        id=derive_id("training", series, subject),
        series=series,
        model=subject,
        fingerprint=content_hash(canonical_json(["training", series, subject])),
    )


def _store_trial(connection: duckdb.DuckDBPyConnection, run: TrainingRun) -> None:
    started = (run.created_at or datetime.now(UTC)).replace(tzinfo=UTC)
    experiment_id = None
    if run.series is not None:
        experiment = series_experiment(run.series, run.subject or run.series)
        experiment_id = experiment.id
        ensure_experiments(connection, [NewExperiment(experiment, started.timestamp())])
    state = _STATES[run.status]
    trial = {
        "experiment_id": experiment_id,
        "subject": run.subject or run.series,
        "task": run.task,
        "seed": run.seed,
        "replicate": 0,
    }
    ends = {
        "kind": StoredKind.TRAINING.value,
        "state": None if state is None else state.value,
        "reason": run.status.value,
        "started_at": run.created_at,
        "ended_at": run.finished_at,
    }
    outcomes = _compute_outcomes(run) if state is TrialState.RESULT else {}
    for table, key in (("trials", "id"), ("outcomes", "trial_id")):
        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", [run.id])
    columns = {"id": run.id, **trial, **ends}
    insert_rows(connection, "trials", {name: [value] for name, value in columns.items()})
    many: dict[str, list[Any]] = {
        name: [value] * len(outcomes) for name, value in ({"trial_id": run.id} | trial).items()
    }
    many |= {"metric": list(outcomes), "value": list(outcomes.values())}
    insert_rows(connection, "outcomes", many)


_STATES: Final[Mapping[TrainingStatus, TrialState | None]] = {
    TrainingStatus.FINISHED: TrialState.RESULT,
    # The cause of the crash is unknown, so it is not counted as a failure of the subject.
    TrainingStatus.CRASHED: TrialState.INFRASTRUCTURE,
    TrainingStatus.RUNNING: None,
}


def _compute_outcomes(run: TrainingRun) -> dict[str, float]:
    # Imported here, because it loads slowly and listing runs does not need it.
    from assay.stats.learning_curves import DEFAULT_PERCENT, auc, final_value

    outcomes = {}
    for metric, curve in run.curves.items():
        # A curve with one point has neither outcome.
        with suppress(UsageError):
            points = (curve.steps_P, curve.values_P)
            outcomes[f"{metric}.auc"] = auc(*points, percent=DEFAULT_PERCENT)
            outcomes[f"{metric}.final"] = final_value(*points)
    return outcomes


def _format_differences(stored: TrainingRun, run: TrainingRun) -> str:
    names = stored.differences(run)
    if "provenance" in names and len(names) > 1:
        # It contains a hash that differs if anything does.
        names.remove("provenance")
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    parts = [
        f"{name}: {getattr(stored, name) or 'none'} there, {getattr(run, name) or 'none'} here"
        if name in ("series", "subject", "task", "seed", "status")
        else name
        for name in names[:4]
    ]
    return printable(", ".join(parts)) + more


def load_training_runs(
    connection: duckdb.DuckDBPyConnection,
    run_ids: Sequence[str] | None = None,
    *,
    metrics: Sequence[str] | None = None,
) -> list[TrainingRun]:
    """Load runs with their curves, in the order of `run_ids` (default: all, by start).

    Unknown ids are ignored. `metrics` selects the curves (default: all).
    """
    where, values = "", []
    if run_ids is not None:
        where, values = "WHERE list_contains(?::VARCHAR[], id)", [list(run_ids)]
    rows = connection.execute(
        f"SELECT {', '.join(_FACTS)} FROM training_runs {where} ORDER BY created_at, id", values
    ).fetchall()
    found = {row[0]: dict(zip(_FACTS, row, strict=True)) for row in rows}
    order = found if run_ids is None else [run_id for run_id in run_ids if run_id in found]
    curves = _load_curves(connection, list(found), metrics)
    return [_make_run(found[run_id], curves.get(run_id, {})) for run_id in order]


def list_training_runs(connection: duckdb.DuckDBPyConnection) -> list[ListedTrainingRun]:
    """Return summaries of all training runs, in natural order of their ids."""
    rows = connection.execute(
        "SELECT r.id, r.series, r.subject, r.task, r.seed, r.status, count(p.step), "
        "max(p.step), list_sort(list(DISTINCT p.metric) FILTER (p.metric IS NOT NULL)) "
        "FROM training_runs r LEFT JOIN metric_points p ON p.run_id = r.id "
        "GROUP BY ALL"
    ).fetchall()
    rows.sort(key=lambda row: natural_key(row[0]))
    return [
        ListedTrainingRun(
            id=row[0],
            series=row[1],
            subject=row[2],
            task=row[3],
            seed=row[4],
            status=TrainingStatus(row[5]),
            points=row[6],
            last_step=row[7],
            metrics=tuple(row[8] or ()),
        )
        for row in rows
    ]


def runs_with_metric(connection: duckdb.DuckDBPyConnection, metric: str) -> tuple[str, ...]:
    """Return the ids of the training runs that have a metric, in natural order."""
    rows = connection.execute(
        "SELECT DISTINCT run_id FROM metric_points WHERE metric = ?", [metric]
    ).fetchall()
    return tuple(sorted((row[0] for row in rows), key=natural_key))


def runs_of_series(connection: duckdb.DuckDBPyConnection, series: str) -> tuple[str, ...]:
    """Return the ids of all training runs of a series, in natural order.

    Raises:
        UsageError: No run has that series.
    """
    rows = connection.execute(
        "SELECT id, series FROM training_runs WHERE series IS NOT NULL"
    ).fetchall()
    found = sorted((run for run, own in rows if own == series), key=natural_key)
    if not found:
        known = sorted({own for _, own in rows}, key=natural_key)
        empty = "no training run has a series, see 'assay curves import --series'"
        raise unknown_name_error("series", series, known, empty=empty, see="assay curves list")
    return tuple(found)


def _to_column(value: Any) -> Any:
    return canonical_json(value).decode() if isinstance(value, Mapping) else value


def _make_points(run: TrainingRun) -> pa.Table:
    metrics = [pa.repeat(pa.scalar(metric), len(curve)) for metric, curve in run.curves.items()]
    steps = [pa.array(curve.steps_P) for curve in run.curves.values()]
    values = [pa.array(curve.values_P) for curve in run.curves.values()]
    count = sum(map(len, run.curves.values()))
    columns = {
        "run_id": pa.repeat(pa.scalar(run.id), count),
        "step": pa.chunked_array(steps, pa.int64()),
        "metric": pa.chunked_array(metrics, pa.string()),
        "value": pa.chunked_array(values, pa.float64()),
    }
    return pa.table(columns, schema=arrow_schema("metric_points"))


def _load_curves(
    connection: duckdb.DuckDBPyConnection,
    run_ids: Sequence[str],
    metrics: Sequence[str] | None,
) -> dict[str, dict[str, Curve]]:
    where, values = "list_contains(?::VARCHAR[], run_id)", [list(run_ids)]
    if metrics is not None:
        where += " AND list_contains(?::VARCHAR[], metric)"
        values.append(list(metrics))
    columns = connection.execute(
        "SELECT run_id, metric, step, value FROM metric_points "
        f"WHERE {where} AND isfinite(value) ORDER BY run_id, metric, step",
        values,
    ).fetchnumpy()
    steps, numbers = columns["step"], columns["value"]
    found: dict[str, dict[str, Curve]] = {}
    for run_id, metric, start, end in _find_curves(columns["run_id"], columns["metric"]):
        found.setdefault(run_id, {})[metric] = Curve(
            np.asarray(steps[start:end], np.int64), np.asarray(numbers[start:end], np.float64)
        )
    return found


def _find_curves(runs: Any, metrics: Any) -> Iterable[tuple[str, str, int, int]]:
    """Yield run, metric, start and end of each curve in columns sorted by run and metric."""
    if not len(runs):
        return
    changes = (runs[1:] != runs[:-1]) | (metrics[1:] != metrics[:-1])
    starts = [0, *(int(at) + 1 for at in np.flatnonzero(changes)), len(runs)]
    for start, end in pairwise(starts):
        yield str(runs[start]), str(metrics[start]), start, end


def _make_run(facts: dict[str, Any], curves: Mapping[str, Curve]) -> TrainingRun:
    for name in ("configuration", "provenance"):
        facts[name] = json.loads(facts[name]) if facts[name] else {}
    return TrainingRun(**{**facts, "status": TrainingStatus(facts["status"]), "curves": curves})
