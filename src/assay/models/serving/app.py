"""The model server: its models, its protocols, the ASGI application, and running it.

Each wire protocol has its own path. Requests of all protocols become a `ParsedRequest`, and
responses are built from a `ChatReply`.
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
    format_address,
    make_server,
    open_listener,
    serve_in_thread,
)
from assay.core.http import BodyAbandoned, BodyMemory, Guard, read_body
from assay.core.refusal import Refusal
from assay.core.text import unknown_name
from assay.errors import ModelRejected, RequestTooLarge, UsageError
from assay.models.serving.answers import (
    AbortableHttp,
    ErrorShape,
    ModelAnswer,
    Pauses,
    make_error,
    make_events,
    make_json_answer,
    make_malformed,
    make_rejection,
    make_server_error,
    reshape_refusal,
    send_answer,
    send_truncated,
)
from assay.models.serving.chat_wire import (
    BadRequest,
    ParsedRequest,
    adapt_reply,
    error_body,
    make_completion,
    read_request,
)
from assay.models.serving.faults import (
    CallOutcome,
    Fate,
    Faults,
    Gate,
    Rejection,
    ServedFault,
    ServingLimits,
    Stats,
    compute_fate,
)
from assay.models.serving.messages_wire import (
    make_message,
    make_message_error,
    make_message_events,
    read_message_request,
)
from assay.models.serving.responses_wire import (
    make_response,
    make_response_events,
    read_response_request,
)
from assay.models.serving.scripted import read_scripts
from assay.types import ChatModel, ChatReply, ChatRequest, Usage

_MAX_NAME = 200


class ModelTable:
    """Models by name; models may be added and removed, and may have several names."""

    def __init__(self, models: Mapping[str, ChatModel]) -> None:
        self._models = models

    @classmethod
    def with_aliases(
        cls,
        models: Mapping[str, ChatModel],
        aliases: Mapping[str, str],
        script: Path | None = None,
    ) -> "ModelTable":
        """Create a table of models, their `aliases`, and a scripted model if `script` is given.

        `aliases` maps each additional name to the name of a model.
        """
        own = dict(models)
        if script is not None:
            scripted = read_scripts(script)
            own[scripted.name] = scripted
        named = dict(own)
        for name, target in aliases.items():
            if not name or len(name) > _MAX_NAME or not name.isprintable():
                raise UsageError(
                    f"invalid alias {name!r}; give 1 to {_MAX_NAME} printable characters"
                )
            if name in own:
                raise UsageError(f"alias {name!r} is already the name of a built-in model")
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
        """Return the provider of a model."""
        return self._models[name].provider

    def require(self, name: str) -> None:
        """Raise ModelRejected if there is no model with this name."""
        if name not in self._models:
            # Cut, because searching for similar names is slow for long ones.
            shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}..."
            raise ModelRejected(unknown_name("model", shown, self._models))

    async def answer(self, request: ChatRequest) -> ChatReply:
        """Call the model that the request names."""
        return await self._models[request.model].reply(request)


class _MakeBody(Protocol):
    def __call__(
        self, reply: ChatReply, question: ParsedRequest, *, id: str, created: int
    ) -> bytes: ...


class _MakeEvents(Protocol):
    def __call__(
        self, reply: ChatReply, question: ParsedRequest, *, id: str, created: int
    ) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class WireProtocol:
    """One protocol for calling a model over HTTP."""

    path: str
    id_prefix: str
    read: Callable[[bytes], ParsedRequest]
    """Parses a body; raises BadRequest."""
    whole: _MakeBody
    streamed: _MakeEvents
    error: ErrorShape

    def answer(
        self, reply: ChatReply, question: ParsedRequest, name: str, headers: Mapping[str, str]
    ) -> ModelAnswer:
        """Convert a reply to a response; `name` is the main part of its id."""
        id, created = f"{self.id_prefix}{name}", int(time.time())
        if question.stream:
            parts = tuple(self.streamed(reply, question, id=id, created=created))
            return ModelAnswer(200, parts, headers, stream=True)
        body = self.whole(reply, question, id=id, created=created)
        return make_json_answer(body, 200, headers)


PROTOCOLS: Final[Mapping[str, WireProtocol]] = {
    protocol.path: protocol
    for protocol in (
        WireProtocol(
            "/v1/chat/completions",
            "chatcmpl-",
            read_request,
            make_completion,
            make_events,
            error_body,
        ),
        WireProtocol(
            "/v1/responses",
            "resp_",
            read_response_request,
            make_response,
            make_response_events,
            error_body,
        ),
        WireProtocol(
            "/v1/messages",
            "msg_",
            read_message_request,
            make_message,
            make_message_events,
            make_message_error,
        ),
    )
}
"""Protocols by path."""

MAX_BODY: Final = 8 << 20
"""Default limit for the bytes of a request."""
_LARGE: Final = 256 << 10
_LARGE_AT_ONCE: Final = 32
"""Large bodies read concurrently; further ones wait."""
_MAX_BODIES: Final = _LARGE_AT_ONCE * MAX_BODY
"""Default limit for the bytes of all open requests together."""
_VALUE_BYTES: Final = 32
"""Memory of a small JSON value beyond its text; `[],[],…` takes 35 times its length."""
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
    """An admitted call with its prepared response; the request itself is not kept."""

    ticket: int
    request: bytes
    due: float
    answer: ModelAnswer
    outcome: CallOutcome
    usage: Usage
    draw: int
    """Random number that selects where a response is cut off."""


class ModelApp:
    """ASGI application that serves the models of a table.

    Args:
        table: The models.
        faults: Faults to inject.
        limits: Rate and concurrency limits.
        ask: Returns the reply to a question (default: call the model of the table and adapt
            its reply to what the client requires).
        max_body: Limit for the bytes of a request.
        max_bodies: Limit for the bytes of all open requests together, including those that
            wait for a model.
    """

    def __init__(
        self,
        table: ModelTable,
        faults: Faults,
        limits: ServingLimits,
        ask: Callable[[ParsedRequest], Awaitable[ChatReply]] | None = None,
        max_body: int = MAX_BODY,
        max_bodies: int = _MAX_BODIES,
    ) -> None:
        self._max_body = max_body
        self._room = BodyMemory(max_bodies)
        self._models, self._faults = table, faults
        self._ask = ask or self._call_model
        self._gate = Gate(limits)
        self._pauses = Pauses()
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.stats = Stats()

    def close(self) -> None:
        """End all injected delays."""
        self._pauses.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await _handle_lifespan(receive, send)
        elif scope["path"] in PROTOCOLS and scope["method"] == "POST":
            await self._handle_chat(PROTOCOLS[scope["path"]], scope, receive, send)
        else:
            await send_answer(self._handle_other(scope["path"], scope["method"]), send)

    def _handle_other(self, path: str, method: str) -> ModelAnswer:
        named = path.removeprefix(f"{_MODELS}/")
        allowed = "GET" if named != path else _METHODS.get(path)
        if allowed is None:
            routes = ", ".join(_METHODS)
            return make_error(404, f"unknown path; available: {routes}")
        if method != allowed and (method, allowed) != ("HEAD", "GET"):
            message = f"this path accepts only {allowed}"
            return make_error(405, message, headers={"allow": allowed})
        match path:
            case "/health":
                return make_json_answer(canonical_json({"status": "ok"}))
            case "/stats":
                return make_json_answer(canonical_json(self.stats.counts()))
            case "/stats/reset":
                self.stats.reset()
                return make_json_answer(canonical_json(self.stats.counts()))
            case "/v1/models":
                rows = [self._make_row(name) for name in self._models.names]
                return make_json_answer(canonical_json({"object": "list", "data": rows}))
        try:
            self._models.require(named)
        except ModelRejected as error:
            return make_error(404, str(error), code="model_not_found", param="model")
        return make_json_answer(canonical_json(self._make_row(named)))

    def _make_row(self, name: str) -> dict[str, object]:
        owner = self._models.provider(name)
        return {"id": name, "object": "model", "created": 0, "owned_by": owner}

    async def _handle_chat(
        self, protocol: WireProtocol, scope: Scope, receive: Receive, send: Send
    ) -> None:
        with self._room.reserve_for_request() as take:
            call = await self._admit(protocol, Request(scope, receive), take)
        if isinstance(call, ModelAnswer):
            await send_answer(call, send)
            return
        outcome = CallOutcome.ENDING
        try:
            if await self._pauses.until(call.due):
                outcome = call.outcome
        finally:
            # Before sending, so that a client's next call finds a free place.
            self._gate.leave(call.ticket)
            self.stats.end(call.request, outcome, call.usage)
        if outcome is CallOutcome.ENDING:
            ending = make_error(503, "the server is shutting down", shape=protocol.error)
            await send_answer(ending, send)
        elif outcome is CallOutcome.CUT:
            await send_truncated(call.answer, call.draw, scope, receive, send)
        else:
            await send_answer(call.answer, send)

    async def _admit(
        self, protocol: WireProtocol, request: Request, take: Callable[[int], None]
    ) -> _ServedCall | ModelAnswer:
        """Admit a call and call the model, or return the response that rejects it."""
        try:
            body = await self._read_body(request, take)
            take(_VALUE_BYTES * sum(map(body.count, (b",", b"[", b"{"))))
            now = time.monotonic()
            excess = self._gate.refusal(now)
            if excess is not None:
                return self._reject(protocol, excess, now)
            question = protocol.read(body)
            self._models.require(question.request.model)
        except (BadRequest, ModelRejected, RequestTooLarge, BodyAbandoned) as error:
            self.stats.turn_away(CallOutcome.REFUSED)
            return _make_error(error, protocol)
        ticket = self._gate.enter(now)
        name = blake2b(body, digest_size=16).digest()
        attempt = self.stats.admit(question.request.model, name, len(body))
        fate = compute_fate(self._faults, name, attempt)
        self._gate.expect(ticket, now + fate.seconds)
        answer, outcome, usage = await self._make_answer(protocol, question, fate, name, now)
        due = now + fate.seconds
        return _ServedCall(ticket, name, due, answer, outcome, usage, fate.draw)

    async def _read_body(self, request: Request, take: Callable[[int], None]) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 7 and int(declared) <= _LARGE:
            return await read_body(request, self._max_body, take)
        async with self._large:
            return await read_body(request, self._max_body, take)

    def _reject(self, protocol: WireProtocol, excess: Rejection, now: float) -> ModelAnswer:
        limited = excess.code == "rate_limit_exceeded"
        self.stats.turn_away(CallOutcome.RATE_LIMITED if limited else CallOutcome.TOO_MANY)
        return make_rejection(excess, self._gate.rate_headers(now), protocol.error)

    async def _call_model(self, question: ParsedRequest) -> ChatReply:
        return adapt_reply(await self._models.answer(question.request), question)

    async def _make_answer(
        self,
        protocol: WireProtocol,
        question: ParsedRequest,
        fate: Fate,
        name: bytes,
        now: float,
    ) -> tuple[ModelAnswer, CallOutcome, Usage]:
        """Return the response, its outcome for the statistics, and the usage."""
        headers = {"x-request-id": name.hex(), **self._gate.rate_headers(now)}
        if fate.fault is ServedFault.ERROR:
            return make_server_error(fate.draw, protocol.error), CallOutcome.ERROR, Usage()
        if fate.fault is ServedFault.BUSY:
            reason = Rejection("rate_limit_exceeded", "too many requests, on request", 0.0)
            return make_rejection(reason, headers, protocol.error), CallOutcome.BUSY, Usage()
        try:
            reply = await self._ask(question)
        except ModelRejected as error:
            return (
                make_error(400, str(error), shape=protocol.error),
                CallOutcome.REFUSED,
                Usage(),
            )
        except Exception:
            # A failing model must not stop the server, nor look like an injected fault.
            _log.exception("the model %r failed", question.request.model)
            bug = make_error(500, "the model failed: a bug", shape=protocol.error)
            return bug, CallOutcome.BUG, Usage()
        answer = protocol.answer(reply, question, name.hex(), headers)
        if fate.fault is ServedFault.MALFORMED:
            return make_malformed(answer, fate.draw), CallOutcome.MALFORMED, Usage()
        outcome = CallOutcome.ANSWERED if fate.fault is None else CallOutcome(fate.fault)
        return answer, outcome, reply.usage


def _make_error(error: Exception, protocol: WireProtocol) -> ModelAnswer:
    blame = partial(make_error, shape=protocol.error)
    match error:
        case BadRequest():
            return blame(400, str(error), param=error.param)
        case ModelRejected():
            return blame(404, str(error), code="model_not_found", param="model")
        case BodyAbandoned():
            refusal = error.refusal
            return blame(
                refusal.status,
                refusal.body["detail"],
                code=refusal.body["code"],
                headers=refusal.headers,
            )
        case _:
            return blame(413, str(error), code="too_large")


async def _handle_lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def add_guard(
    app: ASGIApp,
    *,
    host: str,
    allowed_hosts: Iterable[str] = (),
    key: str | None = None,
    command: str = "assay serve-models",
) -> ASGIApp:
    """Wrap an application with checks of Host, Origin and key."""
    return Guard(
        app,
        host=host,
        allowed=allowed_hosts,
        token=key,
        command=command,
        open_paths=frozenset({"/health"}),
        key_header=b"x-api-key",
        shape=_reshape,
    )


def _reshape(refusal: Refusal, path: str) -> Refusal:
    protocol = PROTOCOLS.get(path)
    return (
        reshape_refusal(refusal)
        if protocol is None
        else reshape_refusal(refusal, protocol.error)
    )


DEFAULT_PORT: Final = 8903
_CONNECTIONS: Final = 4096


@dataclass(frozen=True, kw_only=True)
class ModelServerSettings(HostSettings):
    """Settings of a model server."""

    port: int = DEFAULT_PORT
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Additional names, each with its model."""
    script: Path | None = None
    """File of a scripted model, which runs shell commands and is named `scripted/STEM`."""
    faults: Faults = field(default_factory=Faults)
    limits: ServingLimits = field(default_factory=ServingLimits)
    api_key: str | None = field(default=None, repr=False)
    """Key that clients must send, if any."""


