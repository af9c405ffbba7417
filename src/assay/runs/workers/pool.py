"""Attempts in processes of their own, on this machine.

The driver, which is the process of the run, keeps what must be in one place: journals,
models, keys, pace and budget.

The workers of a run, wherever they are, and which trial each of them gets.

A worker that dies costs its trials the turn in hand: they resume from their journals in
another one, and get the answers that were still on their way. Who ends three workers, the last
of them alone, is an error of the trial.
"""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from assay.core.aio import usable_cpus
from assay.errors import UsageError, WorkerLost
from assay.runs.control import TrialVerdict
from assay.runs.engine import Context
from assay.runs.events import SILENT, RunObserver
from assay.runs.executors import Start, attempt
from assay.runs.kind import TrialEnd, TrialKind
from assay.runs.plan import Trial
from assay.runs.workers.channel import program
from assay.runs.workers.process import (
    DEATHS,
    OTHERWISE,
    NoPlace,
    WorkerAttempt,
    WorkerDied,
    WorkerProcess,
)
from assay.runs.workers.worker import WorkerSetup
from assay.store.recorder import Recorder

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


class Processes:
    """Runs attempts in workers, each of which has many open at once."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        withheld: Collection[str] = (),
        hang_s: float = 90.0,
        each: int = MANY,
    ) -> None:
        """Starts nothing yet.

        Args:
            workers: How many there are, at most; None for one per usable CPU.
            withheld: Environment variables that they do not get, because they hold keys.
            hang_s: Seconds after which a worker ends in which no thread of Python can run.
            each: Trials that one worker has open at once, at most.
        """
        self._workers = workers or usable_cpus()
        self._withheld, self._hang_s, self._each = withheld, hang_s, each

    @asynccontextmanager
    async def open(
        self, kind: TrialKind[Any], observer: RunObserver = SILENT
    ) -> AsyncIterator[Start]:
        """Start the first worker; the others follow when there is something to do for them."""
        environment = {
            name: value for name, value in os.environ.items() if name not in self._withheld
        }
        setup = setup_of(kind, self._hang_s)

        async def start_worker(_: bool) -> WorkerProcess:
            worker = WorkerProcess(kind, setup, observer.on_message)
            worker.host = await _Child.start(worker, environment)
            return worker

        pool = WorkerPool(kind, self._workers, start_worker, each=self._each)
        try:
            await pool.begin()
            yield pool.start
        finally:
            await pool.close()


def setup_of(kind: TrialKind[Any], hang_s: float) -> WorkerSetup:
    """What a worker needs before its first trial of a kind; the models stay here."""
    providers = {name: model.provider for name, model in kind.models.items()}
    return WorkerSetup(pickled(kind), providers, hang_s)


class _Child:
    """The process of a worker, as a child of this one."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @classmethod
    async def start(cls, worker: WorkerProcess, environment: dict[str, str]) -> "_Child":
        """Start a process and connect it; it is ready some time later."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(
                    program(sys.path, theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=environment,
                    # Ctrl-C in a terminal is for the driver alone.
                    process_group=0,
                )
        except OSError as error:
            raise WorkerLost(f"cannot start a worker process: {error.strerror}") from error
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: worker.channel, sock=ours)
        except BaseException:  # cancelled: nobody else knows of it
            ours.close()
            process.kill()
            process.wait()
            raise
        return cls(process)

    async def ended(self) -> int:
        """Its status; it ends with its connection, or is ended a second later."""
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            await self.end()
            return self._process.returncode

    async def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
