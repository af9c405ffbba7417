"""`assay finetune status`, `wait`, `list`, `events` and `cancel`: manage started jobs."""

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.options import Database, Given, open_store, option_groups
from assay.cli.output import (
    JobBars,
    OutputOptions,
    find_program,
    print_json,
    print_line,
    print_note,
)
from assay.cli.tables import print_table
from assay.core.text import printable
from assay.store.location import DEFAULT_DATABASE, default_database

if TYPE_CHECKING:
    from assay.finetune.follow import JobProgress
    from assay.store.finetune_jobs import FinetuneEvent, FinetuneJob

_WITH_SERVICE_OPTIONS = option_groups(service="assay.finetune.options:JobServiceOptions")
_BARS = "▁▂▃▄▅▆▇█"


def job_to_json(job: "FinetuneJob") -> dict[str, Any]:
    """Return a job as JSON values."""
    values = asdict(job)
    for name in ("created_at", "finished_at"):
        values[name] = None if values[name] is None else f"{values[name].isoformat()}Z"
    values["history"] = [{"status": status, "at": f"{at}Z"} for status, at in job.history]
    return values


def event_to_json(event: "FinetuneEvent") -> dict[str, Any]:
    """Return an event as JSON values."""
    at = event.created_at
    return {**asdict(event), "created_at": None if at is None else f"{at.isoformat()}Z"}


def format_database_option(database: Path) -> str:
    """Return the option for a database; empty for the default database."""
    return "" if database == default_database() else f" --database {shlex.quote(str(database))}"


def format_outcome(job: "FinetuneJob") -> str:
    """Describe the outcome or status of a job in one line."""
    took = "" if job.seconds is None else f" after {format_hours(job.seconds)}"
    if job.succeeded:
        tokens = f", {job.trained_tokens:,} tokens trained" if job.trained_tokens else ""
        return f"{job.id} succeeded{took}{tokens}: {job.result_model}"
    if job.status == "failed":
        return f"{job.id} failed{took}: {job.error or 'the service gives no reason'}"
    return f"{job.id} is {job.status}{took if job.ended else ''}"


def suggest_commands(job: "FinetuneJob", database: Path) -> list[str]:
    """Return the commands to use a new model."""
    assay, where = find_program(), format_database_option(database)
    name = shlex.quote(str(job.result_model))
    base_model = shlex.quote(job.model)
    return [
        f"Test it:          {assay} models test {name}{where}",
        f"Run it:           {assay} run --models {name} {base_model} --episodes 20"
        f" --seed {_choose_fresh_seed(job)}{where}",
        f"Compare it:       {assay} compare latest{where}",
        f"Training curves:  {assay} analyze training --job-ids {job.id} --output"
        f" training_analysis.html{where}",
    ]


def _choose_fresh_seed(job: "FinetuneJob") -> int:
    """Return the first seed after those of the worlds in its training data."""
    worlds = job.lineage.get("worlds", {})
    seeds = [seed for split in worlds.values() for _, seed in split if isinstance(seed, int)]
    return max(seeds, default=999) + 1


