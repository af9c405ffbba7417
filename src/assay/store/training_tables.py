"""Training runs and their curves in a store.

Each function takes an open connection. A run is there as a whole or not at all, and writing
it again adds nothing. Points travel in columns, never row by row. A run is a trial as well:
the runs of a series are one experiment for each subject, and the area under the end of each
curve and its last value are the outcomes, `reward.auc` and `reward.final`, so that series are
compared like anything else. A run without a series is a trial of no experiment.
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

from assay.core.canonical_json import canonical_json, content_hash, derived_id
from assay.core.text import natural_key, printable, unknown
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
    """What became of a run that was to be written."""

    ADDED = "added"
    """It is there, and was not before."""
    PRESENT = "present"
    """It was there with the same content."""
    REPLACED = "replaced"
    """It took the place of another with the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTrainingRun:
    """One training run, in brief."""

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
    """Store runs by their ids, all of them or none.

    With `swap` a run replaces another that has its id and another content.

    Raises:
        UsageError: An id is there with another content, or comes twice.
    """
    done: dict[str, Written] = {}
    with transaction(connection):
        for run in runs:
            if run.id in done:
                raise UsageError(f"training run {run.id!r} comes twice; give each its own id")
            done[run.id] = _write(connection, run, swap=swap)
    return done


def _write(connection: duckdb.DuckDBPyConnection, run: TrainingRun, *, swap: bool) -> Written:
    stored = load_training_runs(connection, [run.id])
    if stored and stored[0].same_content(run):
        return Written.PRESENT
    if stored and not swap:
        raise UsageError(
            f"training run {run.id!r} is in the store with another content "
            f"({_told(stored[0], run)}); --replace puts this one in its place, --prefix gives "
            "it another id"
        )
    for table, key in (("training_runs", "id"), ("metric_points", "run_id")):
        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", [run.id])
    run = replace(run, created_at=run.created_at or datetime.now(UTC).replace(tzinfo=None))
    facts = [_plain(getattr(run, name)) for name in _FACTS]
    marks = ", ".join("?" * len(_FACTS))
    connection.execute(
        f"INSERT INTO training_runs ({', '.join(_FACTS)}) VALUES ({marks})", facts
    )
    points = _points(run)
    connection.register("points_to_add", points)
    try:
        connection.execute("INSERT INTO metric_points SELECT * FROM points_to_add")
    finally:
        connection.unregister("points_to_add")
    _enroll(connection, run)
    return Written.REPLACED if stored else Written.ADDED


@contextmanager
def enrolled(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a store in which all training runs of a series are trials of it.

    Those that an earlier assay stored are not, and become so before the block.
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
                _enroll(connection, run)
        yield connection


def series_experiment(series: str, subject: str) -> ExperimentRecord:
    """The experiment that all runs of a subject in a series are trials of."""
    return ExperimentRecord(
        id=derived_id("training", series, subject),
        series=series,
        model=subject,
        fingerprint=content_hash(canonical_json(["training", series, subject])),
    )


def _enroll(connection: duckdb.DuckDBPyConnection, run: TrainingRun) -> None:
    """Write down a stored run as a trial, with its outcomes."""
    began = (run.created_at or datetime.now(UTC)).replace(tzinfo=UTC)
    experiment_id = None
    if run.series is not None:
        experiment = series_experiment(run.series, run.subject or run.series)
        experiment_id = experiment.id
        ensure_experiments(connection, [NewExperiment(experiment, began.timestamp())])
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
    outcomes = _outcomes(run) if state is TrialState.RESULT else {}
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
    # Why it ended before its time is not known, so that nobody is to blame.
    TrainingStatus.CRASHED: TrialState.INFRASTRUCTURE,
    TrainingStatus.RUNNING: None,
}


def _outcomes(run: TrainingRun) -> dict[str, float]:
    # To list runs takes no statistics, and these take a while to load.
    from assay.stats.learning_curves import DEFAULT_PERCENT, auc, final_value

    outcomes = {}
    for metric, curve in run.curves.items():
        # A curve of one point has neither.
        with suppress(UsageError):
            points = (curve.steps_P, curve.values_P)
            outcomes[f"{metric}.auc"] = auc(*points, percent=DEFAULT_PERCENT)
            outcomes[f"{metric}.final"] = final_value(*points)
    return outcomes


