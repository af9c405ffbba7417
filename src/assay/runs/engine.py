"""The engine: one loop that starts trials, and callbacks that handle how they ended.

Every task that the engine starts is awaited, even after an error. A failed trial is counted;
an exception of the observer, the plan or the classifier is a bug, and ends the run.

An executor runs one attempt of a trial, in this event loop or elsewhere. It does not deal with
queues, limits and retries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from assay.runs.control import GroupStop, Interrupted, Limits, Retries, Stop, TrialVerdict
from assay.runs.control import classify as classify_error
from assay.runs.events import (
    SILENT,
    Event,
    GroupEnded,
    GroupStarted,
    GroupStopped,
    RunEnded,
    RunObserver,
    RunStarted,
    TrialEnded,
    TrialInterrupted,
    TrialProgress,
    TrialRetried,
    TrialSkipped,
    TrialStarted,
)
from assay.runs.plan import Admission, Attempt, Group, GroupCounts, Line, Plan, Trial
from assay.types import TrialState

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Context:
    """Information about the run that an attempt receives."""

    attempt: int = 1
    """Counted from 1."""
    last: bool = True
    """Whether an infrastructure error of this attempt is final."""
    asked_to_stop: Callable[[], bool] = lambda: False
    report: Callable[[Any], None] = lambda _: None

    @property
    def stopping(self) -> bool:
        """Whether the trial should finish its current work and return."""
        return self.asked_to_stop()

    def check(self) -> None:
        """Raise Interrupted if the trial should stop; call it where no work is lost."""
        if self.asked_to_stop():
            raise Interrupted("asked to stop; resume goes on from here")

    def progress(self, payload: Any) -> None:
        """Report progress of the trial to the observer of the run."""
        self.report(payload)


class Executor(Protocol[P_contra]):
    """Runs attempts; many may be open at the same time."""

    async def run(self, trial: Trial[P_contra], context: Context) -> TrialVerdict:
        """Run one attempt to its end.

        Raises Interrupted if it stops without an end. The caller classifies other exceptions.
        If cancelled, it releases all its resources before it returns.
        """
        ...


Body: TypeAlias = Callable[[Trial[P], Context], Awaitable[TrialVerdict]]
"""Executes one attempt of a trial."""


class AsyncioExecutor(Generic[P]):
    """Runs bodies as tasks of the running event loop; they must not block it."""

    def __init__(self, body: Body[P]) -> None:
        self._body = body

    async def run(self, trial: Trial[P], context: Context) -> TrialVerdict:
        """Await the body."""
        return await self._body(trial, context)


Sleep: TypeAlias = Callable[[float], Coroutine[Any, Any, None]]
"""Waits for a number of seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Generic[P]):
    """Rules by which the engine schedules, retries and classifies trials."""

    limits: Limits = Limits()
    retries: Retries = Retries()
    """When a trial is retried. While it waits, other trials may run in its place."""
    classify: Callable[[Exception], TrialVerdict | GroupStop] = classify_error
    """Classifies exceptions of the executor, except Interrupted and cancellations."""
    sleep: Sleep = asyncio.sleep
    """Waits between attempts."""
    done: Callable[[str], bool] = lambda _: False
    """Returns whether the trial with this id needs no more work."""
    admit: Callable[[Trial[P]], Admission] = lambda _: Admission.NOW
    """Returns whether the next trial of a group may start; called again whenever a trial has
    ended. Trials that still wait when nothing is open are never started. If trials of one
    group wait for those of another, both groups must be open at the same time.
    """
    room: Callable[[str, Mapping[str, int]], bool] = lambda _, __: True
    """Returns whether another trial of a group may start, given the number of started and
    unfinished trials of each open group; called again whenever a trial makes progress or
    ends. Must return True if no trial is unfinished.
    """


