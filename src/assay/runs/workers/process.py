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
from assay.runs.workers.worker import WorkerSetup, WorkerTask
from assay.store.journal import read_journal
from assay.store.recorder import Recorder
from assay.types import ChatModel, ChatReply, ChatRequest

MAX_LOST_WORKERS: Final = 3
"""Number of workers that a trial may lose; it runs alone in the last one."""
IN_PROCESS_HINT: Final = 'or run in one process, with executor = "asyncio"'
_CHECK_S: Final = 0.5
"""Seconds between checks whether trials should stop."""
_GRACE_S: Final = 3.0
"""Seconds that a worker gets to close its resources."""


class WorkerAttempt:
    """One attempt at a trial, over all workers that run it."""

    def __init__(self, trial: Trial[Any], recorder: Recorder, context: Context) -> None:
        self.trial, self.recorder, self.context = trial, recorder, context
        self.result: asyncio.Future[tuple[float, TrialEnd | None, PackedError | None]]
        self._calls: list[tuple[Hashable, asyncio.Task[ChatReply]]] = []
        self._orphaned_calls: list[tuple[Hashable, asyncio.Task[ChatReply]]] = []

    def make_task(self, number: int) -> WorkerTask:
        """Return the task for a worker, which continues from the journal."""
        self.result = asyncio.get_running_loop().create_future()
        # Earlier workers requested these and died before they recorded the responses. A worker
        # that dies before it starts leaves those of its predecessor.
        self._orphaned_calls += self._calls
        self._calls = []
        recorded = read_journal(self.recorder.journal.path)
        is_new = not (recorded.calls or recorded.played)
        return WorkerTask(
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
            self._calls = [(key, call) for key, call in self._calls if not call.done()]
        return None

    def call_model(self, model: ChatModel, request: ChatRequest) -> "asyncio.Task[ChatReply]":
        """Call a model, or reuse an identical call of a worker that died."""
        key = (
            *(request.model, *(message.hash for message in request.messages)),
            *(request.tools.hash, request.temperature, request.max_tokens, request.seed),
        )
        orphan = next((pending for pending in self._orphaned_calls if pending[0] == key), None)
        if orphan is not None:
            self._orphaned_calls.remove(orphan)
        call = orphan[1] if orphan else asyncio.create_task(self._reply(model, request))
        self._calls.append((key, call))
        return call

    async def _reply(self, model: ChatModel, request: ChatRequest) -> ChatReply:
        if self.context.stopping:
            raise Interrupted
        return await model.reply(request)

    async def cancel_calls(self) -> None:
        """Cancel all calls."""
        calls = [call for _, call in (*self._calls, *self._orphaned_calls)]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


class WorkerDied(Exception):
    """The process that ran an attempt died."""

    def __init__(self, error: AssayError) -> None:
        super().__init__(str(error))
        self.error = error
        """Error to raise if the trial was alone in the worker and has used all its workers."""


class NoCapacity(Exception):
    """No capacity is left for another worker."""


class WorkerHost(Protocol):
    """Owner of a worker process, on this machine or on another."""

    async def wait_for_exit(self) -> int | str:
        """Return how the process ended; called after its connection is closed.

        This is the exit status as in `subprocess`. If it is unknown, it is a text that follows
        "a worker process".
        """
        ...

    async def kill(self) -> None:
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
        self.channel = Channel(self._on_worker_message, self.on_disconnect)
        self.channel.send("begin", setup)
        self._exited: asyncio.Future[None] = loop.create_future()
        self._kind, self._hang_s = kind, setup.hang_s
        self._on_message, self._failure = on_message, ""
        self._status: int | str = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._start_task(self._forward_stops())

    async def run(self, attempt_state: WorkerAttempt) -> TrialEnd:
        """Run one attempt to its end."""
        task = attempt_state.make_task(next(self._numbers))
        if self.is_gone:
            raise WorkerDied(WorkerLost("a worker process ended before its first trial"))
        self.open[task.number] = attempt_state
        self.channel.send("try", task)
        try:
            seconds, end, error = await attempt_state.result
        except asyncio.CancelledError:
            self.channel.send("cancel", task.number)
            raise
        finally:
            del self.open[task.number]
        attempt_state.recorder.seconds = seconds
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
                await asyncio.wait({self._exited}, timeout=_GRACE_S)
        finally:
            await self.host.kill()
            self.channel.close()
            for task in self._tasks:
                task.cancel()

    def reject(self, error: NoCapacity) -> None:
        """Mark the worker as gone because no capacity is left for it."""
        self.is_gone = self._closing = True
        self._fail_attempts(error, error)

    def on_disconnect(self) -> None:
        """Handle a closed connection: the process has ended, or is about to."""
        if not self.is_gone:
            self.is_gone = True
            self._start_task(self._handle_exit())

    def _on_worker_message(self, message: Any) -> None:
        match message:
            case ("line", number, body) if number in self.open:
                attempt_state = self.open[number]
                failed = attempt_state.write(body)
                self.channel.send("kept", number, attempt_state.context.stopping, failed)
            case ("ask", number, question, name, request) if number in self.open:
                call = self.open[number].call_model(self._kind.models[name], request)
                self._start_task(self._send_reply(question, call))
            case ("progress", number, payload) if number in self.open:
                # The engine has already recorded the exception of its observer, and stops all
                # trials.
                with suppress(Interrupted):
                    self.open[number].context.report_progress(payload)
            case ("end", number, seconds, end, error) if number in self.open:
                result = self.open[number].result
                if not result.done():
                    result.set_result((seconds, end, error))
            case ("notice", text):
                self._on_message(text)
            case ("failed", PackedError() as error):
                self._failure = f"{error.name}: {error.message}"
            case ("ready",):
                self.ready.set_result(None)

    async def _send_reply(self, question: int, call: "asyncio.Task[ChatReply]") -> None:
        try:
            reply, error = await asyncio.shield(call), None
        except asyncio.CancelledError:
            return  # the response is no longer needed
        except BaseException as raised:  # the attempt classifies it
            reply, error = None, pack_error(raised)
        if not self.is_gone:
            self.channel.send("answer", question, reply, error)

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward_stops(self) -> None:
        """Forward stop requests; trials that write few lines would not see them otherwise."""
        notified: set[int] = set()
        while not self.is_gone:
            await asyncio.sleep(_CHECK_S)
            for number, attempt_state in self.open.items():
                if number not in notified and attempt_state.context.stopping:
                    notified.add(number)
                    self.channel.send("stop", number)

    async def _handle_exit(self) -> None:
        """Find out how the process ended, and fail its open attempts."""
        self._status = await self.host.wait_for_exit()
        if not self._closing:
            self._on_message(
                f"a worker process {self._describe_exit()}; its {len(self.open)} open trials "
                "resume from their journals"
            )
        self._fail_attempts(
            UsageError(
                f"a worker process {self._describe_exit()}; fix this, {IN_PROCESS_HINT}"
            ),
            None,
        )

    def _fail_attempts(
        self, startup_error: Exception, capacity_error: NoCapacity | None
    ) -> None:
        if not self.ready.done():
            self.ready.set_exception(startup_error)
            self.ready.exception()  # only the first worker is awaited
        for attempt_state in self.open.values():
            if not attempt_state.result.done():
                attempt_state.result.set_exception(
                    capacity_error or WorkerDied(self._make_lost_error(attempt_state.trial))
                )
        if not self._exited.done():
            self._exited.set_result(None)

    def _describe_exit(self) -> str:
        """Return how the process ended, as a text that follows "a worker process"."""
        status = self._status
        if self._failure:
            return f"could not start: {self._failure}"
        if isinstance(status, str):
            return status
        if status == -signal.SIGALRM:
            return (
                f"blocked all Python threads for {self._hang_s:g} s and was ended: "
                "native code hangs"
            )
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"exited with status {status}"

    def _make_lost_error(self, trial: Trial[Any]) -> AssayError:
        message = (
            f"trial {trial.id} lost {MAX_LOST_WORKERS} worker processes, the last of them "
            f"while it ran alone, which {self._describe_exit()}"
        )
        if self._failure or isinstance(self._status, str):
            return WorkerLost(message)
        if self._status in (-signal.SIGKILL, -signal.SIGTERM):
            return WorkerLost(
                f"{message}; resume the run when the machine has enough resources"
            )
        return UserCodeError(message)