def _told(stored: TrainingRun, run: TrainingRun) -> str:
    """In what two runs of an id differ, for a message."""
    names = stored.differences(run)
    if "provenance" in names and len(names) > 1:
        # A hash differs where anything does.
        names.remove("provenance")
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    said = [
        f"{name}: {getattr(stored, name) or 'none'} there, {getattr(run, name) or 'none'} here"
        if name in ("series", "subject", "task", "seed", "status")
        else name
        for name in names[:4]
    ]
    return printable(", ".join(said)) + more


def load_training_runs(
    connection: duckdb.DuckDBPyConnection,
    run_ids: Sequence[str] | None = None,
    *,
    metrics: Sequence[str] | None = None,
) -> list[TrainingRun]:
    """Runs with their curves, in the order of `run_ids`, else of their start.

    Ids that are not there are left out. `metrics` says which curves to load; all by default.
    """
    where, values = "", []
    if run_ids is not None:
        where, values = "WHERE list_contains(?::VARCHAR[], id)", [list(run_ids)]
    rows = connection.execute(
        f"SELECT {', '.join(_FACTS)} FROM training_runs {where} ORDER BY created_at, id", values
    ).fetchall()
    found = {row[0]: dict(zip(_FACTS, row, strict=True)) for row in rows}
    order = found if run_ids is None else [one for one in run_ids if one in found]
    curves = _curves(connection, list(found), metrics)
    return [_run(found[run_id], curves.get(run_id, {})) for run_id in order]


def list_training_runs(connection: duckdb.DuckDBPyConnection) -> list[ListedTrainingRun]:
    """All training runs of a store in brief, their names as people count."""
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
    """The ids of the training runs that have a value of a metric, as people count."""
    rows = connection.execute(
        "SELECT DISTINCT run_id FROM metric_points WHERE metric = ?", [metric]
    ).fetchall()
    return tuple(sorted((row[0] for row in rows), key=natural_key))


def runs_of_series(connection: duckdb.DuckDBPyConnection, series: str) -> tuple[str, ...]:
    """The ids of all training runs of a series, as people count.

    Raises:
        UsageError: No run has that series.
    """
    rows = connection.execute(
        "SELECT id, series FROM training_runs WHERE series IS NOT NULL"
    ).fetchall()
    found = sorted((run for run, own in rows if own == series), key=natural_key)
    if not found:
        known = sorted({own for _, own in rows}, key=natural_key)
        empty = "no training run has one, see 'assay curves import --series'"
        raise unknown("series", series, known, empty=empty, see="assay curves list")
    return tuple(found)


def _plain(value: Any) -> Any:
    return canonical_json(value).decode() if isinstance(value, Mapping) else value


def _points(run: TrainingRun) -> pa.Table:
    """The points of all curves of a run, in columns."""
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


def _curves(
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
    for run_id, metric, start, end in _stretches(columns["run_id"], columns["metric"]):
        found.setdefault(run_id, {})[metric] = Curve(
            np.asarray(steps[start:end], np.int64), np.asarray(numbers[start:end], np.float64)
        )
    return found


def _stretches(runs: Any, metrics: Any) -> Iterable[tuple[str, str, int, int]]:
    """Where each curve lies in columns that are sorted by run and metric."""
    if not len(runs):
        return
    changes = (runs[1:] != runs[:-1]) | (metrics[1:] != metrics[:-1])
    starts = [0, *(int(at) + 1 for at in np.flatnonzero(changes)), len(runs)]
    for start, end in pairwise(starts):
        yield str(runs[start]), str(metrics[start]), start, end


def _run(facts: dict[str, Any], curves: Mapping[str, Curve]) -> TrainingRun:
    for name in ("configuration", "provenance"):
        facts[name] = json.loads(facts[name]) if facts[name] else {}
    return TrainingRun(**{**facts, "status": TrainingStatus(facts["status"]), "curves": curves})
