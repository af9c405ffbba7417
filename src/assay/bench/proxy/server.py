"""A server of one trial's model, on a Unix socket that its sandbox has.

An agent asks it by any protocol of `serving`, with no key. Each call goes through `ask` of the
job: budget, pace, retries, journal and counts are those of every call of assay. When a limit is
used up, or the model cannot be asked, the agent is told so in the words of its protocol, and
`stopped` is set.

Whatever model, settings or tools of the provider an agent names, it gets the model of its arm,
with the settings of its trial. The provider is asked to fetch nothing on behalf of an agent:
parts of messages are text, or pictures that the request itself holds.

How an agent of somebody else runs in a sandbox: below a forwarder that reaches its model.

The forwarder is a script of the standard library alone. It listens on a port of 127.0.0.1 in
the sandbox, sends all that comes there to the socket of the proxy, and starts the agent as its
child; its exit code is that of the agent.
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
from assay.core.hosting import in_loop, listening_at, make_server
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
"""Bytes of a request: agents send all of their history every time."""
_MAX_BODIES: Final = 128 << 20
"""Bytes of all requests that are open, and of all messages that are kept for a trial."""


class _AnyName(ModelTable):
    """Every name means the model of the arm: agents have names of their own for it."""

    def require(self, name: str) -> None:
        """Take it."""


class ModelProxy:
    """Answers the calls of one agent, one at a time."""

    def __init__(self, job: CodingJob) -> None:
        self.usage, self.calls = Usage(), 0
        """What was counted here, whatever the agent says."""
        self.stop: CoderStop | None = None
        """The limit that is used up, if one is."""
        self.error: Exception | None = None
        """Why the model could not be asked, if it could not."""
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
        """Listen on a socket at a path, for as long as the block takes."""
        app = ModelApp(
            _AnyName({}),
            Faults(),
            ServingLimits(),
            ask=self._ask,
            max_body=_MAX_BODY,
            max_bodies=_MAX_BODIES,
        )
        with listening_at(path) as listener:
            # The user of a sandbox may be another one; its folder lets nobody else in.
            path.chmod(0o666)
            server = make_server(app, http=AbortableHttp)
            async with in_loop(server, listener):
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
        """Refuse a call that is one too many, or comes too late."""
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
            # Whatever it is, the trial ends with it, and not the agent with a guess.
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
        """The messages, those that were seen at their place before as the same objects.

        A reply comes back as its protocol tells it; what the model is shown is its own words.
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
    """Refuse parts for which a provider would fetch an address or open a stored file."""
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
    """What stands for a message after others: a hash of what every protocol tells of it."""
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
"""How long an agent may take to end when it gets no more answers."""
_SCRIPT: Final = Path(__file__).with_name("forwarder.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """What is started in the sandbox; `@PORT@` stands for the port of the model."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files to write first, by their paths in the sandbox."""
    stdin: str = ""


async def forwarded(
    job: CodingJob, proxy: ModelProxy, program: AgentProgram
) -> CommandEnd | None:
    """Run an agent to its end; None if it did not end when it got no more answers.

    Raises:
        Exception: The model could not be asked; whatever `ask` of the job raised.
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
