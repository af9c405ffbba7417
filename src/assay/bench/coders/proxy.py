"""Model server of one trial on a Unix socket, and the agents that reach it from a sandbox.

An agent calls the server with any protocol of `serving`, without a key. Each call goes through
`call_model` of the job, so that budget, rate limits, retries, journal and counts apply as to
every model call. When a limit is used up, or the model cannot be called, the agent gets an
error of its protocol, and `stopped` is set.

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

from assay.bench.base import AgentStop, CodingJob
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


class _AnyModelName(ModelTable):
    """Maps every name to the model of the arm, because agents use other names for it."""

    def require(self, name: str) -> None:
        """Accept every name."""


class ModelProxy:
    """Answers the calls of one agent, one at a time."""

    def __init__(self, job: CodingJob) -> None:
        self.usage, self.calls = Usage(), 0
        """Counted here, independent of the agent's own count."""
        self.stop: AgentStop | None = None
        """The limit that is used up, if any."""
        self.error: Exception | None = None
        """The error that prevented a call of the model, if any."""
        self.stopped = asyncio.Event()
        """Set when the agent gets no more answers."""
        self._job = job
        self._call_lock = asyncio.Lock()
        self._known_messages: dict[bytes, Message] = {}
        self._kept_bytes = 0
        self._ended = False
        self._open_calls: set[asyncio.Task[ChatReply]] = set()

    @asynccontextmanager
    async def serve_at(self, path: Path) -> AsyncIterator[None]:
        """Listen on a socket at a path until the block ends."""
        app = ModelApp(
            _AnyModelName({}),
            Faults(),
            ServingLimits(),
            ask=self._call_in_turn,
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
                    for task in self._open_calls:
                        task.cancel()

    async def _call_in_turn(self, parsed: "ParsedRequest") -> ChatReply:
        async with self._call_lock:
            self._check_limits()
            task = asyncio.ensure_future(self._call_model(parsed))
            self._open_calls.add(task)
            try:
                return await task
            except asyncio.CancelledError:
                raise ModelRejected("the trial has ended") from None
            finally:
                self._open_calls.discard(task)

    def _check_limits(self) -> None:
        """Raise ModelRejected if the trial has ended or a limit is used up."""
        if self._ended:
            raise ModelRejected("the trial has ended")
        if self.error is None and self.stop is None:
            self.stop = self._job.find_reached_limit()
            if self.calls >= self._job.max_turns:
                self.stop = self.stop or AgentStop.TURN_LIMIT
        if self.stop is not None:
            self.stopped.set()
            raise ModelRejected(f"the {self.stop.replace('_', ' ')} of this trial is used up")
        if self.error is not None:
            raise ModelRejected("the model is no longer available; this trial ends")

    async def _call_model(self, parsed: "ParsedRequest") -> ChatReply:
        assert self._job.call_model is not None, "an agent with a proxy has a model"
        _check_parts(parsed.request.messages)
        messages, last = self._reuse_known_messages(parsed.request.messages)
        try:
            reply = await self._job.call_model(messages, parsed.request.tools)
        except Exception as error:
            # The trial ends with this error, not with the agent's interpretation of it.
            self.error = error
            self.stopped.set()
            raise ModelRejected(f"the model call failed: {type(error).__name__}") from error
        self.calls += 1
        self.usage += reply.usage
        self._known_messages[_hash_message(last, reply.message)] = reply.message
        for call in reply.message.value.get("tool_calls") or ():
            function = call["function"]
            await self._job.record_action(f"{function['name']} {function['arguments']}", "")
        return reply

    def _reuse_known_messages(self, messages: Sequence[Message]) -> tuple[list[Message], bytes]:
        """Replace messages that were seen before at the same position by the same objects.

        An agent returns a reply in its protocol's form; the model must see its original reply.
        """
        reused, last = [], b""
        for message in messages:
            last = _hash_message(last, message)
            if last not in self._known_messages:
                self._kept_bytes += len(message.encoded)
                if self._kept_bytes > _MAX_BODIES:
                    raise ModelRejected(
                        "the messages of this trial are too large; at most "
                        f"{_MAX_BODIES} bytes of different messages are accepted"
                    )
            reused.append(self._known_messages.setdefault(last, message))
        return reused, last


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
                f"message part of type {shown(part.get('type'))} is not supported; use text, "
                "or images that the request contains as data:…"
            )


def _hash_message(before: bytes, message: Message) -> bytes:
    """Return a hash of a message and those before it, from fields that all protocols keep."""
    value = message.value
    calls = [
        [
            call.get("id"),
            call["function"]["name"],
            _parse_arguments(call["function"]["arguments"]),
        ]
        for call in value.get("tool_calls") or ()
    ]
    fields = [message.role, value.get("content") or "", calls, value.get("tool_call_id")]
    encoded = json.dumps(fields, sort_keys=True).encode()
    return blake2b(before + encoded, digest_size=16).digest()


def _parse_arguments(arguments: str) -> Any:
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


async def run_with_proxy(
    job: CodingJob, proxy: ModelProxy, program: AgentProgram
) -> CommandEnd | None:
    """Run an agent until it ends; return None if it kept running without further answers.

    Raises:
        Exception: The model could not be called; the exception from `call_model` of the job.
    """
    assert job.shared is not None, "an agent with a proxy has a shared folder"
    plan = {**asdict(program), "socket": f"{SHARED}/{_SOCKET}"}
    (job.shared / "plan.json").write_text(json.dumps(plan), "utf-8")
    (job.shared / "forwarder.py").write_bytes(_SCRIPT.read_bytes())
    command = Command(
        argv=(job.python, "-I", f"{SHARED}/forwarder.py", f"{SHARED}/plan.json"),
        timeout_s=job.timeout_s,
    )
    async with proxy.serve_at(job.shared / _SOCKET):
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
