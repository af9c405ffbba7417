"""The engine: one loop that starts trials, and callbacks that judge how they ended.

What it starts it awaits, whatever happens. A trial that fails is counted; an exception of
the observer, the plan or the classifier is a broken program, and ends the run.

The door to the engine.

Where the body of a trial runs: in this event loop, or wherever another executor puts it.

An executor runs one attempt of one trial and knows nothing of queues, limits and retries.
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
    """What an attempt knows of the run it is part of."""

    attempt: int = 1
    """Counted from 1."""
    last: bool = True
    """Whether an infrastructure error of this attempt is final."""
    asked_to_stop: Callable[[], bool] = lambda: False
    report: Callable[[Any], None] = lambda _: None

    @property
    def stopping(self) -> bool:
        """Whether the trial is to finish what it has in hand and leave."""
        return self.asked_to_stop()

    def check(self) -> None:
        """Raise Interrupted if the trial is to leave; call it where that loses nothing."""
        if self.asked_to_stop():
            raise Interrupted("asked to stop; resume goes on from here")

    def progress(self, payload: Any) -> None:
        """Tell the listeners of the run how the trial goes."""
        self.report(payload)


class Executor(Protocol[P_contra]):
    """Runs attempts; many may be open at once."""

    async def run(self, trial: Trial[P_contra], context: Context) -> TrialVerdict:
        """Run one attempt to its end.

        Raises Interrupted when it leaves without one. Other exceptions are sorted by whoever
        called. Once cancelled, it holds nothing any more when it returns.
        """
        ...


Body: TypeAlias = Callable[[Trial[P], Context], Awaitable[TrialVerdict]]
"""What one attempt of a trial does."""


class AsyncioExecutor(Generic[P]):
    """Runs bodies as tasks of the running event loop; they must not block it."""

    def __init__(self, body: Body[P]) -> None:
        self._body = body

    async def run(self, trial: Trial[P], context: Context) -> TrialVerdict:
        """Await the body."""
        return await self._body(trial, context)


Sleep: TypeAlias = Callable[[float], Coroutine[Any, Any, None]]
"""Waits for so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Generic[P]):
    """How the engine schedules, retries and classifies trials."""

    limits: Limits = Limits()
    retries: Retries = Retries()
    """When a trial is tried again. While it waits, others may take its place."""
    classify: Callable[[Exception], TrialVerdict | GroupStop] = classify_error
    """Classifies what the executor raises. Never sees Interrupted or a cancellation."""
    sleep: Sleep = asyncio.sleep
    """Waits between attempts."""
    done: Callable[[str], bool] = lambda _: False
    """Returns whether the trial with this id needs no more work."""
    admit: Callable[[Trial[P]], Admission] = lambda _: Admission.NOW
    """Returns whether the next trial of a group may start; called again whenever a trial has
    ended. Trials that wait for others while nothing is open are not started. If trials of one
    group wait for those of another, both groups must be open at once."""
    room: Callable[[str, Mapping[str, int]], bool] = lambda _, __: True
    """Returns whether another trial of a group may start, given how many trials of each open
    group are begun and have not ended; called again whenever one makes progress or ends. There
    is room where nothing is begun."""


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
        self._held = 0  # places kept for trials that found no room
        self._starts = 0

    async def run(self) -> dict[str, GroupCounts]:
        """Work off the plan; the counts of each group."""
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
        """Do all that can be done at this moment; False once there is nothing to wait for."""
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
            # The one with the least share; among equals, the one that has waited longest.
            line = min(ready, key=lambda one: (one.open, one.started))
            self._start(line, line.take())

    def _startable(self) -> list[Line[P]]:
        """The groups of which another trial may start at this moment."""
        if not self._has_place():
            return []
        begun = {line.name: line.begun for line in self._lines}
        return [
            line for line in self._lines if line.ready and self._rules.room(line.name, begun)
        ]

    def _can_change(self) -> bool:
        """Whether anything is going on that could admit a trial that waits for it."""
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
                self._wake.set()  # there is more room than there was
        except Exception as error:
            # The body is not to blame, and must not take it for an error of its own.
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
        """Let nothing more of a group start; what is open is asked to leave."""
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
        """Call from the event loop, which would swallow what is raised."""
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
        """Cancel and await all that is open; a second cancellation does not cut that short."""
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
    """Run all trials of a plan; return, for each group, how they ended.

    Args:
        plan: The trials. Within a group, they start in order.
        executor: Runs one attempt of a trial.
        rules: How trials are scheduled, retried and classified.
        observer: Receives every event, in this thread and loop.
        stop: Asked once, open trials leave when they can and nothing new starts; asked
            twice, they are cancelled.
    """
    return await Engine(plan, executor, rules or Rules(), observer, stop or Stop()).run()
