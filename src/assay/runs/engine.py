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
from assay.runs.plan import Admission, Group, GroupCounts, GroupQueue, Plan, Trial, TrialAttempt
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
    should_stop: Callable[[], bool] = lambda: False
    report: Callable[[Any], None] = lambda _: None

    @property
    def stopping(self) -> bool:
        """Whether the trial should finish its current work and return."""
        return self.should_stop()

    def check(self) -> None:
        """Raise Interrupted if the trial should stop; call it where no work is lost."""
        if self.should_stop():
            raise Interrupted("stopped on request; the trial can be resumed")

    def report_progress(self, payload: Any) -> None:
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
        """Run the trial by awaiting the coroutine given at construction."""
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
        self._has_cancelled = False
        self._is_ending = False
        self._queues: list[GroupQueue[P]] = []
        self._waiting_groups = iter(plan.groups)
        self._counts: dict[str, GroupCounts] = {}
        self._open: dict[asyncio.Task[TrialVerdict], TrialAttempt[P]] = {}
        self._reserved = 0  # places reserved for trials that found no room
        self._start_count = 0

    async def run(self) -> dict[str, GroupCounts]:
        """Run the plan, and return the counts of each group."""
        self._emit(RunStarted({group.name: group.size for group in self._plan.groups}))
        try:
            with self._stop.watch(self._wake.set):
                while self._advance():
                    await self._wake.wait()
                    self._wake.clear()
        finally:
            await self._cancel_and_wait()
        for group in self._waiting_groups:
            queue = self._make_queue(group)
            queue.close()
            self._counts[queue.name] = queue.tally()
        tallies = {group.name: self._counts[group.name] for group in self._plan.groups}
        self._emit(RunEnded(tallies))
        return tallies

    def _advance(self) -> bool:
        """Do everything possible now; return False if there is nothing to wait for."""
        if self._crash is not None:
            raise self._crash
        if self._stop.is_requested:
            for queue in self._queues:
                self._close(queue)
        if self._stop.should_cancel and not self._has_cancelled:
            self._has_cancelled = True
            self._cancel_all()
        self._start_ready_trials()
        if not self._can_change():
            for queue in self._queues:
                self._close(queue)
        while ended := [queue for queue in self._queues if queue.is_over]:
            for queue in ended:
                self._queues.remove(queue)
                self._counts[queue.name] = queue.tally()
                self._emit(GroupEnded(queue.name, queue.tally()))
            self._start_ready_trials()
        return bool(self._queues)

    def _start_ready_trials(self) -> None:
        while not self._stop.is_requested and len(self._queues) < self._rules.limits.max_groups:
            group = next(self._waiting_groups, None)
            if group is None:
                break
            self._queues.append(self._make_queue(group))
            self._emit(GroupStarted(group.name, group.size))
        while startable := self._find_startable():
            # The group with the fewest open trials; among equals, the one that waited longest.
            queue = min(startable, key=lambda candidate: (candidate.open, candidate.started))
            self._start(queue, queue.take_next())

    def _find_startable(self) -> list[GroupQueue[P]]:
        """Return the groups of which another trial may start now."""
        if not self._has_capacity():
            return []
        unfinished = {queue.name: queue.unfinished for queue in self._queues}
        return [
            queue
            for queue in self._queues
            if queue.is_ready and self._rules.room(queue.name, unfinished)
        ]

    def _can_change(self) -> bool:
        """Return whether anything is running that could admit a waiting trial."""
        return bool(self._open) or any(queue.waits or queue.is_ready for queue in self._queues)

    def _has_capacity(self) -> bool:
        used = len(self._open) + self._reserved
        return used < self._rules.limits.max_open and not self._stop.is_requested

    def _make_queue(self, group: Group[P]) -> GroupQueue[P]:
        return GroupQueue(
            group,
            self._rules.done,
            lambda trial: self._emit(TrialSkipped(trial)),
            self._rules.admit,
        )

    def _start(self, queue: GroupQueue[P], attempt: TrialAttempt[P]) -> None:
        self._start_count += 1
        attempt.started = queue.started = self._start_count
        queue.open += 1
        self._emit(TrialStarted(attempt.trial, attempt.number))
        context = Context(
            attempt.number,
            attempt.spent + 1 >= self._rules.retries.attempts,
            partial(self._should_stop, queue),
            partial(self._on_progress, attempt.trial),
        )
        task = asyncio.create_task(self._executor.run(attempt.trial, context))
        self._open[task] = attempt
        task.add_done_callback(partial(self._on_task_done, queue))

    def _should_stop(self, queue: GroupQueue[P]) -> bool:
        return (
            queue.closed
            or self._stop.is_requested
            or self._is_ending
            or self._crash is not None
        )

    def _on_progress(self, trial: Trial[P], payload: Any) -> None:
        try:
            self._emit(TrialProgress(trial, payload))
            if self._find_startable():
                self._wake.set()  # there is more room than before
        except Exception as error:
            # This is not an error of the trial, and must not be classified as one.
            self._wake.set()
            raise Interrupted("the run ends: its observer raised an exception") from error

    def _on_task_done(self, queue: GroupQueue[P], task: asyncio.Task[TrialVerdict]) -> None:
        attempt = self._open.pop(task)
        queue.open -= 1
        self._call_guarded(self._handle_result, queue, attempt, task)

    def _handle_result(
        self, queue: GroupQueue[P], attempt: TrialAttempt[P], task: asyncio.Task[TrialVerdict]
    ) -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or isinstance(error, Interrupted):
            self._mark_interrupted(queue, attempt.trial)
        elif isinstance(error, Exception):
            self._apply_verdict(queue, attempt, self._rules.classify(error))
        elif error is not None:
            self._crash = self._crash or error
            self._mark_interrupted(queue, attempt.trial)
        else:
            self._apply_verdict(queue, attempt, task.result())

    def _apply_verdict(
        self, queue: GroupQueue[P], attempt: TrialAttempt[P], verdict: TrialVerdict | GroupStop
    ) -> None:
        if isinstance(verdict, GroupStop):
            self._mark_interrupted(queue, attempt.trial)
            if queue.stop is None:
                queue.stop = verdict
                self._emit(GroupStopped(queue.name, verdict))
                self._close(queue)
            return
        if verdict.state is TrialState.INFRASTRUCTURE:
            spent = attempt.spent + (verdict.retry_after is None or self._is_oldest(attempt))
            if spent < self._rules.retries.attempts:
                if self._should_stop(queue):
                    self._mark_interrupted(queue, attempt.trial)
                else:
                    self._schedule_retry(queue, attempt, spent, verdict)
                return
        queue.count(verdict.state)
        self._emit(TrialEnded(attempt.trial, attempt.number, verdict))

    def _is_oldest(self, attempt: TrialAttempt[P]) -> bool:
        return all(attempt.started < other.started for other in self._open.values())

    def _schedule_retry(
        self, queue: GroupQueue[P], attempt: TrialAttempt[P], spent: int, verdict: TrialVerdict
    ) -> None:
        wait = self._rules.retries.wait(attempt.trial.id, attempt.number)
        reserves_place = verdict.retry_after is not None
        if verdict.retry_after is not None:
            wait = max(wait, verdict.retry_after)
        queue.count("retries")
        self._emit(TrialRetried(attempt.trial, attempt.number, wait, verdict))
        self._reserved += reserves_place
        task = asyncio.create_task(self._rules.sleep(wait))
        queue.waits[task] = None
        next_attempt = TrialAttempt(attempt.trial, attempt.number + 1, spent)
        task.add_done_callback(partial(self._on_wait_over, queue, next_attempt, reserves_place))

    def _on_wait_over(
        self,
        queue: GroupQueue[P],
        next_attempt: TrialAttempt[P],
        reserves_place: bool,
        task: asyncio.Task[None],
    ) -> None:
        del queue.waits[task]
        self._reserved -= reserves_place
        self._call_guarded(self._requeue, queue, next_attempt, task)

    def _requeue(
        self, queue: GroupQueue[P], next_attempt: TrialAttempt[P], task: asyncio.Task[None]
    ) -> None:
        if task.cancelled() or self._should_stop(queue):
            self._mark_interrupted(queue, next_attempt.trial)
        else:
            task.result()
            queue.due.append(next_attempt)

    def _close(self, queue: GroupQueue[P]) -> None:
        """Start no more trials of a group; its open trials see that they should stop."""
        if queue.closed:
            return
        queue.close()
        for task in queue.waits:
            task.cancel()
        while queue.due:
            self._mark_interrupted(queue, queue.due.popleft().trial)

    def _mark_interrupted(self, queue: GroupQueue[P], trial: Trial[P]) -> None:
        queue.count("interrupted")
        self._emit(TrialInterrupted(trial))

    def _emit(self, event: Event) -> None:
        if self._crash is not None:
            return
        try:
            self._observer.on_event(event)
        except BaseException as error:
            self._crash = error
            raise

    def _call_guarded(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function from the event loop, which would otherwise swallow its exceptions."""
        try:
            function(*arguments)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._crash = self._crash or error
        finally:
            self._wake.set()

    def _cancel_all(self) -> list[asyncio.Task[Any]]:
        tasks = [*self._open, *(task for queue in self._queues for task in queue.waits)]
        for task in tasks:
            task.cancel()
        return tasks

    async def _cancel_and_wait(self) -> None:
        """Cancel and await all open tasks, even if this task is cancelled again."""
        self._is_ending = True
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
