"""Fine-tuning jobs in a store: what was asked for, how it went, and what came of it.

A job is known by the address of its service and the id it has there. Its row is made when it
was asked for, and follows what the service says; events are only ever added.

The worlds that training data was made of, so that nobody is tested on them unawares.

A row is a world, a task with a seed, in one data set: trained on, or held out of it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final

import duckdb

from assay.core.canonical_json import canonical_json
from assay.core.text import choose, unknown
from assay.errors import UsageError
from assay.store.ingest import transaction

PLAYED: Final = "played"
"""The key of a lineage for how the model was asked in all episodes that the rows came from."""
_ENDED = ("succeeded", "failed", "cancelled")
_JSON = ("hyperparameters", "lineage", "provenance", "history")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneJob:
    """One job, as the store has it."""

    id: str
    address: str
    """The service."""
    backend: str
    model: str
    """The model that is trained further."""
    suffix: str | None = None
    status: str = "unknown"
    result_model: str | None = None
    """The new model; None until it succeeded."""
    error: str | None = None
    data: str | None = None
    data_sha256: str | None = None
    rows: int | None = None
    subset_of: int | None = None
    """Rows of the file that the rows were taken from; None if they are all of it."""
    tokens: int | None = None
    """Of one epoch, estimated."""
    validation: str | None = None
    validation_sha256: str | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest of the data says of all rows; empty where there is none."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    history: tuple[tuple[str, str], ...] = ()
    """Each status, and when it was first seen, in UTC."""
    trained_tokens: int | None = None
    created_at: datetime = datetime.min
    """When it was asked for, by the service's clock, in UTC."""
    finished_at: datetime | None = None
    """When it ended, by the same clock."""

    @property
    def ended(self) -> bool:
        """Whether its status is the last one."""
        return self.status in _ENDED

    @property
    def succeeded(self) -> bool:
        """Whether it has made a model."""
        return self.status == "succeeded" and self.result_model is not None

    @property
    def seconds(self) -> float | None:
        """How long it took from the request to its end; None while it goes on."""
        if self.finished_at is None:
            return None
        return max(0.0, (self.finished_at - self.created_at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneEvent:
    """Something that happened to a job."""

    id: str
    created_at: datetime | None
    level: str
    message: str
    step: int | None = None
    total_steps: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


_COLUMNS = tuple(each.name for each in fields(FinetuneJob))
_EVENT_COLUMNS = tuple(each.name for each in fields(FinetuneEvent))


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def add_job(connection: duckdb.DuckDBPyConnection, job: FinetuneJob) -> FinetuneJob:
    """Store a job that is seen for the first time; one that is there is replaced."""
    now = _now()
    made = now if job.created_at == datetime.min else job.created_at
    kept = replace(job, created_at=made, history=((job.status, now.isoformat()),))
    with transaction(connection):
        _write(connection, kept)
    return kept


def update_job(
    connection: duckdb.DuckDBPyConnection, job: FinetuneJob, events: Iterable[FinetuneEvent]
) -> FinetuneJob:
    """Store what a service says of a job, and its new events; the job as it is stored."""
    with transaction(connection):
        last = job.history[-1][0] if job.history else None
        if job.status != last:
            seen = (job.status, _now().isoformat())
            job = replace(job, history=(*job.history, seen))
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
    """Add events of a job that are not there."""
    new = {event.id: event for event in events}
    if not new:
        return
    there = connection.execute(
        "SELECT id FROM finetune_events WHERE address = ? AND job_id = ?", [job.address, job.id]
    ).fetchall()
    known = {name for (name,) in there}
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
    """All jobs, the newest first."""
    names = ", ".join(f'"{name}"' for name in _COLUMNS)
    rows = connection.execute(f"SELECT {names} FROM finetune_jobs ORDER BY id").fetchall()
    jobs = [_job(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
    # By our own clock: those of services may differ.
    return sorted(jobs, key=lambda job: job.history[0][1] if job.history else "", reverse=True)


def _job(values: dict[str, Any]) -> FinetuneJob:
    for name in _JSON:
        values[name] = json.loads(values[name]) if values[name] else {}
    values["history"] = tuple((status, at) for status, at in values["history"] or ())
    values["command"] = values["command"] or ""
    values["status"] = values["status"] or "unknown"
    return FinetuneJob(**values)


def find_job(connection: duckdb.DuckDBPyConnection, name: str) -> FinetuneJob:
    """The job of an id, the start of one, or the model it has made; `latest` is the newest.

    Raises:
        UsageError: There is none, or there are several.
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
        raise UsageError(f"job {name!r} is at several services: {places}; name its model")
    found = choose("job", name, [(job.id, job.id) for job in jobs])
    if found is None:
        raise unknown(
            "job",
            name,
            [job.id for job in jobs],
            empty="no job was started with this store: 'assay finetune start' starts one",
            see="assay finetune list",
        )
    return next(job for job in jobs if job.id == found.id)


def job_events(connection: duckdb.DuckDBPyConnection, job: FinetuneJob) -> list[FinetuneEvent]:
    """The events of a job, the oldest first."""
    rows = connection.execute(
        f"SELECT {', '.join(_EVENT_COLUMNS)} FROM finetune_events"
        " WHERE address = ? AND job_id = ? ORDER BY position",
        [job.address, job.id],
    ).fetchall()
    found = [dict(zip(_EVENT_COLUMNS, row, strict=True)) for row in rows]
    return [
        FinetuneEvent(**{**each, "metrics": json.loads(each["metrics"] or "{}")})
        for each in found
    ]


def find_upload(connection: duckdb.DuckDBPyConnection, address: str, sha256: str) -> str | None:
    """What a service calls a file that was uploaded to it; None if it was not."""
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
    """Remember a file that was uploaded; a later upload of the same takes its place."""
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
    """What a trained token took, by the latest job of a model at a service that succeeded."""
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
    """The worlds of a test that a data set was trained on."""

    name: str
    """What the data file is called."""
    dataset: str
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        """Say it in one line."""
        few = ", ".join(map(str, self.seeds[:6])) + (", …" if len(self.seeds) > 6 else "")
        worlds = "world" if len(self.seeds) == 1 else "worlds"
        return f"{len(self.seeds)} {worlds} of the training data {self.name} (seed {few})"


def register_dataset(
    connection: duckdb.DuckDBPyConnection,
    dataset: str,
    name: str,
    worlds: Mapping[str, Iterable[tuple[str, int | None]]],
) -> None:
    """Store the worlds of a data set by split; one that is there is replaced."""
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = [
        (task, seed, split)
        for split, those in worlds.items()
        for task, seed in those
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


def trained_worlds(
    connection: duckdb.DuckDBPyConnection, worlds: Sequence[tuple[str, int]]
) -> list[TrainedWorlds]:
    """Which data sets were made of some of these worlds, the newest first."""
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
