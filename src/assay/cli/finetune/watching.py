"""Jobs while they are trained: a bar with the loss for each, or a line where nobody watches."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._util.redact import mask
from assay._util.text import printable
from assay.cli.finetune.words import in_database, outcome, sparkline
from assay.cli.output import Show, note, program

if TYPE_CHECKING:
    from rich.progress import TaskID

    from assay.api import JobProgress
    from assay.experiments.finetune_jobs import FinetuneJob

__all__ = ["INTERRUPTED", "exit_code", "follow"]

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
