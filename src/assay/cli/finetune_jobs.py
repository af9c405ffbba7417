"""`assay finetune status`, `wait`, `list`, `events` and `cancel`: jobs that were started.

Jobs while they are trained: a bar with the loss for each, or a line where nobody watches.

What the commands of `assay finetune` say of jobs.
"""

import math
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.options import Database, open_store
from assay.cli.output import Show, note, program, say, say_json
from assay.cli.tables import say_table
from assay.core.secrets import mask
from assay.core.text import printable
from assay.store.location import DEFAULT_DATABASE, default_database

if TYPE_CHECKING:
    from rich.progress import TaskID

    from assay.finetune.follow import JobProgress
    from assay.store.finetune_jobs import FinetuneEvent, FinetuneJob

Backend: TypeAlias = Annotated[str | None, Parameter(show_default=False)]
"""The service that trains."""
Address: TypeAlias = Annotated[str | None, Parameter(name="--base-url", show_default=False)]
"""Where the service is."""
_BARS = "▁▂▃▄▅▆▇█"


def as_json(job: "FinetuneJob") -> dict[str, Any]:
    """A job for a program to read."""
    values = asdict(job)
    for name in ("created_at", "finished_at"):
        values[name] = None if values[name] is None else f"{values[name].isoformat()}Z"
    values["history"] = [{"status": status, "at": f"{at}Z"} for status, at in job.history]
    return values


def event_json(event: "FinetuneEvent") -> dict[str, Any]:
    """An event for a program to read."""
    at = event.created_at
    return {**asdict(event), "created_at": None if at is None else f"{at.isoformat()}Z"}


def in_database(database: Path) -> str:
    """The option that names a store, where it is not the usual one."""
    return "" if database == default_database() else f" --database {shlex.quote(str(database))}"


def outcome(job: "FinetuneJob") -> str:
    """How a job ended, in one line."""
    took = "" if job.seconds is None else f" after {short_time(job.seconds)}"
    if job.succeeded:
        tokens = f", {job.trained_tokens:,} tokens trained" if job.trained_tokens else ""
        return f"{job.id} succeeded{took}{tokens}: {job.result_model}"
    if job.status == "failed":
        return f"{job.id} failed{took}: {job.error or 'the service gives no reason'}"
    return f"{job.id} is {job.status}{took if job.ended else ''}"


def usage(job: "FinetuneJob", database: Path) -> list[str]:
    """The commands that use a new model."""
    assay, where = program(), in_database(database)
    name = shlex.quote(str(job.result_model))
    against = shlex.quote(job.model)
    return [
        f"Ask it once:      {assay} models test {name}{where}",
        f"Let it play:      {assay} run --models {name} {against} --episodes 20"
        f" --seed {_fresh_seed(job)}{where}",
        f"Compare it:       {assay} compare latest{where}",
        f"See its training: {assay} analyze training --job-ids {job.id} --output"
        f" training_analysis.html{where}",
    ]


def _fresh_seed(job: "FinetuneJob") -> int:
    """The first seed beyond those of the worlds that its data was made of."""
    worlds = job.lineage.get("worlds", {})
    seeds = [seed for split in worlds.values() for _, seed in split if isinstance(seed, int)]
    return max(seeds, default=999) + 1


def short_time(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """A curve in one line of text: means of as many pieces as there are letters."""
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
_TOLD_STEPS = 10
"""Lines with a loss for each job, where nobody watches."""


def follow(
    jobs: "Sequence[FinetuneJob]", database: Path, poll_interval: float, show: Show
) -> "tuple[list[FinetuneJob], bool]":
    """Follow jobs to their end; the jobs as they are then, and whether somebody left."""
    from assay import api

    last = {(job.address, job.id): job for job in jobs}
    display = _display(show)
    try:
        with ExitStack() as stack:
            stack.enter_context(display)
            for job in jobs:
                display.begin(job)
            for update in api.finetune_follow(
                jobs,
                database=database,
                poll_interval=poll_interval,
                on_trouble=display.trouble,
            ):
                last[update.job.address, update.job.id] = update.job
                display.tell(update)
    except KeyboardInterrupt:
        open_ones = [job for job in last.values() if not job.ended]
        names = " ".join(job.id for job in open_ones)
        where = in_database(database)
        note(f"left; training goes on without this command: {names}")
        note(f"Follow again: {program()} finetune wait {names}{where}")
        note(f"End it:       {program()} finetune cancel {names}{where}")
        return list(last.values()), True
    return list(last.values()), False


def exit_code(jobs: "Sequence[FinetuneJob]") -> int:
    """0 if all made a model."""
    return 0 if all(job.succeeded for job in jobs) else FAILED


class _Silent:
    """Says nothing."""

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, job: "FinetuneJob") -> None:
        """A job that will be told of."""

    def tell(self, update: "JobProgress") -> None:
        """Something became known."""

    def trouble(self, words: str) -> None:
        """Something is tried again."""


class _Lines(_Silent):
    """A line for each new state, and some with the loss."""

    def __init__(self) -> None:
        self._state: dict[str, str] = {}
        self._told: dict[str, int] = {}

    def tell(self, update: "JobProgress") -> None:
        job = update.job
        if update.trouble is not None:
            note(f"{job.id}: {update.trouble}; asked again in {update.wait:.0f} s")
            return
        if self._state.get(job.id) != job.status and not job.ended:
            note(f"{job.id}: {job.status}")
        self._state[job.id] = job.status
        for event in update.events:
            loss, step = event.metrics.get("train_loss"), event.step
            if loss is None or step is None:
                continue
            total = event.total_steps or 0
            gap = max(1, total // _TOLD_STEPS)
            if step >= self._told.get(job.id, 0) + gap or step == total:
                self._told[job.id] = step
                note(f"{job.id}: step {step}{f'/{total}' if total else ''}, loss {loss:.4f}")
        if job.ended:
            note(outcome(job))

    def trouble(self, words: str) -> None:
        note(f"trying again: {words}")


class _Bars(_Silent):
    """A bar for each job, with its loss as a curve."""

    def __init__(self, console: Any) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self._progress: Progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._losses: dict[str, list[float]] = {}

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, job: "FinetuneJob") -> None:
        self._tasks[job.id] = self._progress.add_task(
            printable(f"{job.id} {job.status}"), total=None, loss=""
        )
        self._losses[job.id] = []

    def tell(self, update: "JobProgress") -> None:
        job = update.job
        words = job.status
        if update.trouble is not None:
            words = f"no answer, asked again in {update.wait:.0f} s"
        changes: dict[str, Any] = {"description": printable(f"{job.id} {words}")}
        losses = self._losses[job.id]
        for event in update.events:
            if event.total_steps:
                changes["total"] = event.total_steps
            if event.step is not None:
                changes["completed"] = event.step
            if "train_loss" in event.metrics:
                losses.append(event.metrics["train_loss"])
        if losses:
            changes["loss"] = f"loss {losses[-1]:.3f} {sparkline(losses)}"
        self._progress.update(self._tasks[job.id], **changes)
        if job.ended:
            self._progress.console.print(
                mask(printable(outcome(job))), markup=False, highlight=False, soft_wrap=True
            )

    def trouble(self, words: str) -> None:
        self._progress.console.print(
            mask(printable(f"trying again: {words}")),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _display(show: Show) -> _Silent:
    from rich.console import Console

    if show.quiet or show.json:
        return _Silent()
    console = Console(stderr=True)
    return _Bars(console) if console.is_terminal else _Lines()


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
