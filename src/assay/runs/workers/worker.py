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

from assay.core.user_code import contained
from assay.runs.engine import Context
from assay.runs.kind import TrialKind
from assay.runs.plan import Trial
from assay.runs.workers.channel import Channel, PackedError, pack_error, unpack_error
from assay.store.journal import Journal
from assay.store.recorder import Recorder
from assay.store.records import SessionRecord
from assay.types import ChatModel, ChatReply, ChatRequest

_BEATS = 4
"""Number of times per `hang_s` that a worker resets its alarm."""
_DEATH_OF_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""


class WorkerSetup(NamedTuple):
    """Data that a worker receives before its first trial."""

    kind: bytes
    models: Mapping[str, str]
    """Providers of the driver's models, by model name."""
    hang_s: float
    """Seconds without a running Python thread after which it exits."""


class Task(NamedTuple):
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

    __slots__ = ("_number", "_send", "_sent", "_unkept")

    def __init__(self, path: Path, number: int, send: Callable[..., None]) -> None:
        super().__init__(path)
        self._number, self._send = number, send
        self._sent: deque[asyncio.Future[None]] = deque()
        self._unkept: list[asyncio.Future[None]] = []

    def append(self, body: bytes, flags: int = 0) -> None:
        """Send a line to the driver."""
        line: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent.append(line)
        self._unkept.append(line)
        self._send("line", self._number, body)

    def confirm(self, error: PackedError | None) -> None:
        """Mark the oldest sent line as written, or as failed with an error."""
        line = self._sent.popleft()
        if not line.done():
            line.set_exception(unpack_error(error)) if error else line.set_result(None)

    async def kept(self) -> None:
        """Wait until the driver has written all lines to disk."""
        lines, self._unkept = self._unkept, []
        for line in lines:
            await line


class _DriverModel:
    """A model of the driver, called on behalf of one attempt."""

    def __init__(
        self,
        name: str,
        provider: str,
        ask: Callable[[str, ChatRequest], "asyncio.Future[ChatReply]"],
    ) -> None:
        self.name, self.provider, self._ask = name, provider, ask

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Call the model through the driver."""
        return await self._ask(self.name, request)

    async def close(self) -> None:
        """Do nothing: the driver closes the model."""


class _Models(Mapping[str, ChatModel]):
    """Models of a kind; a model taken from here is bound to the current attempt."""

    def __init__(
        self,
        here: Mapping[str, ChatModel],
        there: Mapping[str, str],
        ask: Callable[[int, str, ChatRequest], "asyncio.Future[ChatReply]"],
    ) -> None:
        self._here, self._there, self._ask = here, there, ask

    def __getitem__(self, name: str) -> ChatModel:
        if name in self._here:
            return self._here[name]
        # A user's agent calls models from a thread, where the context variable is not set.
        number = _number.get()
        return _DriverModel(
            name, self._there[name], lambda name, request: self._ask(number, name, request)
        )

    def __iter__(self) -> Iterator[str]:
        return iter({**self._here, **self._there})

    def __len__(self) -> int:
        return len({**self._here, **self._there})


class _Worker:
    """State of a worker process."""

    _kind: TrialKind[Any]
    _channel: Channel

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._journals: dict[int, _SentJournal] = {}
        self._stopping: set[int] = set()
        self._answers: dict[int, asyncio.Future[ChatReply]] = {}
        self._questions = count()
        self._closing = asyncio.Event()

    async def run(self, connection: socket.socket) -> None:
        """Serve until the driver sends `close`."""
        loop = asyncio.get_running_loop()
        _, self._channel = await loop.create_connection(
            lambda: Channel(self._hear, lambda: os._exit(1)), sock=connection
        )

        def notice(text: str) -> None:
            loop.call_soon_threadsafe(self._channel.send, "notice", text)

        with contained(notice):
            await self._closing.wait()
            for task in self._tasks.values():
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks.values())
            await self._kind.close()
        # The last notices are still scheduled in the loop.
        await asyncio.sleep(0)
        self._channel.close()

    def _hear(self, message: Any) -> None:
        match message:
            case ("begin", WorkerSetup() as setup):
                self._begin(setup)
            case ("try", Task() as task):
                self._tasks[task.number] = asyncio.create_task(self._try(task))
            case ("kept", number, stopping, error):
                if number in self._journals:
                    if stopping:
                        self._stopping.add(number)
                    self._journals[number].confirm(error)
            case ("stop", number):
                if number in self._tasks:
                    self._stopping.add(number)
            case ("answer", question, reply, error):
                answer = self._answers.pop(question)
                if not answer.done():
                    answer.set_exception(unpack_error(error)) if error else answer.set_result(
                        reply
                    )
            case ("cancel", number):
                if number in self._tasks:
                    self._tasks[number].cancel()
            case ("close",):
                self._closing.set()

    def _begin(self, setup: WorkerSetup) -> None:
        try:
            kind = pickle.loads(setup.kind)
            kind.models = _Models(kind.models, setup.models, self._ask)
        except Exception as error:  # loading user files may raise anything
            self._channel.send("failed", pack_error(error))
            self._channel.close()
            return
        self._kind = kind
        threading.Thread(target=_beat, args=(setup.hang_s,), daemon=True).start()
        self._channel.send("ready")

    async def _try(self, task: Task) -> None:
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

    def _ask(self, number: int, name: str, request: ChatRequest) -> "asyncio.Future[ChatReply]":
        question = next(self._questions)
        answer: asyncio.Future[ChatReply] = asyncio.get_running_loop().create_future()
        self._answers[question] = answer
        self._channel.send("ask", number, question, name, request)
        return answer


def _beat(limit: float) -> None:
    """Keep postponing the alarm that ends the process.

    Native code that never returns and blocks all other threads cannot be stopped from within
    Python, but the alarm of the operating system stops it.
    """
    while True:
        signal.setitimer(signal.ITIMER_REAL, limit)
        time.sleep(limit / _BEATS)


def main(descriptor: int, parent: int | None = None) -> None:
    """Work for the driver at the other end of a socket, at most as long as `parent` lives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if parent is not None:
        _end_with(parent)
    asyncio.run(_serve(socket.socket(fileno=descriptor)))


def _end_with(parent: int) -> None:
    """Make Linux kill this process with its parent; elsewhere the lost connection ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


async def _serve(connection: socket.socket) -> None:
    await _Worker().run(connection)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of user code may never end, and must not keep the process alive.
    os._exit(0)
