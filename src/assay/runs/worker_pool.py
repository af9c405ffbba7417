"""The workers of a run, wherever they are, and which trial each of them gets.

A worker that dies costs its trials the turn in hand: they resume from their journals in
another one, and get the answers that were still on their way. Who ends three workers, the last
of them alone, is an error of the trial.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from assay.errors import UsageError, WorkerLost
from assay.traces.recorder import Recorder
from assay.trials import Context, Trial, TrialVerdict

from .attempts import attempt
from .kind import TrialEnd, TrialKind
from .worker_process import DEATHS, NoPlace, WorkerAttempt, WorkerDied, WorkerProcess

__all__ = ["MANY", "WorkerPool"]


MANY: Final = 1_000_000


async def _any_number() -> int:
    return MANY


class WorkerPool:
    """Starts workers when there is something to do for them, and tries trials in them."""

    def __init__(
        self,
        kind: TrialKind[Any],
        size: int,
        start_worker: Callable[[bool], Awaitable[WorkerProcess]],
        capacity: Callable[[], Awaitable[int]] = _any_number,
        *,
        each: int = MANY,
    ) -> None:
        """Starts nothing yet.

        Args:
            kind: What is tried.
            size: How many workers there are, at most.
            start_worker: Makes one; told whether it is beside the others, for one trial alone.
            capacity: How many there may be at this moment.
            each: Trials that one of them has open at once, at most.
        """
        self._kind, self._size, self._each = kind, size, each
        self._start_worker, self._capacity = start_worker, capacity
        self._workers: list[WorkerProcess] = []
        self._changed = asyncio.Condition()
        self._alone = asyncio.Semaphore(size)

    async def begin(self) -> None:
        """Find out that a worker can be started, before any trial is."""
        worker = await self._free()
        try:
            await worker.ready
        except NoPlace as error:
            raise UsageError(str(error)) from None

    @property
    def is_begun(self) -> bool:
        """Whether a worker is there."""
        return any(not worker.is_gone for worker in self._workers)

    @property
    def shared(self) -> int:
        """How many workers there are, or are waited for, beside those of one trial alone."""
        return sum(worker.is_shared and not worker.is_gone for worker in self._workers)

    async def close(self) -> None:
        """End all workers."""
        await asyncio.gather(*(worker.close() for worker in self._workers))

    async def start(self, trial: Trial[Any], path: Path, context: Context) -> TrialVerdict:
        """Run one attempt."""
        recorder = Recorder.open(
            path, lambda: self._kind.header(trial), resumes=self._kind.resumes(trial)
        )
        return await attempt(self._attempt, trial, recorder, context)

    async def _attempt(
        self, trial: Trial[Any], recorder: Recorder, context: Context
    ) -> TrialEnd:
        attempted = WorkerAttempt(trial, recorder, context)
        deaths = 0
        try:
            while deaths < DEATHS - 1:
                try:
                    return await self._run(await self._free(), attempted)
                except NoPlace as error:
                    self._make_do(error)
                except WorkerDied as died:
                    if not self._kind.resumes(trial):
                        # It is tried anew, with a journal that begins anew.
                        raise WorkerLost(str(died)) from None
                    deaths += 1
                context.check()
            async with self._alone:
                return await self._try_alone(attempted)
        finally:
            await attempted.leave()

    async def _try_alone(self, attempted: WorkerAttempt) -> TrialEnd:
        worker = await self._start_worker(True)
        self._workers.append(worker)
        worker.is_shared = False
        try:
            return await worker.run(attempted)
        except WorkerDied as died:
            raise died.error from None
        except NoPlace as error:
            raise WorkerLost(str(error)) from None
        finally:
            await worker.close()

    async def _free(self) -> WorkerProcess:
        """The worker with the least to do, or a new one; waits while all have enough."""
        async with self._changed:
            while True:
                self._workers = [worker for worker in self._workers if not worker.is_gone]
                shared = [worker for worker in self._workers if worker.is_shared]
                least = min(shared, key=lambda worker: len(worker.open), default=None)
                if least is None or (
                    least.open
                    and len(shared) < self._size
                    and len(shared) < await self._capacity()
                ):
                    least = await self._start_worker(False)
                    self._workers.append(least)
                if len(least.open) < self._each:
                    return least
                await self._changed.wait()

    async def _run(self, worker: WorkerProcess, attempted: WorkerAttempt) -> TrialEnd:
        try:
            return await worker.run(attempted)
        finally:
            async with self._changed:
                self._changed.notify_all()

    def _make_do(self, error: NoPlace) -> None:
        """Ask for no more workers than there is room for."""
        if not self.shared:
            raise WorkerLost(str(error))
        self._size = min(self._size, self.shared)