@dataclass(frozen=True)
class RunningModels:
    """A running server."""

    address: str
    """For example http://127.0.0.1:8903"""
    settings: ModelServerSettings
    stats: Callable[[], dict[str, Any]] = field(repr=False)
    """Returns the counts of /stats."""
    reset: Callable[[], None] = field(repr=False)
    """Resets the counts, as /stats/reset does."""
    names: tuple[str, ...] = ()
    """Names of its models."""

    @property
    def base_url(self) -> str:
        """Base URL for clients of the protocol."""
        return f"{self.address}/v1"


def run(
    settings: ModelServerSettings,
    announce: Callable[[RunningModels], None],
    models: Mapping[str, ChatModel],
) -> None:
    """Serve models by name until SIGINT or SIGTERM; call `announce` when it is ready."""
    with _listening(settings, models) as (server, listener, service):
        server.announce = lambda: announce(service)
        server.run([listener])


@contextlib.contextmanager
def running(
    settings: ModelServerSettings, models: Mapping[str, ChatModel]
) -> Iterator[RunningModels]:
    """Serve models by name in a thread, during the block."""
    with (
        _listening(settings, models) as (server, listener, service),
        serve_in_thread(server, listener),
    ):
        yield service


@contextlib.contextmanager
def _listening(
    settings: ModelServerSettings, models: Mapping[str, ChatModel]
) -> Iterator[tuple[Server, socket.socket, RunningModels]]:
    table = ModelTable.with_aliases(models, settings.aliases, settings.script)
    app = ModelApp(table, settings.faults, settings.limits)
    entrance = add_guard(
        app,
        host=settings.host,
        allowed_hosts=settings.allowed_hosts,
        key=settings.api_key,
    )
    with open_listener(settings.host, settings.port, backlog=_CONNECTIONS) as listener:
        server = make_server(entrance, http=AbortableHttp, connections=_CONNECTIONS)
        server.ending = app.close
        address = format_address(settings.host, listener)
        yield (
            server,
            listener,
            RunningModels(
                address, settings, app.stats.counts, app.stats.reset, tuple(table.names)
            ),
        )
