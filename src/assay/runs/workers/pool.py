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

from assay.core.aio import count_usable_cpus
from assay.errors import UsageError, WorkerLost
from assay.runs.control import TrialVerdict
from assay.runs.engine import Context
from assay.runs.events import SILENT, RunObserver
from assay.runs.executors import StartAttempt, attempt
from assay.runs.kind import TrialEnd, TrialKind
from assay.runs.plan import Trial
from assay.runs.workers.channel import make_worker_command
from assay.runs.workers.process import (
    IN_PROCESS_HINT,
    MAX_LOST_WORKERS,
    NoCapacity,
    WorkerAttempt,
    WorkerDied,
    WorkerProcess,
)
from assay.runs.workers.worker import WorkerSetup
from assay.store.recorder import Recorder

UNLIMITED: Final = 1_000_000


async def _get_unlimited_capacity() -> int:
    return UNLIMITED


class WorkerPool:
    """Starts workers when they are needed, and runs trials in them."""

    def __init__(
        self,
        kind: TrialKind[Any],
        size: int,
        start_worker: Callable[[bool], Awaitable[WorkerProcess]],
        capacity: Callable[[], Awaitable[int]] = _get_unlimited_capacity,
        *,
        max_trials: int = UNLIMITED,
    ) -> None:
        """Store the settings; no worker is started yet.

        Args:
            kind: Kind of the trials.
            size: Maximum number of workers.
            start_worker: Starts a worker; the argument is True if it is an extra worker for a
                single trial.
            capacity: Returns the number of workers that can currently run.
            max_trials: Maximum number of open trials per worker.
        """
        self._kind, self._size, self._max_trials = kind, size, max_trials
        self._start_worker, self._capacity = start_worker, capacity
        self._workers: list[WorkerProcess] = []
        self._changed = asyncio.Condition()
        self._alone = asyncio.Semaphore(size)

    async def start_first(self) -> None:
        """Check that a worker can be started, before any trial starts."""
        worker = await self._find_free_worker()
        try:
            await worker.ready
        except NoCapacity as error:
            raise UsageError(str(error)) from None

    @property
    def has_worker(self) -> bool:
        """Whether there is a worker."""
        return any(not worker.is_gone for worker in self._workers)

    @property
    def shared_count(self) -> int:
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
        return await attempt(self._run_trial, trial, recorder, context)

    async def _run_trial(
        self, trial: Trial[Any], recorder: Recorder, context: Context
    ) -> TrialEnd:
        attempt_state = WorkerAttempt(trial, recorder, context)
        deaths = 0
        try:
            while deaths < MAX_LOST_WORKERS - 1:
                try:
                    return await self._run_in_worker(
                        await self._find_free_worker(), attempt_state
                    )
                except NoCapacity as error:
                    self._reduce_size(error)
                except WorkerDied as died:
                    if not self._kind.resumes(trial):
                        # The trial restarts with a new journal.
                        raise WorkerLost(str(died)) from None
                    deaths += 1
                context.check()
            async with self._alone:
                return await self._run_alone(attempt_state)
        finally:
            await attempt_state.cancel_calls()

    async def _run_alone(self, attempt_state: WorkerAttempt) -> TrialEnd:
        worker = await self._start_worker(True)
        self._workers.append(worker)
        worker.is_shared = False
        try:
            return await worker.run(attempt_state)
        except WorkerDied as died:
            raise died.error from None
        except NoCapacity as error:
            raise WorkerLost(str(error)) from None
        finally:
            await worker.close()

    async def _find_free_worker(self) -> WorkerProcess:
        """Return the least busy worker or a new one; wait while all are full."""
        async with self._changed:
            while True:
                self._workers = [worker for worker in self._workers if not worker.is_gone]
                shared_workers = [worker for worker in self._workers if worker.is_shared]
                least_busy = min(
                    shared_workers, key=lambda worker: len(worker.open), default=None
                )
                if least_busy is None or (
                    least_busy.open
                    and len(shared_workers) < self._size
                    and len(shared_workers) < await self._capacity()
                ):
                    least_busy = await self._start_worker(False)
                    self._workers.append(least_busy)
                if len(least_busy.open) < self._max_trials:
                    return least_busy
                await self._changed.wait()

    async def _run_in_worker(
        self, worker: WorkerProcess, attempt_state: WorkerAttempt
    ) -> TrialEnd:
        try:
            return await worker.run(attempt_state)
        finally:
            async with self._changed:
                self._changed.notify_all()

    def _reduce_size(self, error: NoCapacity) -> None:
        """Reduce the number of workers to those that there is room for."""
        if not self.shared_count:
            raise WorkerLost(str(error))
        self._size = min(self._size, self.shared_count)


