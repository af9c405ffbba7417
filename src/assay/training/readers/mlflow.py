"""MLflow runs as training runs, from its SQLite file or a run's folder in `mlruns`.

Both are read without the MLflow package, and never written. Deleted runs in the SQLite file are
not listed.
"""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from assay.core.text import resolve_name, unknown_name_error
from assay.errors import UsageError
from assay.store.training_runs import TrainingRun
from assay.training.readers.tables import Points, make_described_run

_SQLITE_HEADER = b"SQLite format 3\0"
_INFINITE = 1.7976931348623157e308
"""Value that MLflow stores for infinity."""
_STATUSES = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}
"""Meaning of status numbers in `meta.yaml`."""


class MlflowRun(NamedTuple):
    """A run as MLflow stores it."""

    id: str
    name: str
    experiment: str
    status: str
    started_ms: int | None
    ended_ms: int | None
    parameters: dict[str, str]
    tags: dict[str, str]
    points: list[tuple[str, int, float]]
    """Metric, step and value, in the order they were logged."""


def is_sqlite_file(path: Path) -> bool:
    """Return whether a file is an SQLite database, of MLflow or another program."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER


def list_mlflow_runs(path: Path) -> dict[str, str]:
    """Return the names of all runs in a database by id, the oldest first.

    Raises:
        UsageError: It is not an MLflow database.
    """
    with _open_readonly(path) as connection:
        rows = connection.execute(
            "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' "
            "ORDER BY start_time, run_uuid"
        ).fetchall()
    return {run_id: name or run_id for run_id, name in rows}


def load_mlflow_run(path: Path, run_id: str) -> MlflowRun:
    """Load a run from a database by its id.

    Raises:
        UsageError: It is not an MLflow database, or has no such run.
    """
    with _open_readonly(path) as connection:
        row = connection.execute(
            "SELECT r.name, e.name, r.status, r.start_time, r.end_time "
            "FROM runs r LEFT JOIN experiments e USING (experiment_id) WHERE r.run_uuid = ?",
            [run_id],
        ).fetchone()
        if row is None:
            raise UsageError(f"it has no run {run_id!r}")
        name, experiment, status, started, ended = row
        parameters, tags = (
            dict(
                connection.execute(
                    f"SELECT key, value FROM {table} WHERE run_uuid = ?", [run_id]
                )
            )
            for table in ("params", "tags")
        )
        # Points with the same timestamp are in the order they were written.
        points = connection.execute(
            "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ? "
            "ORDER BY timestamp, rowid",
            [run_id],
        ).fetchall()
    return MlflowRun(
        id=run_id,
        name=name or "",
        experiment=experiment or "",
        status=(status or "running").lower(),
        started_ms=started,
        ended_ms=ended,
        parameters=parameters,
        tags=tags,
        points=[
            (key, step, math.nan if is_nan else _restore_infinity(value))
            for key, step, value, is_nan in points
        ],
    )


def is_mlflow_folder(folder: Path) -> bool:
    """Return whether a folder is a run in `mlruns`."""
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def load_mlflow_folder(folder: Path) -> MlflowRun:
    """Load the run in a folder of `mlruns`.

    Raises:
        UsageError: A line of a metric is invalid.
    """
    meta = _parse_meta(folder / "meta.yaml")
    experiment = folder.resolve().parent / "meta.yaml"
    status = meta.get("status", "")
    return MlflowRun(
        id=meta.get("run_id") or folder.resolve().name,
        name=meta.get("run_name", ""),
        experiment=_parse_meta(experiment).get("name", "") if experiment.is_file() else "",
        status=_STATUSES.get(int(status), status) if status.isdecimal() else status.lower(),
        started_ms=_parse_milliseconds(meta.get("start_time")),
        ended_ms=_parse_milliseconds(meta.get("end_time")),
        parameters=dict(_read_files(folder / "params")),
        tags=dict(_read_files(folder / "tags")),
        points=[
            (key, *_parse_point(key, line_number, line))
            for key, text in _read_files(folder / "metrics")
            for line_number, line in enumerate(text.splitlines(), start=1)
        ],
    )


@contextmanager
def _open_readonly(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
    try:
        yield connection
    except sqlite3.Error as error:
        raise UsageError(
            f"it is not a readable MLflow database: {error}; name the file in MLflow's "
            "sqlite:/// address, written by MLflow 1.0 or newer"
        ) from error
    finally:
        connection.close()


def _restore_infinity(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= _INFINITE else value


def _parse_meta(path: Path) -> dict[str, str]:
    """Parse the flat YAML that MLflow writes, and remove quotes."""
    pairs = (line.partition(": ") for line in path.read_text("utf-8").splitlines())
    return {key: value.strip().strip("'\"") for key, colon, value in pairs if colon}


def _parse_milliseconds(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _read_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the relative path and the text of each file below a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_text("utf-8")


def _parse_point(key: str, line_number: int, line: str) -> tuple[int, float]:
    parts = line.split(" ")
    if len(parts) not in (2, 3):
        raise UsageError(
            f"line {line_number} of metric {key!r} is {line!r}; it must be a time, a value and "
            "a step"
        )
    return (int(parts[2]) if len(parts) == 3 else 0), float(parts[1])


_DEFAULT_EXPERIMENT = "Default"
_COMMIT = "mlflow.source.git.commit"


def read_mlflow_database(path: Path, name: str) -> TrainingRun:
    """Read a run from a database by its id or name, or the start of either.

    Raises:
        UsageError: It is not an MLflow database, or has no such run.
    """
    names = list_mlflow_runs(path)
    match = resolve_name("MLflow run", name, names.items())
    if match is None:
        raise unknown_name_error(
            "MLflow run", name, [*names.values()], empty="the file has none"
        )
    return _make_run(load_mlflow_run(path, match.id), f"{path}:{match.id}")


def read_mlflow_folder(folder: Path) -> TrainingRun:
    """Read the run in a folder of `mlruns`."""
    return _make_run(load_mlflow_folder(folder), folder)


def _make_run(mlflow_run: MlflowRun, source: Path | str) -> TrainingRun:
    points = Points()
    for metric, step, value in mlflow_run.points:
        points.add(metric, step, value)
    facts = {
        "id": mlflow_run.id,
        "series": None
        if mlflow_run.experiment == _DEFAULT_EXPERIMENT
        else mlflow_run.experiment,
        "status": mlflow_run.status,
        "commit": mlflow_run.tags.get(_COMMIT),
        "configuration": {
            key: _parse_parameter(text) for key, text in mlflow_run.parameters.items()
        },
        "provenance": {"name": mlflow_run.name},
        "created_at": _parse_timestamp(mlflow_run.started_ms),
        "finished_at": _parse_timestamp(mlflow_run.ended_ms),
    }
    return make_described_run(
        facts, points, source=source, names=[mlflow_run.id, mlflow_run.name]
    )


def _parse_parameter(text: str) -> Any:
    """Convert a parameter, which MLflow stores as text, to a number if it is one."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if type(value) in (int, float) else text


def _parse_timestamp(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)
