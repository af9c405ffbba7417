"""Fine-tuning jobs that were started: followed, asked about, listed and ended.

What a service says is written into the store as it becomes known.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from assay.api._finetune_parts import (
    Told,
    client_of,
    event_of,
    key_of,
    stored_events,
    stored_job,
    updated_job,
)
from assay.errors import UsageError
from assay.traces.opening import Where, store_at

if TYPE_CHECKING:
    from assay.experiments.finetune_jobs import FinetuneEvent, FinetuneJob
    from assay.finetune import (
        FinetuneClient,
    )

__all__ = [
    "JobProgress",
    "finetune_cancel",
    "finetune_events",
    "finetune_follow",
    "finetune_list",
    "finetune_status",
    "finetune_wait",
]


class JobProgress(NamedTuple):
    """What became known of a job."""

    job: "FinetuneJob"
    events: "tuple[FinetuneEvent, ...]" = ()
    trouble: str | None = None
    """Why it could not be asked about this time."""
    wait: float = 0.0
    """Seconds until it is asked about again, after a trouble."""


def finetune_follow(
    jobs: "Sequence[FinetuneJob]",
    *,
    database: Where = None,
    poll_interval: float = 30.0,
    patience: float = 3600.0,
    on_trouble: Told = lambda words: None,
) -> Iterator[JobProgress]:
    """Follow jobs until all have ended; what becomes known is stored, then told.

    Args:
        jobs: Jobs of the store.
        database: The store.
        poll_interval: Seconds between two questions.
        patience: Seconds without an answer after which a job is given up.
        on_trouble: Told of what is tried again.

    Raises:
        ServiceError: Patience ended; the job continues without us.
    """
    from assay.experiments.finetune_jobs import job_events, update_job
    from assay.finetune import WatchedJob, watch

    store = store_at(database)
    now = {(job.address, job.id): job for job in jobs}
    with ExitStack() as stack:
        clients: dict[str, FinetuneClient] = {}
        watched = []
        for job in now.values():
            if job.address not in clients:
                key = key_of(job)
                clients[job.address] = stack.enter_context(
                    client_of(job.address, key, on_trouble)
                )
            with store.writing() as connection:
                seen = {event.id for event in job_events(connection, job)}
            watched.append(WatchedJob(clients[job.address], job.id, seen))
        for update in watch(watched, interval=poll_interval, patience=patience):
            place = (update.watched.client.address, update.watched.id)
            if update.job is None:
                yield JobProgress(now[place], trouble=update.trouble, wait=update.wait)
                continue
            before = now[place]
            events = tuple(map(event_of, update.events))
            after = updated_job(before, update.job)
            if after != before or events:
                with store.writing() as connection:
                    after = update_job(connection, after, events)
            now[place] = after
            yield JobProgress(after, events)


def finetune_wait(
    *names: str,
    database: Where = None,
    backend: str | None = None,
    base_url: str | None = None,
    poll_interval: float = 30.0,
) -> "list[FinetuneJob]":
    """Wait until jobs have ended: ids, starts of ids, or `latest`."""
    jobs = [
        finetune_status(name, database=database, backend=backend, base_url=base_url)
        for name in names
    ]
    last = {(job.address, job.id): job for job in jobs}
    for update in finetune_follow(jobs, database=database, poll_interval=poll_interval):
        last[update.job.address, update.job.id] = update.job
    return list(last.values())


def finetune_status(
    name: str = "latest",
    *,
    database: Where = None,
    backend: str | None = None,
    base_url: str | None = None,
    ask: bool = True,
) -> "FinetuneJob":
    """How a job stands, by its service; the store is brought up to date.

    Args:
        name: Its id, the start of one, the model it has made, or latest.
        database: The store.
        backend: Where to look for a job that the store does not know; it is then stored.
        base_url: Where that backend is.
        ask: Whether its service is asked; otherwise what the store knows.
    """
    from assay.experiments.finetune_jobs import update_job

    store = store_at(database)
    job = stored_job(store, name, backend, base_url)
    if not ask or job.ended:
        return job
    with client_of(job.address, key_of(job), lambda words: None) as client:
        remote = client.job(job.id)
        known = [event.id for event in stored_events(store, job)]
        events = [event_of(event) for event in client.events(job.id, known)]
    with store.writing() as connection:
        return update_job(connection, updated_job(job, remote), events)


def finetune_events(
    name: str = "latest",
    *,
    database: Where = None,
    backend: str | None = None,
    base_url: str | None = None,
) -> "list[FinetuneEvent]":
    """What happened to a job, the oldest first; its service is asked while it runs."""
    job = finetune_status(name, database=database, backend=backend, base_url=base_url)
    return stored_events(store_at(database), job)


def finetune_list(*, database: Where = None) -> "list[FinetuneJob]":
    """The jobs of the store, the newest first; asks nobody."""
    from assay.experiments.finetune_jobs import list_jobs

    with store_at(database).reading() as connection:
        return list_jobs(connection)


def finetune_cancel(
    name: str,
    *,
    database: Where = None,
    backend: str | None = None,
    base_url: str | None = None,
) -> "FinetuneJob":
    """End a job before its time."""
    from assay.experiments.finetune_jobs import update_job

    store = store_at(database)
    job = stored_job(store, name, backend, base_url)
    if job.ended:
        raise UsageError(f"job {job.id} has ended already: {job.status}")
    with client_of(job.address, key_of(job), lambda words: None) as client:
        remote = client.cancel(job.id)
        known = [event.id for event in stored_events(store, job)]
        events = [event_of(event) for event in client.events(job.id, known)]
    with store.writing() as connection:
        return update_job(connection, updated_job(job, remote), events)
