"""The routes as an ASGI application: bodies in, models asked, answers and faults out.

All wire protocols are read into the same `Question` and written from the same `ChatReply`.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from assay.core.canonical_json import canonical_json
from assay.core.hosting import (
    HostSettings,
    Server,
    address_of,
    in_thread,
    listening,
    make_server,
)
from assay.core.http import Abandoned, BodyRoom, Guard, whole_body
from assay.core.refusal import Refusal
from assay.core.text import unknown_name
from assay.errors import ModelRejected, RequestTooLarge, UsageError
from assay.models.serving.answers import (
    CuttableHttp,
    ErrorShape,
    ModelAnswer,
    Pauses,
    broken,
    events,
    failed,
    failure,
    json_answer,
    reshaped,
    send_answer,
    send_cut,
    too_much,
)
from assay.models.serving.chat_wire import (
    BadRequest,
    Question,
    as_asked,
    completion,
    error_body,
    read_request,
)
from assay.models.serving.faults import (
    Fate,
    Faults,
    Gate,
    Outcome,
    ServedFault,
    ServingLimits,
    Stats,
    TooMuch,
    fate_of,
)
from assay.models.serving.messages_wire import (
    message_answer,
    message_error,
    message_events,
    read_message_request,
)
from assay.models.serving.responses_wire import read_response_request, response, response_events
from assay.models.serving.scripted import read_scripts
from assay.types import ChatModel, ChatReply, ChatRequest, Usage

_MAX_NAME = 200


class ModelTable:
    """Models by name, which may come and go; a model may have several names."""

    def __init__(self, models: Mapping[str, ChatModel]) -> None:
        self._models = models

    @classmethod
    def with_aliases(
        cls,
        models: Mapping[str, ChatModel],
        aliases: Mapping[str, str],
        script: Path | None = None,
    ) -> "ModelTable":
        """Return the models, and one that works by a script if there is a file of scripts.

        Some have further names: `aliases` gives the model of each.
        """
        own = dict(models)
        if script is not None:
            scripted = read_scripts(script)
            own[scripted.name] = scripted
        named = dict(own)
        for name, target in aliases.items():
            if not name or len(name) > _MAX_NAME or not name.isprintable():
                raise UsageError(
                    f"alias {name!r} is not allowed; give 1 to {_MAX_NAME} printable characters"
                )
            if name in own:
                raise UsageError(f"alias {name!r} is the name of a built-in model already")
            if target not in own:
                raise UsageError(unknown_name("built-in model", target, own))
            named[name] = own[target]
        return cls(named)

    @property
    def names(self) -> Iterable[str]:
        """All names, in order."""
        return self._models.keys()

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def provider(self, name: str) -> str:
        """Who is behind a name."""
        return self._models[name].provider

    def require(self, name: str) -> None:
        """Refuse a name that no model has."""
        if name not in self._models:
            # The search for a near name takes long where this one is long.
            shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}..."
            raise ModelRejected(unknown_name("model", shown, self._models))

    async def answer(self, request: ChatRequest) -> ChatReply:
        """What the model answers that the request names."""
        return await self._models[request.model].reply(request)


class _Whole(Protocol):
    def __call__(
        self, reply: ChatReply, question: Question, *, id: str, created: int
    ) -> bytes: ...


class _Streamed(Protocol):
    def __call__(
        self, reply: ChatReply, question: Question, *, id: str, created: int
    ) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class WireProtocol:
    """One way to ask a model over HTTP."""

    path: str
    id_prefix: str
    read: Callable[[bytes], Question]
    """What a body asks; raises BadRequest."""
    whole: _Whole
    streamed: _Streamed
    error: ErrorShape

    def answer(
        self, reply: ChatReply, question: Question, name: str, headers: Mapping[str, str]
    ) -> ModelAnswer:
        """A reply as it is sent; `name` is what its id is made of."""
        id, created = f"{self.id_prefix}{name}", int(time.time())
        if question.stream:
            parts = tuple(self.streamed(reply, question, id=id, created=created))
            return ModelAnswer(200, parts, headers, stream=True)
        body = self.whole(reply, question, id=id, created=created)
        return json_answer(body, 200, headers)


PROTOCOLS: Final[Mapping[str, WireProtocol]] = {
    protocol.path: protocol
    for protocol in (
        WireProtocol(
            "/v1/chat/completions", "chatcmpl-", read_request, completion, events, error_body
        ),
        WireProtocol(
            "/v1/responses",
            "resp_",
            read_response_request,
            response,
            response_events,
            error_body,
        ),
        WireProtocol(
            "/v1/messages",
            "msg_",
            read_message_request,
            message_answer,
            message_events,
            message_error,
        ),
    )
}
"""By their paths."""

MAX_BODY: Final = 8 << 20
"""A request may have this many bytes, unless a server says so."""
_LARGE: Final = 256 << 10
_LARGE_AT_ONCE: Final = 32
"""So many large bodies are read at once; the next ones wait."""
_MAX_BODIES: Final = _LARGE_AT_ONCE * MAX_BODY
"""All open requests may have this many bytes together, unless a server says so."""
_VALUE_BYTES: Final = 32
"""What a small value of JSON takes beyond its text; `[],[],…` takes 35 times its length."""
_MODELS: Final = "/v1/models"
_METHODS: Final = {
    **dict.fromkeys(PROTOCOLS, "POST"),
    _MODELS: "GET",
    "/stats": "GET",
    "/stats/reset": "POST",
    "/health": "GET",
}
_log: Final = logging.getLogger(__name__)


class _ServedCall(NamedTuple):
    """A call that was let in, with its answer ready; the request itself is held no longer."""

    ticket: int
    request: bytes
    due: float
    answer: ModelAnswer
    outcome: Outcome
    usage: Usage
    draw: int
    """A random number, for where an answer is cut off."""


class ModelApp:
    """An ASGI application that serves the models of a table.

    Args:
        table: The models.
        faults: What goes wrong on purpose.
        limits: How much is answered at once.
        ask: Who answers; by default the models of the table, whose replies are given the shape
            that the question demands.
        max_body: A request may have this many bytes.
        max_bodies: All open requests may have this many bytes together, also those that wait
            for the answer of a model.
    """

    def __init__(
        self,
        table: ModelTable,
        faults: Faults,
        limits: ServingLimits,
        ask: Callable[[Question], Awaitable[ChatReply]] | None = None,
        max_body: int = MAX_BODY,
        max_bodies: int = _MAX_BODIES,
    ) -> None:
        self._max_body = max_body
        self._room = BodyRoom(max_bodies)
        self._models, self._faults = table, faults
        self._ask = ask or self._scripted
        self._gate = Gate(limits)
        self._pauses = Pauses()
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.stats = Stats()

    def close(self) -> None:
        """Let no call wait any longer."""
        self._pauses.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ModelAnswer a request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["path"] in PROTOCOLS and scope["method"] == "POST":
            await self._chat(PROTOCOLS[scope["path"]], scope, receive, send)
        else:
            await send_answer(self._look(scope["path"], scope["method"]), send)

    def _look(self, path: str, method: str) -> ModelAnswer:
        """The answer of every route but those that ask a model."""
        named = path.removeprefix(f"{_MODELS}/")
        allowed = "GET" if named != path else _METHODS.get(path)
        if allowed is None:
            routes = ", ".join(_METHODS)
            return failed(404, f"there is nothing at this path; there is: {routes}")
        if method != allowed and (method, allowed) != ("HEAD", "GET"):
            message = f"this path takes {allowed} only"
            return failed(405, message, headers={"allow": allowed})
        match path:
            case "/health":
                return json_answer(canonical_json({"status": "ok"}))
            case "/stats":
                return json_answer(canonical_json(self.stats.told()))
            case "/stats/reset":
                self.stats.reset()
                return json_answer(canonical_json(self.stats.told()))
            case "/v1/models":
                rows = [self._row(name) for name in self._models.names]
                return json_answer(canonical_json({"object": "list", "data": rows}))
        try:
            self._models.require(named)
        except ModelRejected as error:
            return failed(404, str(error), code="model_not_found", param="model")
        return json_answer(canonical_json(self._row(named)))

    def _row(self, name: str) -> dict[str, object]:
        owner = self._models.provider(name)
        return {"id": name, "object": "model", "created": 0, "owned_by": owner}

    async def _chat(
        self, protocol: WireProtocol, scope: Scope, receive: Receive, send: Send
    ) -> None:
        with self._room.share() as take:
            call = await self._admit(protocol, Request(scope, receive), take)
        if isinstance(call, ModelAnswer):
            await send_answer(call, send)
            return
        outcome = Outcome.ENDING
        try:
            if await self._pauses.until(call.due):
                outcome = call.outcome
        finally:
            # Before it is sent: who has an answer and asks again must find room.
            self._gate.leave(call.ticket)
            self.stats.end(call.request, outcome, call.usage)
        if outcome is Outcome.ENDING:
            ending = failed(503, "the server ends", shape=protocol.error)
            await send_answer(ending, send)
        elif outcome is Outcome.CUT:
            await send_cut(call.answer, call.draw, scope, receive, send)
        else:
            await send_answer(call.answer, send)

    async def _admit(
        self, protocol: WireProtocol, request: Request, take: Callable[[int], None]
    ) -> _ServedCall | ModelAnswer:
        """Let a call in and ask the model, or turn it away."""
        try:
            body = await self._body(request, take)
            take(_VALUE_BYTES * sum(map(body.count, (b",", b"[", b"{"))))
            now = time.monotonic()
            excess = self._gate.refusal(now)
            if excess is not None:
                return self._turned_away(protocol, excess, now)
            question = protocol.read(body)
            self._models.require(question.request.model)
        except (BadRequest, ModelRejected, RequestTooLarge, Abandoned) as error:
            self.stats.turn_away(Outcome.REFUSED)
            return _blamed(error, protocol)
        ticket = self._gate.enter(now)
        name = blake2b(body, digest_size=16).digest()
        attempt = self.stats.admit(question.request.model, name, len(body))
        fate = fate_of(self._faults, name, attempt)
        self._gate.expect(ticket, now + fate.seconds)
        answer, outcome, usage = await self._answer(protocol, question, fate, name, now)
        due = now + fate.seconds
        return _ServedCall(ticket, name, due, answer, outcome, usage, fate.draw)

    async def _body(self, request: Request, take: Callable[[int], None]) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 7 and int(declared) <= _LARGE:
            return await whole_body(request, self._max_body, take)
        async with self._large:
            return await whole_body(request, self._max_body, take)

    def _turned_away(self, protocol: WireProtocol, excess: TooMuch, now: float) -> ModelAnswer:
        limited = excess.code == "rate_limit_exceeded"
        self.stats.turn_away(Outcome.RATE_LIMITED if limited else Outcome.TOO_MANY)
        return too_much(excess, self._gate.rate_headers(now), protocol.error)

    async def _scripted(self, question: Question) -> ChatReply:
        return as_asked(await self._models.answer(question.request), question)

    async def _answer(
        self,
        protocol: WireProtocol,
        question: Question,
        fate: Fate,
        name: bytes,
        now: float,
    ) -> tuple[ModelAnswer, Outcome, Usage]:
        """What is sent in the end, and what is counted."""
        headers = {"x-request-id": name.hex(), **self._gate.rate_headers(now)}
        if fate.fault is ServedFault.ERROR:
            return failure(fate.draw, protocol.error), Outcome.ERROR, Usage()
        if fate.fault is ServedFault.BUSY:
            reason = TooMuch("rate_limit_exceeded", "too many requests, on request", 0.0)
            return too_much(reason, headers, protocol.error), Outcome.BUSY, Usage()
        try:
            reply = await self._ask(question)
        except ModelRejected as error:
            return failed(400, str(error), shape=protocol.error), Outcome.REFUSED, Usage()
        except Exception:
            # A model that fails must not take the server down, nor look like a fault.
            _log.exception("the model %r failed", question.request.model)
            bug = failed(500, "the model failed: a bug", shape=protocol.error)
            return bug, Outcome.BUG, Usage()
        answer = protocol.answer(reply, question, name.hex(), headers)
        if fate.fault is ServedFault.MALFORMED:
            return broken(answer, fate.draw), Outcome.MALFORMED, Usage()
        outcome = Outcome.ANSWERED if fate.fault is None else Outcome(fate.fault)
        return answer, outcome, reply.usage


def _blamed(error: Exception, protocol: WireProtocol) -> ModelAnswer:
    blame = partial(failed, shape=protocol.error)
    match error:
        case BadRequest():
            return blame(400, str(error), param=error.param)
        case ModelRejected():
            return blame(404, str(error), code="model_not_found", param="model")
        case Abandoned():
            refusal = error.refusal
            return blame(
                refusal.status,
                refusal.body["detail"],
                code=refusal.body["code"],
                headers=refusal.headers,
            )
        case _:
            return blame(413, str(error), code="too_large")


async def _live(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def guarded(
    app: ASGIApp,
    *,
    host: str,
    allowed_hosts: Iterable[str] = (),
    key: str | None = None,
    command: str = "assay serve-models",
) -> ASGIApp:
    """The application behind the checks of Host, Origin and key."""
    return Guard(
        app,
        host=host,
        allowed=allowed_hosts,
        token=key,
        command=command,
        open_paths=frozenset({"/health"}),
        key_header=b"x-api-key",
        shape=_reshaped,
    )


def _reshaped(refusal: Refusal, path: str) -> Refusal:
    protocol = PROTOCOLS.get(path)
    return reshaped(refusal) if protocol is None else reshaped(refusal, protocol.error)


DEFAULT_PORT: Final = 8903
_CONNECTIONS: Final = 4096


@dataclass(frozen=True, kw_only=True)
class ModelServerSettings(HostSettings):
    """How to serve."""

    port: int = DEFAULT_PORT
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Further names, each with the model that answers to it."""
    script: Path | None = None
    """The file of a model that runs shell commands one after another, as `scripted/STEM`."""
    faults: Faults = field(default_factory=Faults)
    limits: ServingLimits = field(default_factory=ServingLimits)
    api_key: str | None = field(default=None, repr=False)
    """What clients must send, if anything."""


