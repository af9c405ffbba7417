"""Model server of one trial on a Unix socket, and the agents that reach it from a sandbox.

An agent calls the server with any protocol of `serving`, without a key. Each call goes through
`ask` of the job, so that budget, rate limits, retries, journal and counts apply as to every
model call. When a limit is used up, or the model cannot be called, the agent gets an error of
its protocol, and `stopped` is set.

An agent may request any model, settings or provider tools; it always gets the model of its arm
with the settings of its trial. The provider must not fetch anything for an agent: parts of
messages are text, or images contained in the request.

The agent runs as a child of a forwarder, a script that needs only the standard library. The
forwarder listens on a port of 127.0.0.1 in the sandbox and forwards connections to the socket;
its exit code is the agent's.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.bench.base import CoderStop, CodingJob
from assay.core.hosting import make_server, open_unix_listener, serve_in_loop
from assay.core.text import shown
from assay.errors import ModelRejected
from assay.models.serving.answers import AbortableHttp
from assay.models.serving.app import ModelApp, ModelTable
from assay.models.serving.faults import Faults, ServingLimits
from assay.sandboxes.base import SHARED, Command, CommandEnd
from assay.types import ChatReply, Message, Usage

if TYPE_CHECKING:
    from assay.models.serving.chat_wire import ParsedRequest

_MAX_BODY: Final = 64 << 20
"""Size limit of a request; agents send their whole history every time."""
_MAX_BODIES: Final = 128 << 20
"""Size limit of all open requests, and of all messages kept for a trial."""


class _AnyName(ModelTable):
    """Maps every name to the model of the arm, because agents use other names for it."""

    def require(self, name: str) -> None:
        """Accept every name."""


class ModelProxy:
    """Answers the calls of one agent, one at a time."""

    def __init__(self, job: CodingJob) -> None:
        self.usage, self.calls = Usage(), 0
        """Counted here, independent of the agent's own count."""
        self.stop: CoderStop | None = None
        """The limit that is used up, if any."""
        self.error: Exception | None = None
        """The error that prevented a call of the model, if any."""
        self.stopped = asyncio.Event()
        """Set when the agent gets no more answers."""
        self._job = job
        self._turn = asyncio.Lock()
        self._known: dict[bytes, Message] = {}
        self._kept = 0
        self._ended = False
        self._open: set[asyncio.Task[ChatReply]] = set()

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        """Listen on a socket at a path until the block ends."""
        app = ModelApp(
            _AnyName({}),
            Faults(),
            ServingLimits(),
            ask=self._ask,
            max_body=_MAX_BODY,
            max_bodies=_MAX_BODIES,
        )
        with open_unix_listener(path) as listener:
            # The sandbox may have another user; the folder of the socket is not open to others.
            path.chmod(0o666)
            server = make_server(app, http=AbortableHttp)
            async with serve_in_loop(server, listener):
                try:
                    yield
                finally:
                    self._ended = True
                    app.close()
                    for task in self._open:
                        task.cancel()

    async def _ask(self, question: "ParsedRequest") -> ChatReply:
        async with self._turn:
            self._check()
            task = asyncio.ensure_future(self._asked(question))
            self._open.add(task)
            try:
                return await task
            except asyncio.CancelledError:
                raise ModelRejected("the trial has ended") from None
            finally:
                self._open.discard(task)

    def _check(self) -> None:
        """Raise ModelRejected if the trial has ended or a limit is used up."""
        if self._ended:
            raise ModelRejected("the trial has ended")
        if self.error is None and self.stop is None:
            self.stop = self._job.spent()
            if self.calls >= self._job.max_turns:
                self.stop = self.stop or CoderStop.TURN_LIMIT
        if self.stop is not None:
            self.stopped.set()
            raise ModelRejected(f"the {self.stop.replace('_', ' ')} of this trial is used up")
        if self.error is not None:
            raise ModelRejected("the model cannot be asked any more; this trial ends")

    async def _asked(self, question: "ParsedRequest") -> ChatReply:
        assert self._job.ask is not None, "an agent with a proxy has a model"
        _check_parts(question.request.messages)
        messages, last = self._recognized(question.request.messages)
        try:
            reply = await self._job.ask(messages, question.request.tools)
        except Exception as error:
            # The trial ends with this error, not with the agent's interpretation of it.
            self.error = error
            self.stopped.set()
            raise ModelRejected(f"the model cannot be asked: {type(error).__name__}") from error
        self.calls += 1
        self.usage += reply.usage
        self._known[_chained(last, reply.message)] = reply.message
        for call in reply.message.value.get("tool_calls") or ():
            function = call["function"]
            await self._job.acted(f"{function['name']} {function['arguments']}", "")
        return reply

    def _recognized(self, messages: Sequence[Message]) -> tuple[list[Message], bytes]:
        """Replace messages that were seen before at the same position by the same objects.

        An agent returns a reply in its protocol's form; the model must see its original reply.
        """
        found, last = [], b""
        for message in messages:
            last = _chained(last, message)
            if last not in self._known:
                self._kept += len(message.encoded)
                if self._kept > _MAX_BODIES:
                    raise ModelRejected(
                        "the messages of this trial are too large; at most "
                        f"{_MAX_BODIES} bytes of different messages are taken"
                    )
            found.append(self._known.setdefault(last, message))
        return found, last


