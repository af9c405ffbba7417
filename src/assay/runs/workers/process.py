"""The driver's side of a worker: its process, and the attempts that it runs.

Journal lines from a worker are written here, and its model calls are made here. `worker` is
the other end.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from itertools import count
from typing import Any, Final, Protocol

from assay.errors import AssayError, UsageError, UserCodeError, WorkerLost
from assay.runs.control import Interrupted
from assay.runs.engine import Context
from assay.runs.kind import TrialEnd, TrialKind
from assay.runs.plan import Trial
from assay.runs.workers.channel import Channel, PackedError, pack_error, unpack_error
from assay.runs.workers.worker import Task, WorkerSetup
from assay.store.journal import read_journal
from assay.store.recorder import Recorder
from assay.types import ChatModel, ChatReply, ChatRequest

DEATHS: Final = 3
"""Number of workers that a trial may lose; it runs alone in the last one."""
OTHERWISE: Final = 'or play in one process, with executor = "asyncio"'
_LOOK_S: Final = 0.5
"""Seconds between checks whether trials should stop."""
_GRACE_S: Final = 3.0
"""Seconds that a worker gets to close its resources."""


class WorkerAttempt:
    """One attempt at a trial, over all workers that run it."""

    def __init__(self, trial: Trial[Any], recorder: Recorder, context: Context) -> None:
        self.trial, self.recorder, self.context = trial, recorder, context
        self.ended: asyncio.Future[tuple[float, TrialEnd | None, PackedError | None]]
        self._asked: list[tuple[Hashable, asyncio.Task[ChatReply]]] = []
        self._of_lost_workers: list[tuple[Hashable, asyncio.Task[ChatReply]]] = []

    def begin(self, number: int) -> Task:
        """Return the task for a worker, which continues from the journal."""
        self.ended = asyncio.get_running_loop().create_future()
        # Earlier workers requested these and died before they recorded the responses. A worker
        # that dies before it starts leaves those of its predecessor.
        self._of_lost_workers += self._asked
        self._asked = []
        recorded = read_journal(self.recorder.journal.path)
        is_new = not (recorded.calls or recorded.played)
        return Task(
            number,
            self.trial,
            self.recorder.journal.path,
            None if is_new else recorded,
            self.context.attempt,
            self.context.last,
        )

    def write(self, body: bytes) -> PackedError | None:
        """Write a journal line, and return the error if that fails."""
        try:
            self.recorder.journal.append(body)
        except AssayError as error:
            return pack_error(error)
        if body.startswith(b'{"kind":"call"'):
            self._asked = [(key, call) for key, call in self._asked if not call.done()]
        return None

    def ask(self, model: ChatModel, request: ChatRequest) -> "asyncio.Task[ChatReply]":
        """Call a model, or reuse an identical call of a worker that died."""
        key = (
            *(request.model, *(message.hash for message in request.messages)),
            *(request.tools.hash, request.temperature, request.max_tokens, request.seed),
        )
        known = next((asked for asked in self._of_lost_workers if asked[0] == key), None)
        if known is not None:
            self._of_lost_workers.remove(known)
        call = known[1] if known else asyncio.create_task(self._reply(model, request))
        self._asked.append((key, call))
        return call

    async def _reply(self, model: ChatModel, request: ChatRequest) -> ChatReply:
        if self.context.stopping:
            raise Interrupted
        return await model.reply(request)

    async def leave(self) -> None:
        """Cancel all calls."""
        calls = [call for _, call in (*self._asked, *self._of_lost_workers)]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


class WorkerDied(Exception):
    """The process that ran an attempt died."""

    def __init__(self, error: AssayError) -> None:
        super().__init__(str(error))
        self.error = error
        """Error to raise if the trial was alone in the worker and has used all its workers."""


class NoPlace(Exception):
    """There is no room for another worker."""


class WorkerHost(Protocol):
    """Owner of a worker process, on this machine or on another."""

    async def ended(self) -> int | str:
        """Return how the process ended; called after its connection is closed.

        This is the exit status as in `subprocess`. If it is unknown, it is a text that follows
        "a worker process".
        """
        ...

    async def end(self) -> None:
        """Kill the process."""
        ...


class WorkerProcess:
    """A worker, as seen by the driver."""

    _numbers = count(1)
    host: WorkerHost

    def __init__(
        self, kind: TrialKind[Any], setup: WorkerSetup, on_message: Callable[[str], None]
    ) -> None:
        """Create a worker; the caller sets its host and connects its channel."""
        self.open: dict[int, WorkerAttempt] = {}
        self.is_shared = True
        self.is_gone = False
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.channel = Channel(self._hear, self.lost)
        self.channel.send("begin", setup)
        self._gone: asyncio.Future[None] = loop.create_future()
        self._kind, self._hang_s = kind, setup.hang_s
        self._on_message, self._failure = on_message, ""
        self._status: int | str = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._begin(self._tell_stops())

    async def run(self, attempted: WorkerAttempt) -> TrialEnd:
        """Run one attempt to its end."""
        task = attempted.begin(next(self._numbers))
        if self.is_gone:
            raise WorkerDied(WorkerLost("a worker process ended before its first trial"))
        self.open[task.number] = attempted
        self.channel.send("try", task)
        try:
            seconds, end, error = await attempted.ended
        except asyncio.CancelledError:
            self.channel.send("cancel", task.number)
            raise
        finally:
            del self.open[task.number]
        attempted.recorder.seconds = seconds
        if error is not None:
            raise unpack_error(error)
        assert end is not None
        return end

    async def close(self) -> None:
        """End the process, gracefully if possible."""
        self._closing = True
        try:
            if not self.is_gone:
                self.channel.send("close")
                await asyncio.wait({self._gone}, timeout=_GRACE_S)
        finally:
            await self.host.end()
            self.channel.close()
            for task in self._tasks:
                task.cancel()

    def refuse(self, error: NoPlace) -> None:
        """Mark the worker as gone because there is no room for it."""
        self.is_gone = self._closing = True
        self._settle(error, error)

    def lost(self) -> None:
        """Handle a closed connection: the process has ended, or is about to."""
        if not self.is_gone:
            self.is_gone = True
            self._begin(self._find_out())

    def _hear(self, message: Any) -> None:
        match message:
            case ("line", number, body) if number in self.open:
                attempted = self.open[number]
                failed = attempted.write(body)
                self.channel.send("kept", number, attempted.context.stopping, failed)
            case ("ask", number, question, name, request) if number in self.open:
                call = self.open[number].ask(self._kind.models[name], request)
                self._begin(self._answer(question, call))
            case ("progress", number, payload) if number in self.open:
                # The engine has already recorded the exception of its observer, and stops all
                # trials.
                with suppress(Interrupted):
                    self.open[number].context.progress(payload)
            case ("end", number, seconds, end, error) if number in self.open:
                ended = self.open[number].ended
                if not ended.done():
                    ended.set_result((seconds, end, error))
            case ("notice", text):
                self._on_message(text)
            case ("failed", PackedError() as error):
                self._failure = f"{error.name}: {error.message}"
            case ("ready",):
                self.ready.set_result(None)

    async def _answer(self, question: int, call: "asyncio.Task[ChatReply]") -> None:
        try:
            reply, error = await asyncio.shield(call), None
        except asyncio.CancelledError:
            return  # the response is no longer needed
        except BaseException as raised:  # the attempt classifies it
            reply, error = None, pack_error(raised)
        if not self.is_gone:
            self.channel.send("answer", question, reply, error)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell_stops(self) -> None:
        """Forward stop requests; trials that write few lines would not see them otherwise."""
        told: set[int] = set()
        while not self.is_gone:
            await asyncio.sleep(_LOOK_S)
            for number, attempted in self.open.items():
                if number not in told and attempted.context.stopping:
                    told.add(number)
                    self.channel.send("stop", number)

    async def _find_out(self) -> None:
        """Find out how the process ended, and fail its open attempts."""
        self._status = await self.host.ended()
        if not self._closing:
            self._on_message(
                f"a worker process {self._how()}; its {len(self.open)} open trials resume from "
                "their journals"
            )
        self._settle(
            UsageError(f"a worker process {self._how()}; mend that, {OTHERWISE}"), None
        )

    def _settle(self, unready: Exception, unplaced: NoPlace | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(unready)
            self.ready.exception()  # only the first worker is awaited
        for attempted in self.open.values():
            if not attempted.ended.done():
                attempted.ended.set_exception(
                    unplaced or WorkerDied(self._blame(attempted.trial))
                )
        if not self._gone.done():
            self._gone.set_result(None)

    def _how(self) -> str:
        """Return how the process ended, as a text that follows "a worker process"."""
        status = self._status
        if self._failure:
            return f"could not start: {self._failure}"
        if isinstance(status, str):
            return status
        if status == -signal.SIGALRM:
            return (
                f"did not let any thread of Python run for {self._hang_s:g} s, and was ended: "
                "native code hangs"
            )
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended itself with status {status}"

    def _blame(self, trial: Trial[Any]) -> AssayError:
        words = (
            f"trial {trial.id} lost {DEATHS} worker processes, and was alone in the last one, "
            f"which {self._how()}"
        )
        if self._failure or isinstance(self._status, str):
            return WorkerLost(words)
        if self._status in (-signal.SIGKILL, -signal.SIGTERM):
            return WorkerLost(f"{words}; resume the run once the machine has room for it")
        return UserCodeError(words)