@dataclass(frozen=True)
class RunningModels:
    """A server that can be asked."""

    address: str
    """For example http://127.0.0.1:8903"""
    settings: ModelServerSettings
    stats: Callable[[], dict[str, Any]] = field(repr=False)
    """The counts that /stats tells."""
    reset: Callable[[], None] = field(repr=False)
    """Counts from nothing, as /stats/reset does."""
    names: tuple[str, ...] = ()
    """The models it has."""

    @property
    def base_url(self) -> str:
        """What clients of the protocol call the base URL."""
        return f"{self.address}/v1"


def run(
    settings: ModelServerSettings,
    announce: Callable[[RunningModels], None],
    models: Mapping[str, ChatModel],
) -> None:
    """Serve models by name until SIGINT or SIGTERM; `announce` hears when it can be asked."""
    with _listening(settings, models) as (server, listener, service):
        server.announce = lambda: announce(service)
        server.run([listener])


@contextlib.contextmanager
def running(
    settings: ModelServerSettings, models: Mapping[str, ChatModel]
) -> Iterator[RunningModels]:
    """Serve models by name in a thread, for as long as the block takes."""
    with (
        _listening(settings, models) as (server, listener, service),
        in_thread(server, listener),
    ):
        yield service


@contextlib.contextmanager
def _listening(
    settings: ModelServerSettings, models: Mapping[str, ChatModel]
) -> Iterator[tuple[Server, socket.socket, RunningModels]]:
    table = ModelTable.with_aliases(models, settings.aliases, settings.script)
    app = ModelApp(table, settings.faults, settings.limits)
    entrance = guarded(
        app,
        host=settings.host,
        allowed_hosts=settings.allowed_hosts,
        key=settings.api_key,
    )
    with listening(settings.host, settings.port, backlog=_CONNECTIONS) as listener:
        server = make_server(entrance, http=CuttableHttp, connections=_CONNECTIONS)
        server.ending = app.close
        address = address_of(settings.host, listener)
        yield (
            server,
            listener,
            RunningModels(
                address, settings, app.stats.told, app.stats.reset, tuple(table.names)
            ),
        )