class _Pickler(pickle.Pickler):
    """Rejects objects of `__main__`, which another process could not import."""

    def persistent_id(self, value: Any) -> None:
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__!r} is defined in the main program, not in a module"
            )


def pickle_for_worker(value: Any, description: str = "the run") -> bytes:
    """Pickle a value for a worker; raise UsageError if that is not possible."""
    file = BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as error:  # user-defined objects may raise anything
        raise UsageError(
            f"{description} cannot be sent to worker processes: {error}; put it into a file "
            f"and give its name, such as mine.py:act, {IN_PROCESS_HINT}"
        ) from error
    return file.getvalue()


class ProcessExecutor:
    """Runs attempts in worker processes, each with many open at once."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        withheld: Collection[str] = (),
        hang_s: float = 90.0,
        max_trials: int = UNLIMITED,
    ) -> None:
        """Store the settings; no worker is started yet.

        Args:
            workers: Maximum number of workers; None for one per usable CPU.
            withheld: Environment variables that workers do not get, because they contain keys.
            hang_s: Seconds without a running Python thread after which a worker ends.
            max_trials: Maximum number of open trials per worker.
        """
        self._workers = workers or count_usable_cpus()
        self._withheld, self._hang_s, self._max_trials = withheld, hang_s, max_trials

    @asynccontextmanager
    async def open(
        self, kind: TrialKind[Any], observer: RunObserver = SILENT
    ) -> AsyncIterator[StartAttempt]:
        """Start the first worker; others are started when they are needed."""
        environment = {
            name: value for name, value in os.environ.items() if name not in self._withheld
        }
        setup = make_worker_setup(kind, self._hang_s)

        async def start_worker(_: bool) -> WorkerProcess:
            worker = WorkerProcess(kind, setup, observer.on_message)
            worker.host = await _Child.start(worker, environment)
            return worker

        pool = WorkerPool(kind, self._workers, start_worker, max_trials=self._max_trials)
        try:
            await pool.start_first()
            yield pool.start
        finally:
            await pool.close()


def make_worker_setup(kind: TrialKind[Any], hang_s: float) -> WorkerSetup:
    """Return the setup for workers of a kind; the models stay in this process."""
    providers = {name: model.provider for name, model in kind.models.items()}
    return WorkerSetup(pickle_for_worker(kind), providers, hang_s)


class _Child:
    """Worker process that is a child of this process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @classmethod
    async def start(cls, worker: WorkerProcess, environment: dict[str, str]) -> "_Child":
        """Start a process and connect it; it becomes ready later."""
        try:
            own_end, worker_end = socket.socketpair()
            with worker_end:
                process = subprocess.Popen(
                    make_worker_command(sys.path, worker_end.fileno()),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(worker_end.fileno(),),
                    env=environment,
                    # Ctrl-C in a terminal is for the driver alone.
                    process_group=0,
                )
        except OSError as error:
            raise WorkerLost(f"cannot start a worker process: {error.strerror}") from error
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: worker.channel, sock=own_end)
        except BaseException:  # cancelled: no other code has the process
            own_end.close()
            process.kill()
            process.wait()
            raise
        return cls(process)

    async def wait_for_exit(self) -> int:
        """Return the exit status; kill the process if it does not end within a second."""
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            await self.kill()
            return self._process.returncode

    async def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