class Engine(Generic[P]):
    """One run of a plan; used once."""

    def __init__(
        self,
        plan: Plan[P],
        executor: Executor[P],
        rules: Rules[P],
        observer: RunObserver,
        stop: Stop,
    ) -> None:
        self._plan = plan
        self._executor = executor
        self._rules = rules
        self._observer = observer
        self._stop = stop
        self._wake = asyncio.Event()
        self._crash: BaseException | None = None
        self._hurried = False
        self._over = False
        self._lines: list[Line[P]] = []
        self._queue = iter(plan.groups)
        self._tallies: dict[str, GroupCounts] = {}
        self._open: dict[asyncio.Task[TrialVerdict], Attempt[P]] = {}
        self._held = 0  # places reserved for trials that found no room
        self._starts = 0

    async def run(self) -> dict[str, GroupCounts]:
        """Run the plan, and return the counts of each group."""
        self._tell(RunStarted({group.name: group.size for group in self._plan.groups}))
        try:
            with self._stop.watched(self._wake.set):
                while self._advance():
                    await self._wake.wait()
                    self._wake.clear()
        finally:
            await self._leave()
        for group in self._queue:
            line = self._line(group)
            line.close()
            self._tallies[line.name] = line.tally()
        tallies = {group.name: self._tallies[group.name] for group in self._plan.groups}
        self._tell(RunEnded(tallies))
        return tallies

    def _advance(self) -> bool:
        """Do everything possible now; return False if there is nothing to wait for."""
        if self._crash is not None:
            raise self._crash
        if self._stop.asked:
            for line in self._lines:
                self._close(line)
        if self._stop.hurried and not self._hurried:
            self._hurried = True
            self._cancel_all()
        self._fill()
        if not self._can_change():
            for line in self._lines:
                self._close(line)
        while over := [line for line in self._lines if line.over]:
            for line in over:
                self._lines.remove(line)
                self._tallies[line.name] = line.tally()
                self._tell(GroupEnded(line.name, line.tally()))
            self._fill()
        return bool(self._lines)

    def _fill(self) -> None:
        while not self._stop.asked and len(self._lines) < self._rules.limits.max_groups:
            group = next(self._queue, None)
            if group is None:
                break
            self._lines.append(self._line(group))
            self._tell(GroupStarted(group.name, group.size))
        while ready := self._startable():
            # The group with the fewest open trials; among equals, the one that waited longest.
            line = min(ready, key=lambda one: (one.open, one.started))
            self._start(line, line.take())

    def _startable(self) -> list[Line[P]]:
        """Return the groups of which another trial may start now."""
        if not self._has_place():
            return []
        begun = {line.name: line.begun for line in self._lines}
        return [
            line for line in self._lines if line.ready and self._rules.room(line.name, begun)
        ]

    def _can_change(self) -> bool:
        """Return whether anything is running that could admit a waiting trial."""
        return bool(self._open) or any(line.rests or line.ready for line in self._lines)

    def _has_place(self) -> bool:
        taken = len(self._open) + self._held
        return taken < self._rules.limits.max_open and not self._stop.asked

    def _line(self, group: Group[P]) -> Line[P]:
        return Line(
            group,
            self._rules.done,
            lambda trial: self._tell(TrialSkipped(trial)),
            self._rules.admit,
        )

    def _start(self, line: Line[P], attempt: Attempt[P]) -> None:
        self._starts += 1
        attempt.started = line.started = self._starts
        line.open += 1
        self._tell(TrialStarted(attempt.trial, attempt.number))
        context = Context(
            attempt.number,
            attempt.spent + 1 >= self._rules.retries.attempts,
            partial(self._leaving, line),
            partial(self._progress, attempt.trial),
        )
        task = asyncio.create_task(self._executor.run(attempt.trial, context))
        self._open[task] = attempt
        task.add_done_callback(partial(self._finished, line))

    def _leaving(self, line: Line[P]) -> bool:
        return line.closed or self._stop.asked or self._over or self._crash is not None

    def _progress(self, trial: Trial[P], payload: Any) -> None:
        try:
            self._tell(TrialProgress(trial, payload))
            if self._startable():
                self._wake.set()  # there is more room than before
        except Exception as error:
            # This is not an error of the trial, and must not be classified as one.
            self._wake.set()
            raise Interrupted("the run is over: its listener raised") from error

    def _finished(self, line: Line[P], task: asyncio.Task[TrialVerdict]) -> None:
        attempt = self._open.pop(task)
        line.open -= 1
        self._guarded(self._settle, line, attempt, task)

    def _settle(
        self, line: Line[P], attempt: Attempt[P], task: asyncio.Task[TrialVerdict]
    ) -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or isinstance(error, Interrupted):
            self._interrupt(line, attempt.trial)
        elif isinstance(error, Exception):
            self._judge(line, attempt, self._rules.classify(error))
        elif error is not None:
            self._crash = self._crash or error
            self._interrupt(line, attempt.trial)
        else:
            self._judge(line, attempt, task.result())

    def _judge(
        self, line: Line[P], attempt: Attempt[P], found: TrialVerdict | GroupStop
    ) -> None:
        if isinstance(found, GroupStop):
            self._interrupt(line, attempt.trial)
            if line.stop is None:
                line.stop = found
                self._tell(GroupStopped(line.name, found))
                self._close(line)
            return
        if found.state is TrialState.INFRASTRUCTURE:
            spent = attempt.spent + (found.retry_after is None or self._is_oldest(attempt))
            if spent < self._rules.retries.attempts:
                if self._leaving(line):
                    self._interrupt(line, attempt.trial)
                else:
                    self._rest(line, attempt, spent, found)
                return
        line.count(found.state)
        self._tell(TrialEnded(attempt.trial, attempt.number, found))

    def _is_oldest(self, attempt: Attempt[P]) -> bool:
        return all(attempt.started < other.started for other in self._open.values())

    def _rest(
        self, line: Line[P], attempt: Attempt[P], spent: int, verdict: TrialVerdict
    ) -> None:
        wait = self._rules.retries.wait(attempt.trial.id, attempt.number)
        held = verdict.retry_after is not None
        if verdict.retry_after is not None:
            wait = max(wait, verdict.retry_after)
        line.count("retries")
        self._tell(TrialRetried(attempt.trial, attempt.number, wait, verdict))
        self._held += held
        task = asyncio.create_task(self._rules.sleep(wait))
        line.rests[task] = None
        again = Attempt(attempt.trial, attempt.number + 1, spent)
        task.add_done_callback(partial(self._rested, line, again, held))

    def _rested(
        self, line: Line[P], again: Attempt[P], held: bool, task: asyncio.Task[None]
    ) -> None:
        del line.rests[task]
        self._held -= held
        self._guarded(self._return, line, again, task)

    def _return(self, line: Line[P], again: Attempt[P], task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._leaving(line):
            self._interrupt(line, again.trial)
        else:
            task.result()
            line.due.append(again)

    def _close(self, line: Line[P]) -> None:
        """Start no more trials of a group; its open trials see that they should stop."""
        if line.closed:
            return
        line.close()
        for task in line.rests:
            task.cancel()
        while line.due:
            self._interrupt(line, line.due.popleft().trial)

    def _interrupt(self, line: Line[P], trial: Trial[P]) -> None:
        line.count("interrupted")
        self._tell(TrialInterrupted(trial))

    def _tell(self, event: Event) -> None:
        if self._crash is not None:
            return
        try:
            self._observer.on_event(event)
        except BaseException as error:
            self._crash = error
            raise

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function from the event loop, which would otherwise swallow its exceptions."""
        try:
            call(*arguments)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._crash = self._crash or error
        finally:
            self._wake.set()

    def _cancel_all(self) -> list[asyncio.Task[Any]]:
        tasks = [*self._open, *(task for line in self._lines for task in line.rests)]
        for task in tasks:
            task.cancel()
        return tasks

    async def _leave(self) -> None:
        """Cancel and await all open tasks, even if this task is cancelled again."""
        self._over = True
        cancelled = False
        while tasks := self._cancel_all():
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError


async def run_trials(
    plan: Plan[P],
    executor: Executor[P],
    rules: Rules[P] | None = None,
    *,
    observer: RunObserver = SILENT,
    stop: Stop | None = None,
) -> dict[str, GroupCounts]:
    """Run all trials of a plan, and return the counts of each group.

    Args:
        plan: The trials. Within a group, they start in order.
        executor: Runs one attempt of a trial.
        rules: Rules for scheduling, retries and classification.
        observer: Receives every event, in this thread and loop.
        stop: After the first request, nothing new starts and open trials stop when they can;
            after the second, they are cancelled.
    """
    return await Engine(plan, executor, rules or Rules(), observer, stop or Stop()).run()
