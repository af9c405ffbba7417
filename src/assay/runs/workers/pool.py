"""Pool of workers, and the executor that runs attempts in local worker processes.

The driver is the process of the run. It keeps everything that must be in one place: journals,
models, keys, rate limits and budget.

If a worker dies, its trials lose at most the current turn: they resume from their journals in
another worker, and responses still in flight are reused. A trial that loses three workers, the
last of which ran it alone, ends with an error.
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
    """Starts workers when they are needed, and runs trials in them."""

    def __init__(
        self,
        kind: TrialKind[Any],
        size: int,
        start_worker: Callable[[bool], Awaitable[WorkerProcess]],
        capacity: Callable[[], Awaitable[int]] = _any_number,
        *,
        each: int = MANY,
    ) -> None:
        """Store the settings; no worker is started yet.

        Args:
            kind: Kind of the trials.
            size: Maximum number of workers.
            start_worker: Starts a worker; the argument is True if it is an extra worker for a
                single trial.
            capacity: Returns the number of workers that can currently run.
            each: Maximum number of open trials per worker.
        """
        self._kind, self._size, self._each = kind, size, each
        self._start_worker, self._capacity = start_worker, capacity
        self._workers: list[WorkerProcess] = []
        self._changed = asyncio.Condition()
        self._alone = asyncio.Semaphore(size)

    async def begin(self) -> None:
        """Check that a worker can be started, before any trial starts."""
        worker = await self._free()
        try:
            await worker.ready
        except NoPlace as error:
            raise UsageError(str(error)) from None

    @property
    def is_begun(self) -> bool:
        """Whether there is a worker."""
        return any(not worker.is_gone for worker in self._workers)

    @property
    def shared(self) -> int:
        """Number of running or starting workers, without those for a single trial."""
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
                        # The trial restarts with a new journal.
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
        """Return the least busy worker or a new one; wait while all are full."""
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
        """Reduce the number of workers to those that there is room for."""
        if not self.shared:
            raise WorkerLost(str(error))
        self._size = min(self._size, self.shared)


class _Pickler(pickle.Pickler):
    """Rejects objects of `__main__`, which another process could not import."""

    def persistent_id(self, value: Any) -> None:
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__!r} is in the program that is running, not in a module"
            )


def pickled(value: Any, what: str = "the run") -> bytes:
    """Pickle a value for a worker; raise UsageError if that is not possible."""
    file = BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as error:  # user-defined objects may raise anything
        raise UsageError(
            f"{what} cannot be sent to other processes: {error}; put it into a file and name "
            f"it, as mine.py:act, {OTHERWISE}"
        ) from error
    return file.getvalue()


class Processes:
    """Runs attempts in worker processes, each with many open at once."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        withheld: Collection[str] = (),
        hang_s: float = 90.0,
        each: int = MANY,
    ) -> None:
        """Store the settings; no worker is started yet.

        Args:
            workers: Maximum number of workers; None for one per usable CPU.
            withheld: Environment variables that workers do not get, because they contain keys.
            hang_s: Seconds without a running Python thread after which a worker ends.
            each: Maximum number of open trials per worker.
        """
        self._workers = workers or usable_cpus()
        self._withheld, self._hang_s, self._each = withheld, hang_s, each

    @asynccontextmanager
    async def open(
        self, kind: TrialKind[Any], observer: RunObserver = SILENT
    ) -> AsyncIterator[Start]:
        """Start the first worker; others are started when they are needed."""
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
    """Return the setup for workers of a kind; the models stay in this process."""
    providers = {name: model.provider for name, model in kind.models.items()}
    return WorkerSetup(pickled(kind), providers, hang_s)


class _Child:
    """Worker process that is a child of this process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @classmethod
    async def start(cls, worker: WorkerProcess, environment: dict[str, str]) -> "_Child":
        """Start a process and connect it; it becomes ready later."""
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
        except BaseException:  # cancelled: no other code has the process
            ours.close()
            process.kill()
            process.wait()
            raise
        return cls(process)

    async def ended(self) -> int:
        """Return the exit status; kill the process if it does not end within a second."""
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            await self.end()
            return self._process.returncode

    async def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
