"""A run of MLflow as a training run."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay._util.names import choose, unknown
from assay.curves.described import described_run
from assay.curves.points import Points
from assay.exchange.mlflow_stores import (
    MlflowRun,
    load_mlflow_folder,
    load_mlflow_run,
    mlflow_names,
)
from assay.experiments.training import TrainingRun

__all__ = ["read_mlflow_database", "read_mlflow_folder"]

_DEFAULT_EXPERIMENT = "Default"
_COMMIT = "mlflow.source.git.commit"


def read_mlflow_database(path: Path, name: str) -> TrainingRun:
    """The run of a database that has an id or a name, or the start of one.

    Raises:
        UsageError: It is no store of MLflow, or has no such run.
    """
    names = mlflow_names(path)
    meant = choose("MLflow run", name, names.items())
    if meant is None:
        raise unknown("MLflow run", name, [*names.values()], empty="the file has none")
    return _run(load_mlflow_run(path, meant.id), f"{path}:{meant.id}")


def read_mlflow_folder(folder: Path) -> TrainingRun:
    """The run of a folder in `mlruns`."""
    return _run(load_mlflow_folder(folder), folder)


def _run(found: MlflowRun, source: Path | str) -> TrainingRun:
    points = Points()
    for metric, step, value in found.points:
        points.add(metric, step, value)
    facts = {
        "id": found.id,
        "series": None if found.experiment == _DEFAULT_EXPERIMENT else found.experiment,
        "status": found.status,
        "commit": found.tags.get(_COMMIT),
        "configuration": {key: _setting(text) for key, text in found.parameters.items()},
        "provenance": {"name": found.name},
        "created_at": _time(found.started_ms),
        "finished_at": _time(found.ended_ms),
    }
    return described_run(facts, points, source=source, names=[found.id, found.name])


def _setting(text: str) -> Any:
    """A parameter, which MLflow keeps as text: a number where it is one."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if type(value) in (int, float) else text


def _time(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)
