"""Worker process that runs trials for a driver, many at once in one event loop.

It writes no files: each journal line is sent to the driver, and the trial continues after the
driver has written it to disk. Models that are not in the worker are called through the driver.
The worker exits when the driver exits, or when user code blocks the interpreter for too long.
"""

import asyncio
import ctypes
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from assay.core.user_code import contain_user_code
from assay.runs.engine import Context
from assay.runs.kind import TrialKind
from assay.runs.plan import Trial
from assay.runs.workers.channel import Channel, PackedError, pack_error, unpack_error
from assay.store.journal import Journal
from assay.store.recorder import Recorder
from assay.store.records import SessionRecord
from assay.types import ChatModel, ChatReply, ChatRequest

_RESETS_PER_LIMIT = 4
"""Number of times per `hang_s` that a worker resets its alarm."""
_PR_SET_PDEATHSIG = 1
"""PR_SET_PDEATHSIG of Linux."""


class WorkerSetup(NamedTuple):
    """Data that a worker receives before its first trial."""

    kind: bytes
    models: Mapping[str, str]
    """Providers of the driver's models, by model name."""
    hang_s: float
    """Seconds without a running Python thread after which it exits."""


class WorkerTask(NamedTuple):
    """One attempt at a trial."""

    number: int
    """Number of this attempt, unique within the run."""
    trial: Trial[Any]
    journal: Path
    recorded: SessionRecord | None
    attempt: int
    last: bool


_number: ContextVar[int] = ContextVar("number")
"""Number of the attempt that an asyncio task belongs to."""


class _SentJournal(Journal):
    """A journal whose lines are written by the driver."""

    __slots__ = ("_number", "_send", "_sent", "_unconfirmed")

    def __init__(self, path: Path, number: int, send: Callable[..., None]) -> None:
        super().__init__(path)
        self._number, self._send = number, send
        self._sent: deque[asyncio.Future[None]] = deque()
        self._unconfirmed: list[asyncio.Future[None]] = []

    def append(self, body: bytes, flags: int = 0) -> None:
        """Send a line to the driver."""
        line: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent.append(line)
        self._unconfirmed.append(line)
        self._send("line", self._number, body)

    def confirm(self, error: PackedError | None) -> None:
        """Mark the oldest sent line as written, or as failed with an error."""
        line = self._sent.popleft()
        if not line.done():
            line.set_exception(unpack_error(error)) if error else line.set_result(None)

    async def wait_until_written(self) -> None:
        """Wait until the driver has written all lines to disk."""
        lines, self._unconfirmed = self._unconfirmed, []
        for line in lines:
            await line


