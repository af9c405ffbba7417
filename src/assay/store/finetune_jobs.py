"""Database tables of fine-tuning: jobs, their events, uploaded files, and training worlds.

A job is identified by the address of its service and its id there. Its row is created with the
job and updated with each status from the service; events are only added.

The worlds of each training data set are stored as well, so that a comparison can warn if a
model is tested on them. A row is a world (a task with a seed) of one data set, used for
training or held out.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final

import duckdb

from assay.core.canonical_json import canonical_json
from assay.core.text import resolve_name, unknown_name_error
from assay.errors import UsageError
from assay.store.ingest import transaction

PLAYED: Final = "played"
"""Key of a lineage with the settings of the model calls common to all source episodes."""
_ENDED = ("succeeded", "failed", "cancelled")
_JSON = ("hyperparameters", "lineage", "provenance", "history")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneJob:
    """A fine-tuning job, as stored."""

    id: str
    address: str
    """Address of the service."""
    backend: str
    model: str
    """The model that is fine-tuned."""
    suffix: str | None = None
    status: str = "unknown"
    result_model: str | None = None
    """The new model; None until it succeeded."""
    error: str | None = None
    data: str | None = None
    data_sha256: str | None = None
    rows: int | None = None
    subset_of: int | None = None
    """Rows of the whole file; None if all of them are used."""
    tokens: int | None = None
    """Estimated tokens per epoch."""
    validation: str | None = None
    validation_sha256: str | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)
    """Facts about all rows from the data manifest; empty without a manifest."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    history: tuple[tuple[str, str], ...] = ()
    """Each status, and the time in UTC when it was first observed."""
    trained_tokens: int | None = None
    created_at: datetime = datetime.min
    """Time of the request in UTC, by the service's clock."""
    finished_at: datetime | None = None
    """Time of its end in UTC, by the service's clock."""

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.status in _ENDED

    @property
    def succeeded(self) -> bool:
        """Whether it produced a model."""
        return self.status == "succeeded" and self.result_model is not None

    @property
    def seconds(self) -> float | None:
        """Duration from the request to the end; None while the job is running."""
        if self.finished_at is None:
            return None
        return max(0.0, (self.finished_at - self.created_at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneEvent:
    """An event of a job, as reported by the service."""

    id: str
    created_at: datetime | None
    level: str
    message: str
    step: int | None = None
    total_steps: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


_COLUMNS = tuple(column.name for column in fields(FinetuneJob))
_EVENT_COLUMNS = tuple(column.name for column in fields(FinetuneEvent))


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def add_job(connection: duckdb.DuckDBPyConnection, job: FinetuneJob) -> FinetuneJob:
    """Store a new job, replacing one with the same id, and return it as stored."""
    now = _now()
    created = now if job.created_at == datetime.min else job.created_at
    stored = replace(job, created_at=created, history=((job.status, now.isoformat()),))
    with transaction(connection):
        _write(connection, stored)
    return stored


def update_job(
    connection: duckdb.DuckDBPyConnection, job: FinetuneJob, events: Iterable[FinetuneEvent]
) -> FinetuneJob:
    """Store the status of a job and its new events, and return the job as stored."""
    with transaction(connection):
        last = job.history[-1][0] if job.history else None
        if job.status != last:
            entry = (job.status, _now().isoformat())
            job = replace(job, history=(*job.history, entry))
        if job.ended and job.finished_at is None:
            job = replace(job, finished_at=_now())
        _write(connection, job)
        add_events(connection, job, events)
    return job


def _write(connection: duckdb.DuckDBPyConnection, job: FinetuneJob) -> None:
    connection.execute(
        "DELETE FROM finetune_jobs WHERE address = ? AND id = ?", [job.address, job.id]
    )
    values = [
        canonical_json(value).decode() if name in _JSON else value
        for name, value in ((name, getattr(job, name)) for name in _COLUMNS)
    ]
    marks = ", ".join("?" * len(_COLUMNS))
    names = ", ".join(f'"{name}"' for name in _COLUMNS)
    connection.execute(f"INSERT INTO finetune_jobs ({names}) VALUES ({marks})", values)


def add_events(
    connection: duckdb.DuckDBPyConnection, job: FinetuneJob, events: Iterable[FinetuneEvent]
) -> None:
    """Add the events of a job that are not stored yet."""
    new = {event.id: event for event in events}
    if not new:
        return
    ids = connection.execute(
        "SELECT id FROM finetune_events WHERE address = ? AND job_id = ?", [job.address, job.id]
    ).fetchall()
    known = {name for (name,) in ids}
    rows = [
        [
            *(job.address, job.id, event.id, len(known) + place, event.created_at),
            *(event.level, event.message, event.step, event.total_steps),
            canonical_json(dict(event.metrics)).decode(),
        ]
        for place, event in enumerate(event for name, event in new.items() if name not in known)
    ]
    if rows:
        connection.executemany(
            "INSERT INTO finetune_events (address, job_id, id, position, created_at, level,"
            " message, step, total_steps, metrics) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )


def list_jobs(connection: duckdb.DuckDBPyConnection) -> list[FinetuneJob]:
    """Return all jobs, the newest first."""
    names = ", ".join(f'"{name}"' for name in _COLUMNS)
    rows = connection.execute(f"SELECT {names} FROM finetune_jobs ORDER BY id").fetchall()
    jobs = [_make_job(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
    # Sorted by our own clock, because the clocks of services may differ.
    return sorted(jobs, key=lambda job: job.history[0][1] if job.history else "", reverse=True)


def _make_job(values: dict[str, Any]) -> FinetuneJob:
    for name in _JSON:
        values[name] = json.loads(values[name]) if values[name] else {}
    values["history"] = tuple((status, at) for status, at in values["history"] or ())
    values["command"] = values["command"] or ""
    values["status"] = values["status"] or "unknown"
    return FinetuneJob(**values)


def find_job(connection: duckdb.DuckDBPyConnection, name: str) -> FinetuneJob:
    """Find a job by its id, the start of its id, or the model it made; `latest` is the newest.

    Raises:
        UsageError: No job matches, or several do.
    """
    jobs = list_jobs(connection)
    if name == "latest" and jobs:
        return jobs[0]
    folded = name.casefold()
    made = [job for job in jobs if job.result_model and job.result_model.casefold() == folded]
    if made:
        return made[0]
    same = [job for job in jobs if job.id == name]
    if len(same) > 1:
        places = ", ".join(job.address for job in same)
        raise UsageError(f"job {name!r} exists at several services: {places}; name its model")
    found = resolve_name("job", name, [(job.id, job.id) for job in jobs])
    if found is None:
        raise unknown_name_error(
            "job",
            name,
            [job.id for job in jobs],
            empty="this database has no jobs: start one with 'assay finetune start'",
            see="assay finetune list",
        )
    return next(job for job in jobs if job.id == found.id)


def job_events(connection: duckdb.DuckDBPyConnection, job: FinetuneJob) -> list[FinetuneEvent]:
    """Return the events of a job, the oldest first."""
    rows = connection.execute(
        f"SELECT {', '.join(_EVENT_COLUMNS)} FROM finetune_events"
        " WHERE address = ? AND job_id = ? ORDER BY position",
        [job.address, job.id],
    ).fetchall()
    events = [dict(zip(_EVENT_COLUMNS, row, strict=True)) for row in rows]
    return [
        FinetuneEvent(**{**event, "metrics": json.loads(event["metrics"] or "{}")})
        for event in events
    ]


def find_upload(connection: duckdb.DuckDBPyConnection, address: str, sha256: str) -> str | None:
    """Return the id a service gave to an uploaded file; None if it was not uploaded."""
    row = connection.execute(
        "SELECT file_id FROM finetune_files WHERE address = ? AND sha256 = ?", [address, sha256]
    ).fetchone()
    return None if row is None else str(row[0])


def add_upload(
    connection: duckdb.DuckDBPyConnection,
    address: str,
    sha256: str,
    *,
    file_id: str,
    name: str,
    size: int,
) -> None:
    """Store an uploaded file, replacing an earlier upload of the same content."""
    with transaction(connection):
        connection.execute(
            "DELETE FROM finetune_files WHERE address = ? AND sha256 = ?", [address, sha256]
        )
        connection.execute(
            "INSERT INTO finetune_files (address, sha256, file_id, name, bytes, uploaded_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [address, sha256, file_id, name, size, _now()],
        )


def seconds_per_token(
    connection: duckdb.DuckDBPyConnection, address: str, model: str
) -> float | None:
    """Return the training time per token in the latest successful job of a model, if any."""
    for job in list_jobs(connection):
        epochs = job.hyperparameters.get("n_epochs")
        if (
            job.succeeded
            and (job.address, job.model) == (address, model)
            and job.tokens
            and isinstance(epochs, int)
            and job.seconds
        ):
            return job.seconds / (job.tokens * epochs)
    return None


@dataclass(frozen=True, slots=True)
class TrainedWorlds:
    """Worlds that are in the training split of a data set."""

    name: str
    """Name of the data file."""
    dataset: str
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        """Return a one-line description."""
        few = ", ".join(map(str, self.seeds[:6])) + (", …" if len(self.seeds) > 6 else "")
        worlds = "world" if len(self.seeds) == 1 else "worlds"
        return f"{len(self.seeds)} {worlds} of the training data {self.name} (seed {few})"


def register_dataset(
    connection: duckdb.DuckDBPyConnection,
    dataset: str,
    name: str,
    worlds: Mapping[str, Iterable[tuple[str, int | None]]],
) -> None:
    """Store the worlds of a data set by split, replacing an earlier registration."""
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = [
        (task, seed, split)
        for split, members in worlds.items()
        for task, seed in members
        if seed is not None
    ]
    tasks, seeds, splits = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    with transaction(connection):
        connection.execute("DELETE FROM dataset_worlds WHERE dataset = ?", [dataset])
        connection.execute(
            "INSERT INTO dataset_worlds (task, seed, split, dataset, name, created_at)"
            " SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), unnest(?::VARCHAR[]), ?, ?, ?",
            [tasks, seeds, splits, dataset, name, now],
        )


def find_training_worlds(
    connection: duckdb.DuckDBPyConnection, worlds: Sequence[tuple[str, int]]
) -> list[TrainedWorlds]:
    """Return the data sets that were trained on any of these worlds, the newest first."""
    rows = connection.execute(
        """
        SELECT d.dataset, any_value(d.name), list(DISTINCT d.seed ORDER BY d.seed)
        FROM dataset_worlds d JOIN (
            SELECT unnest(?::VARCHAR[]) AS task, unnest(?::BIGINT[]) AS seed
        ) w USING (task, seed)
        WHERE d.split = 'train' GROUP BY d.dataset ORDER BY max(d.created_at) DESC, d.dataset
        """,
        [[task for task, _ in worlds], [seed for _, seed in worlds]],
    ).fetchall()
    return [TrainedWorlds(name, dataset, tuple(seeds)) for dataset, name, seeds in rows]
