"""Follows jobs until they end: one question a job in turn, and a longer wait after trouble."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay._util.backoff import backoff
from assay.errors import ServiceError

from .client import FinetuneClient
from .values import JobEvent, RemoteJob

__all__ = ["JobUpdate", "WatchedJob", "watch"]

_LONGEST_WAIT: Final = 300.0
_PATIENCE: Final = 3600.0


@dataclass(slots=True)
class WatchedJob:
    """A job to follow, and what is known of it."""

    client: FinetuneClient
    id: str
    seen: set[str] = field(default_factory=set)
    """Events that are known."""
    ended: bool = False
    waited: float = 0.0
    """Seconds for which nothing was heard of it."""


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """What became known of a job; a trouble, or how it stands."""

    watched: WatchedJob
    job: RemoteJob | None
    events: tuple[JobEvent, ...] = ()
    trouble: str | None = None
    wait: float = 0.0
    """Seconds until it is asked again, after a trouble."""


def watch(
    jobs: Sequence[WatchedJob],
    *,
    interval: float = 30.0,
    patience: float = _PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[JobUpdate]:
    """Ask for all jobs in turn until all have ended, and tell what each answer says.

    Args:
        jobs: Those to follow; told of until they end.
        interval: Seconds between two rounds; after trouble it doubles, up to five minutes.
        patience: Seconds without any answer after which a job is given up.
        sleep: Waits.

    Raises:
        ServiceError: Patience ended; the job continues without us.
        ModelRejected: The service does not know the job, or refuses the key.
    """
    troubled = 0
    while open_ones := [job for job in jobs if not job.ended]:
        updates = []
        for watched in open_ones:
            update = _asked(watched, backoff(troubled, max(interval, 1.0), _LONGEST_WAIT))
            updates.append(update)
            yield update
        failed = [update for update in updates if update.job is None]
        troubled = troubled + 1 if failed else 0
        for update in failed:
            update.watched.waited += update.wait
            if update.watched.waited > patience:
                raise ServiceError(
                    f"job {update.watched.id} could not be asked about for"
                    f" {update.watched.waited / 60:.0f} minutes: {update.trouble}; it may"
                    f" continue without us: 'assay finetune wait {update.watched.id}' follows"
                    " it again"
                )
        if any(not job.ended for job in jobs):
            sleep(max((update.wait for update in failed), default=interval))


def _asked(watched: WatchedJob, wait: float) -> JobUpdate:
    try:
        job = watched.client.job(watched.id)
        # After the state, so that no event of the end is missed.
        events = watched.client.events(watched.id, watched.seen)
    except ServiceError as error:
        return JobUpdate(watched, None, trouble=str(error), wait=wait)
    watched.seen.update(event.id for event in events)
    watched.ended, watched.waited = job.ended, 0.0
    return JobUpdate(watched, job, tuple(events))