def format_hours(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def draw_sparkline(values: Sequence[float], width: int = 24) -> str:
    """Draw a curve as one line of text; each character is the mean of a segment."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    count = min(width, len(finite))
    edges = [round(place * len(finite) / count) for place in range(count + 1)]
    means = [sum(finite[first:last]) / (last - first) for first, last in pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in means)


FAILED, INTERRUPTED = 1, 130
_MAX_LOSS_LINES = 10
"""Number of loss lines per job if no progress bars are drawn."""


def follow_jobs(
    jobs: "Sequence[FinetuneJob]", database: Path, poll_interval: float, show: OutputOptions
) -> "tuple[list[FinetuneJob], bool]":
    """Wait for jobs; return their last state, and whether the user interrupted the wait."""
    from assay.finetune.follow import finetune_follow

    last = {(job.address, job.id): job for job in jobs}
    columns = ("{task.description}", "short bar", "count", "{task.fields[loss]}", "elapsed")
    try:
        with JobBars(show, *columns) as bars:
            on_update = (
                _make_bar_updater(jobs, bars) if bars.are_drawn else _make_line_printer(bars)
            )
            for update in finetune_follow(
                jobs,
                database=database,
                poll_interval=poll_interval,
                on_trouble=lambda words: bars.print_message(f"retrying: {words}"),
            ):
                last[update.job.address, update.job.id] = update.job
                on_update(update)
                if update.job.ended:
                    bars.print_message(format_outcome(update.job))
    except KeyboardInterrupt:
        unfinished = [job for job in last.values() if not job.ended]
        names = " ".join(job.id for job in unfinished)
        database_option = format_database_option(database)
        print_note(f"interrupted; training continues without this command: {names}")
        print_note(f"Follow again: {find_program()} finetune wait {names}{database_option}")
        print_note(f"Cancel:       {find_program()} finetune cancel {names}{database_option}")
        return list(last.values()), True
    return list(last.values()), False


def compute_exit_code(jobs: "Sequence[FinetuneJob]") -> int:
    """Return 0 if all jobs produced a model, else 1."""
    return 0 if all(job.succeeded for job in jobs) else FAILED


def _make_line_printer(bars: JobBars) -> "Callable[[JobProgress], None]":
    """Return a callback that prints a line for each new status, and some for the loss."""
    states: dict[str, str] = {}
    printed_step: dict[str, int] = {}

    def print_update(update: "JobProgress") -> None:
        job = update.job
        if update.trouble is not None:
            bars.print_message(f"{job.id}: {update.trouble}; retrying in {update.wait:.0f} s")
            return
        if states.get(job.id) != job.status and not job.ended:
            bars.print_message(f"{job.id}: {job.status}")
        states[job.id] = job.status
        for event in update.events:
            loss, step = event.metrics.get("train_loss"), event.step
            if loss is None or step is None:
                continue
            total = event.total_steps or 0
            gap = max(1, total // _MAX_LOSS_LINES)
            if step >= printed_step.get(job.id, 0) + gap or step == total:
                printed_step[job.id] = step
                of = f"/{total}" if total else ""
                bars.print_message(f"{job.id}: step {step}{of}, loss {loss:.4f}")

    return print_update


def _make_bar_updater(
    jobs: "Sequence[FinetuneJob]", bars: JobBars
) -> "Callable[[JobProgress], None]":
    """Return a callback that draws a progress bar per job, with its loss as a curve."""
    for job in jobs:
        bars.add(job.id, printable(f"{job.id} {job.status}"), loss="")
    losses: dict[str, list[float]] = {job.id: [] for job in jobs}

    def update_bar(update: "JobProgress") -> None:
        job = update.job
        words = job.status
        if update.trouble is not None:
            words = f"no response, retrying in {update.wait:.0f} s"
        changes: dict[str, Any] = {"description": printable(f"{job.id} {words}")}
        for event in update.events:
            if event.total_steps:
                changes["total"] = event.total_steps
            if event.step is not None:
                changes["completed"] = event.step
            if "train_loss" in event.metrics:
                losses[job.id].append(event.metrics["train_loss"])
        if known := losses[job.id]:
            changes["loss"] = f"loss {known[-1]:.3f} {draw_sparkline(known)}"
        bars.update(job.id, **changes)

    return update_bar


_HEADS = ("job", "status", "backend", "model", "rows", "result", "started")


@_WITH_SERVICE_OPTIONS
def status(
    job: str = "latest",
    /,
    *,
    service: Given,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Show the status of a job.

    For example:

        assay finetune status ftjob-abc123

    Args:
        job: Job id, the start of one, the model it produced, or latest.
        service: Service to query for a job that is not in the database.
        database: Database with the jobs.
        show: Output options.
    """
    from assay.finetune.follow import finetune_events, finetune_status

    store = open_store(database, show)
    current = finetune_status(job, database=store, **service)
    if show.json:
        print_json(job_to_json(current))
    elif show.quiet:
        print_line(current.status)
    else:
        job_events = finetune_events(current.id, database=store, backend=current.backend)
        _print_status(current, job_events, database)
    return 0


def _print_status(job: "FinetuneJob", events: "list[FinetuneEvent]", database: Path) -> None:
    print_line(format_outcome(job))
    losses = [event.metrics["train_loss"] for event in events if "train_loss" in event.metrics]
    if losses:
        print_line(f"loss      {losses[0]:.4f} to {losses[-1]:.4f}  {draw_sparkline(losses)}")
    settings = "".join(f", {name} {value}" for name, value in job.hyperparameters.items())
    print_line(f"trained   {job.model} at {job.address}{settings}")
    if job.data is not None:
        part = f" of {job.subset_of:,}" if job.subset_of else ""
        print_line(
            f"data      {job.data}, {job.rows or 0:,} rows{part}, SHA-256 {job.data_sha256}"
        )
    print_line(f"history   {', '.join(f'{name} {at[:19]}' for name, at in job.history)} (UTC)")
    if job.succeeded:
        for line in suggest_commands(job, database):
            print_line(line)


@_WITH_SERVICE_OPTIONS
def wait(
    *jobs: str,
    service: Given,
    poll_interval: Annotated[float, Parameter(validator=Number(gte=0, lte=3600))] = 30.0,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Wait until jobs have ended.

    The exit code is 1 if a job produces no model.

    For example:

        assay finetune wait ftjob-abc123 --poll-interval 10

    Args:
        jobs: Job ids, starts of ids, or latest, which is the default.
        service: Service to query for a job that is not in the database.
        poll_interval: Seconds between two status requests for a job.
        database: Database with the jobs.
        show: Output options.
    """
    from assay.finetune.follow import finetune_status

    store = open_store(database, show)
    waiting = [
        finetune_status(name, database=store, ask=False, **service)
        for name in jobs or ("latest",)
    ]
    ended, interrupted = follow_jobs(waiting, database, poll_interval, show)
    if show.json:
        print_json({"jobs": [job_to_json(job) for job in ended]})
    elif show.quiet:
        for job in ended:
            print_line(job.result_model or job.status)
    elif not interrupted:
        for job in ended:
            print_line(format_outcome(job))
            for line in suggest_commands(job, database) if job.succeeded else ():
                print_line(line)
    return INTERRUPTED if interrupted else compute_exit_code(ended)


def list_(
    *, database: Database = DEFAULT_DATABASE, show: OutputOptions = OutputOptions()
) -> int:
    """List the jobs in the database, newest first.

    No service is called, so the status may be out of date.

    For example:

        assay finetune list

    Args:
        database: Database with the jobs.
        show: Output options.
    """
    from assay.finetune.follow import finetune_list

    jobs = finetune_list(database=open_store(database, show))
    if show.json:
        print_json({"jobs": [job_to_json(job) for job in jobs]})
    elif show.quiet:
        for job in jobs:
            print_line(job.id)
    elif not jobs:
        print_line("no jobs in this database; 'assay finetune start' starts one")
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
        print_table(_HEADS, rows, ("job", "status", "backend", "model", "result", "started"))
    return 0


@_WITH_SERVICE_OPTIONS
def events(
    job: str = "latest",
    /,
    *,
    service: Given,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Show the events of a job, oldest first.

    For example:

        assay finetune events ftjob-abc123

    Args:
        job: Job id, the start of one, the model it produced, or latest.
        service: Service to query for a job that is not in the database.
        database: Database with the jobs.
        show: Output options.
    """
    from assay.finetune.follow import finetune_events

    store = open_store(database, show)
    job_events = finetune_events(job, database=store, **service)
    if show.json:
        print_json({"events": [event_to_json(event) for event in job_events]})
        return 0
    for event in job_events:
        at = "" if event.created_at is None else f"{event.created_at:%Y-%m-%d %H:%M:%S}  "
        level = "" if event.level == "info" else f"{event.level}: "
        print_line(f"{at}{level}{event.message}")
    return 0


@_WITH_SERVICE_OPTIONS
def cancel(
    *jobs: str,
    service: Given,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Cancel jobs.

    For example:

        assay finetune cancel ftjob-abc123

    Args:
        jobs: Job ids, or starts of ids.
        service: Service to query for a job that is not in the database.
        database: Database with the jobs.
        show: Output options.
    """
    from assay.errors import UsageError
    from assay.finetune.follow import finetune_cancel

    if not jobs:
        raise UsageError("give the id of a job; 'assay finetune list' shows them")
    store = open_store(database, show)
    cancelled = [finetune_cancel(name, database=store, **service) for name in jobs]
    if show.json:
        print_json({"jobs": [job_to_json(job) for job in cancelled]})
    elif not show.quiet:
        for job in cancelled:
            print_line(format_outcome(job))
    return 0
