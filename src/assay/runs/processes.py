"""Attempts in processes of their own, on this machine.

The driver, which is the process of the run, keeps what must be in one place: journals,
models, keys, pace and budget.
"""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from io import BytesIO
from types import FunctionType
from typing import Any

from assay.errors import UsageError, WorkerLost

from .executors import Start
from .kind import TrialKind
from .worker import WorkerSetup
from .worker_command import program
from .worker_pool import MANY, WorkerPool
from .worker_process import OTHERWISE, WorkerProcess

__all__ = ["Processes", "pickled", "setup_of"]


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
        each: int = MANY,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Starts nothing yet.

        Args:
            workers: How many there are, at most; None for one per usable CPU.
            withheld: Environment variables that they do not get, because they hold keys.
            hang_s: Seconds after which a worker ends in which no thread of Python can run.
            each: Trials that one worker has open at once, at most.
            notice: Who hears of lost workers and of what code of users prints.
        """
        self._workers = workers or _usable_cpus()
        self._withheld, self._hang_s, self._notice = withheld, hang_s, notice
        self._each = each

    @asynccontextmanager
    async def open(self, kind: TrialKind[Any]) -> AsyncIterator[Start]:
        """Start the first worker; the others follow when there is something to do for them."""
        environment = {
            name: value for name, value in os.environ.items() if name not in self._withheld
        }
        setup = setup_of(kind, self._hang_s)

        async def start_worker(_: bool) -> WorkerProcess:
            worker = WorkerProcess(kind, setup, self._notice)
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
