"""`assay finetune status`, `wait`, `list`, `events` and `cancel`: jobs that were started."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.database import Database, open_store
from assay.cli.finetune.watching import INTERRUPTED, exit_code, follow
from assay.cli.finetune.words import (
    Address,
    Backend,
    as_json,
    event_json,
    outcome,
    sparkline,
    usage,
)
from assay.cli.lists import say_table
from assay.cli.output import Show, say, say_json
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.experiments.finetune_jobs import FinetuneEvent, FinetuneJob

__all__ = ["cancel", "events", "list_", "status", "wait"]

_HEADS = ("job", "status", "backend", "model", "rows", "result", "started")


def status(
    job: str = "latest",
    /,
    *,
    backend: Backend = None,
    base_url: Address = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Ask how a job stands.

    For example:

        assay finetune status ftjob-abc123

    Args:
        job: Its id, the start of one, the model it has made, or latest.
        backend: Where to look for a job that the store does not know.
        base_url: Where that backend is.
        database: The store that keeps the jobs.
        show: What to print.
    """
    from assay import api

    store = open_store(database, show)
    found = api.finetune_status(job, database=store, backend=backend, base_url=base_url)
    if show.json:
        say_json(as_json(found))
    elif show.quiet:
        say(found.status)
    else:
        told = api.finetune_events(found.id, database=store, backend=found.backend)
        _say_status(found, told, database)
    return 0


def _say_status(job: "FinetuneJob", told: "list[FinetuneEvent]", database: Path) -> None:
    say(outcome(job))
    losses = [event.metrics["train_loss"] for event in told if "train_loss" in event.metrics]
    if losses:
        say(f"loss      {losses[0]:.4f} to {losses[-1]:.4f}  {sparkline(losses)}")
    given = ", ".join(f"{name} {value}" for name, value in job.hyperparameters.items())
    say(f"trained   {job.model} at {job.address}{f', {given}' if given else ''}")
    if job.data is not None:
        part = f" of {job.subset_of:,}" if job.subset_of else ""
        say(f"data      {job.data}, {job.rows or 0:,} rows{part}, SHA-256 {job.data_sha256}")
    say(f"history   {', '.join(f'{name} {at[:19]}' for name, at in job.history)} (UTC)")
    if job.succeeded:
        for line in usage(job, database):
            say(line)


def wait(
    *jobs: str,
    backend: Backend = None,
    base_url: Address = None,
    poll_interval: Annotated[float, Parameter(validator=Number(gte=0, lte=3600))] = 30.0,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Follow jobs to their end; the exit code is 1 if one makes no model.

    For example:

        assay finetune wait ftjob-abc123 --poll-interval 10

    Args:
        jobs: Their ids, starts of ids, or latest, which is meant if there is none.
        backend: Where to look for a job that the store does not know.
        base_url: Where that backend is.
        poll_interval: Seconds between two questions about a job.
        database: The store that keeps the jobs.
        show: What to print.
    """
    from assay import api

    store = open_store(database, show)
    found = [
        api.finetune_status(name, database=store, backend=backend, base_url=base_url, ask=False)
        for name in jobs or ("latest",)
    ]
    done, left = follow(found, database, poll_interval, show)
    if show.json:
        say_json({"jobs": [as_json(job) for job in done]})
    elif show.quiet:
        for job in done:
            say(job.result_model or job.status)
    elif not left:
        for job in done:
            say(outcome(job))
            for line in usage(job, database) if job.succeeded else ():
                say(line)
    return INTERRUPTED if left else exit_code(done)


def list_(*, database: Database = DEFAULT_DATABASE, show: Show = Show()) -> int:
    """List the jobs of the store, the newest first; no service is asked.

    For example:

        assay finetune list

    Args:
        database: The store that keeps the jobs.
        show: What to print.
    """
    from assay import api

    jobs = api.finetune_list(database=open_store(database, show))
    if show.json:
        say_json({"jobs": [as_json(job) for job in jobs]})
    elif show.quiet:
        for job in jobs:
            say(job.id)
    elif not jobs:
        say("no job was started with this store; 'assay finetune start' starts one")
    else:
        rows = [
            (
                *(job.id, job.status, job.backend, job.model),
                "" if job.rows is None else f"{job.rows:,}",
                job.result_model or "",
                f"{job.created_at:%Y-%m-%d %H:%M}",
            )
            for job in jobs
        ]
        say_table(_HEADS, rows, ("job", "status", "backend", "model", "result", "started"))
    return 0


def events(
    job: str = "latest",
    /,
    *,
    backend: Backend = None,
    base_url: Address = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Show what happened to a job, the oldest first.

    For example:

        assay finetune events ftjob-abc123

    Args:
        job: Its id, the start of one, the model it has made, or latest.
        backend: Where to look for a job that the store does not know.
        base_url: Where that backend is.
        database: The store that keeps the jobs.
        show: What to print.
    """
    from assay import api

    store = open_store(database, show)
    found = api.finetune_events(job, database=store, backend=backend, base_url=base_url)
    if show.json:
        say_json({"events": [event_json(event) for event in found]})
        return 0
    for event in found:
        at = "" if event.created_at is None else f"{event.created_at:%Y-%m-%d %H:%M:%S}  "
        level = "" if event.level == "info" else f"{event.level}: "
        say(f"{at}{level}{event.message}")
    return 0


def cancel(
    *jobs: str,
    backend: Backend = None,
    base_url: Address = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """End jobs before their time.

    For example:

        assay finetune cancel ftjob-abc123

    Args:
        jobs: Their ids, or starts of ids.
        backend: Where to look for a job that the store does not know.
        base_url: Where that backend is.
        database: The store that keeps the jobs.
        show: What to print.
    """
    from assay import api
    from assay.errors import UsageError

    if not jobs:
        raise UsageError("no job is named; 'assay finetune list' shows them")
    store = open_store(database, show)
    done = [
        api.finetune_cancel(name, database=store, backend=backend, base_url=base_url)
        for name in jobs
    ]
    if show.json:
        say_json({"jobs": [as_json(job) for job in done]})
    elif not show.quiet:
        for job in done:
            say(outcome(job))
    return 0