class _DriverModel:
    """A model of the driver, called on behalf of one attempt."""

    def __init__(
        self,
        name: str,
        provider: str,
        call: Callable[[str, ChatRequest], "asyncio.Future[ChatReply]"],
    ) -> None:
        self.name, self.provider, self._call_driver_model = name, provider, call

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Call the model through the driver."""
        return await self._call_driver_model(self.name, request)

    async def close(self) -> None:
        """Do nothing: the driver closes the model."""


class _Models(Mapping[str, ChatModel]):
    """Models of a kind; a model taken from here is bound to the current attempt."""

    def __init__(
        self,
        local: Mapping[str, ChatModel],
        remote: Mapping[str, str],
        call: Callable[[int, str, ChatRequest], "asyncio.Future[ChatReply]"],
    ) -> None:
        self._local, self._remote, self._call_driver_model = local, remote, call

    def __getitem__(self, name: str) -> ChatModel:
        if name in self._local:
            return self._local[name]
        # A user's agent calls models from a thread, where the context variable is not set.
        number = _number.get()
        return _DriverModel(
            name,
            self._remote[name],
            lambda name, request: self._call_driver_model(number, name, request),
        )

    def __iter__(self) -> Iterator[str]:
        return iter({**self._local, **self._remote})

    def __len__(self) -> int:
        return len({**self._local, **self._remote})


class _Worker:
    """State of a worker process."""

    _kind: TrialKind[Any]
    _channel: Channel

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._journals: dict[int, _SentJournal] = {}
        self._stopping: set[int] = set()
        self._replies: dict[int, asyncio.Future[ChatReply]] = {}
        self._request_numbers = count()
        self._closing = asyncio.Event()

    async def run(self, connection: socket.socket) -> None:
        """Serve until the driver sends `close`."""
        loop = asyncio.get_running_loop()
        _, self._channel = await loop.create_connection(
            lambda: Channel(self._on_driver_message, lambda: os._exit(1)), sock=connection
        )

        def send_notice(text: str) -> None:
            loop.call_soon_threadsafe(self._channel.send, "notice", text)

        with contain_user_code(send_notice):
            await self._closing.wait()
            for task in self._tasks.values():
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks.values())
            await self._kind.close()
        # The last notices are still scheduled in the loop.
        await asyncio.sleep(0)
        self._channel.close()

    def _on_driver_message(self, message: Any) -> None:
        match message:
            case ("begin", WorkerSetup() as setup):
                self._load_kind(setup)
            case ("try", WorkerTask() as task):
                self._tasks[task.number] = asyncio.create_task(self._run_task(task))
            case ("kept", number, stopping, error):
                if number in self._journals:
                    if stopping:
                        self._stopping.add(number)
                    self._journals[number].confirm(error)
            case ("stop", number):
                if number in self._tasks:
                    self._stopping.add(number)
            case ("answer", request_number, reply, error):
                future = self._replies.pop(request_number)
                if not future.done():
                    future.set_exception(unpack_error(error)) if error else future.set_result(
                        reply
                    )
            case ("cancel", number):
                if number in self._tasks:
                    self._tasks[number].cancel()
            case ("close",):
                self._closing.set()

    def _load_kind(self, setup: WorkerSetup) -> None:
        try:
            kind = pickle.loads(setup.kind)
            kind.models = _Models(kind.models, setup.models, self._call_driver_model)
        except Exception as error:  # loading user files may raise anything
            self._channel.send("failed", pack_error(error))
            self._channel.close()
            return
        self._kind = kind
        threading.Thread(target=_reset_alarm_forever, args=(setup.hang_s,), daemon=True).start()
        self._channel.send("ready")

    async def _run_task(self, task: WorkerTask) -> None:
        number, send = task.number, self._channel.send
        _number.set(number)
        self._journals[number] = journal = _SentJournal(task.journal, number, send)
        recorder = Recorder(journal, task.recorded)
        context = Context(
            task.attempt,
            task.last,
            lambda: number in self._stopping,
            lambda payload: send("progress", number, payload),
        )
        try:
            end = await self._kind.attempt(task.trial, recorder, context)
            send("end", number, recorder.seconds, end, None)
        except asyncio.CancelledError:
            pass  # the driver requested this, and does not wait
        except BaseException as error:  # the driver classifies it
            send("end", number, recorder.seconds, None, pack_error(error))
        finally:
            del self._tasks[number], self._journals[number]
            self._stopping.discard(number)

    def _call_driver_model(
        self, number: int, name: str, request: ChatRequest
    ) -> "asyncio.Future[ChatReply]":
        request_number = next(self._request_numbers)
        future: asyncio.Future[ChatReply] = asyncio.get_running_loop().create_future()
        self._replies[request_number] = future
        self._channel.send("ask", number, request_number, name, request)
        return future


def _reset_alarm_forever(limit: float) -> None:
    """Keep postponing the alarm that ends the process.

    Native code that never returns and blocks all other threads cannot be stopped from within
    Python, but the alarm of the operating system stops it.
    """
    while True:
        signal.setitimer(signal.ITIMER_REAL, limit)
        time.sleep(limit / _RESETS_PER_LIMIT)


def main(descriptor: int, parent: int | None = None) -> None:
    """Work for the driver at the other end of a socket, at most as long as `parent` lives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if parent is not None:
        _exit_with_parent(parent)
    asyncio.run(_serve(socket.socket(fileno=descriptor)))


def _exit_with_parent(parent: int) -> None:
    """Make Linux kill this process with its parent; elsewhere the lost connection ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


async def _serve(connection: socket.socket) -> None:
    await _Worker().run(connection)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of user code may never end, and must not keep the process alive.
    os._exit(0)