def _check_parts(messages: Sequence[Message]) -> None:
    """Raise ModelRejected for parts that make a provider fetch a URL or open a stored file."""
    for message in messages:
        content = message.value.get("content")
        for part in content if isinstance(content, list) else ():
            match part:
                case {"type": "text" | "refusal"}:
                    continue
                case {"type": "image_url", "image_url": {"url": str(url)}}:
                    if url.startswith("data:"):
                        continue
            raise ModelRejected(
                "parts of a message are text, or pictures that the request itself holds as "
                f"data:…; one of type {shown(part.get('type'))} refers to something else"
            )


def _chained(before: bytes, message: Message) -> bytes:
    """Return a hash of a message and those before it, from fields that all protocols keep."""
    value = message.value
    calls = [
        [call.get("id"), call["function"]["name"], _parsed(call["function"]["arguments"])]
        for call in value.get("tool_calls") or ()
    ]
    essence = [message.role, value.get("content") or "", calls, value.get("tool_call_id")]
    told = json.dumps(essence, sort_keys=True).encode()
    return blake2b(before + told, digest_size=16).digest()


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


_SOCKET: Final = "model.sock"
_GRACE_S: Final = 10.0
"""Seconds for an agent to end after it gets no more answers."""
_SCRIPT: Final = Path(__file__).with_name("forwarder.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """Program to start in the sandbox; `@PORT@` is replaced by the port of the model."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files to write first, by path in the sandbox."""
    stdin: str = ""


async def forwarded(
    job: CodingJob, proxy: ModelProxy, program: AgentProgram
) -> CommandEnd | None:
    """Run an agent until it ends; return None if it kept running without further answers.

    Raises:
        Exception: The model could not be called; the exception from `ask` of the job.
    """
    assert job.shared is not None, "an agent with a proxy has a shared folder"
    plan = {**asdict(program), "socket": f"{SHARED}/{_SOCKET}"}
    (job.shared / "plan.json").write_text(json.dumps(plan), "utf-8")
    (job.shared / "forwarder.py").write_bytes(_SCRIPT.read_bytes())
    command = Command(
        argv=(job.python, "-I", f"{SHARED}/forwarder.py", f"{SHARED}/plan.json"),
        timeout_s=job.timeout_s,
    )
    async with proxy.serving(job.shared / _SOCKET):
        running = asyncio.ensure_future(job.sandbox.run(command))
        stopped = asyncio.ensure_future(proxy.stopped.wait())
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait({running}, timeout=_GRACE_S)
        finally:
            ended = running.done()
            for task in (running, stopped):
                task.cancel()
            await asyncio.wait({running, stopped})
    if proxy.error is not None:
        raise proxy.error
    return running.result() if ended else None
