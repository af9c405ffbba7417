"""Attempts in processes of their own, on this machine.

The driver, which is the process of the run, keeps what must be in one place: journals,
models, keys, pace and budget. A worker that dies costs its trials the turn in hand: they go
on from their journals in another one, and get the answers that were still on their way. Who
ends three workers, the last of them alone, is an error of the trial.
"""

import asyncio
import os
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from types import FunctionType
from typing import Any

from assay.errors import UsageError, WorkerLost
from assay.traces.recorder import Recorder
from assay.trials import Context, Trial, TrialVerdict

from .attempts import attempt
from .executors import Start
from .kind import TrialEnd, TrialKind
from .worker import WorkerSetup
from .worker_process import DEATHS, OTHERWISE, WorkerAttempt, WorkerDied, WorkerProcess

__all__ = ["Processes", "pickled"]


class _Pickler(pickle.Pickler):
    """Refuses what another process could not find again."""

    def persistent_id(self, value: Any) -> None:
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__!r} is in the program that is running, not in a module"
            )


def pickled(value: Any, what: str = "the run") -> bytes:
    """Something by pickle, as a worker can read it; UsageError if that cannot be."""
    file = BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as error:  # anybody's objects say it in their own ways
        raise UsageError(
            f"{what} cannot be sent to other processes: {error}; put it into a file and name "
            f"it, as mine.py:act, {OTHERWISE}"
        ) from error
    return file.getvalue()


def _usable_cpus() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Processes:
    """Runs attempts in workers, each of which has many open at once."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        withheld: Collection[str] = (),
        hang_s: float = 90.0,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Starts nothing yet.

        Args:
            workers: How many there are, at most; None for one per usable CPU.
            withheld: Environment variables that they do not get, because they hold keys.
            hang_s: Seconds after which a worker ends in which no thread of Python can run.
            notice: Who hears of lost workers and of what code of users prints.
        """
        self._workers = workers or _usable_cpus()
        self._withheld, self._hang_s, self._notice = withheld, hang_s, notice

    @asynccontextmanager
    async def open(self, kind: TrialKind[Any]) -> AsyncIterator[Start]:
        """Start the first worker; the others follow when there is something to do for them."""
        environment = {
            name: value for name, value in os.environ.items() if name not in self._withheld
        }
        providers = {name: model.provider for name, model in kind.models.items()}
        setup = WorkerSetup(pickled(kind), providers, self._hang_s)

        async def start_worker() -> WorkerProcess:
            return await WorkerProcess.start(kind, setup, environment, self._notice)

        pool = _Pool(kind, self._workers, start_worker)
        try:
            await pool.begin()
            yield pool.start
        finally:
            await pool.close()


class _Pool:
    """The workers of a run, and which trial goes where."""

    def __init__(
        self,
        kind: TrialKind[Any],
        size: int,
        start_worker: Callable[[], "Awaitable[WorkerProcess]"],
    ) -> None:
        self._kind, self._size, self._start_worker = kind, size, start_worker
        self._workers: list[WorkerProcess] = []
        self._starting = asyncio.Lock()
        self._alone = asyncio.Semaphore(size)

    async def begin(self) -> None:
        """Find out that a worker can be started, before any trial is."""
        worker = await self._free()
        await worker.ready

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
        try:
            for _ in range(DEATHS - 1):
                try:
                    return await (await self._free()).run(attempted)
                except WorkerDied as died:
                    if not self._kind.resumes(trial):
                        # It is tried anew, with a journal that begins anew.
                        raise WorkerLost(str(died)) from None
                context.check()
            async with self._alone:
                worker = await self._start_worker()
                self._workers.append(worker)
                worker.is_shared = False
                try:
                    return await worker.run(attempted)
                except WorkerDied as died:
                    raise died.error from None
                finally:
                    await worker.close()
        finally:
            await attempted.leave()

    async def _free(self) -> "WorkerProcess":
        """The worker with the least to do, or a new one."""
        async with self._starting:
            self._workers = [worker for worker in self._workers if not worker.is_gone]
            shared = [worker for worker in self._workers if worker.is_shared]
            least = min(shared, key=lambda worker: len(worker.open), default=None)
            if least is None or (least.open and len(shared) < self._size):
                least = await self._start_worker()
                self._workers.append(least)
            return least
