"""The routes as an ASGI application: bodies in, models asked, answers and faults out."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from assay._http.guard import Guard
from assay._http.refusal import Refusal
from assay._http.replies import Abandoned, BodyRoom, whole_body
from assay._util.canonical import canonical_json
from assay.errors import ModelRejected, RequestTooLarge
from assay.types import ChatReply, Usage

from .answers import (
    ModelAnswer,
    broken,
    failed,
    failure,
    json_answer,
    reshaped,
    send_answer,
    send_cut,
    too_much,
)
from .faults import Fate, Faults, ServedFault, fate_of
from .limits import Gate, ServingLimits, TooMuch
from .model_table import ModelTable
from .pauses import Pauses
from .protocols import PROTOCOLS, WireProtocol
from .stats import Outcome, Stats
from .wire import BadRequest, Question, as_asked

__all__ = ["MAX_BODY", "ModelApp", "guarded"]

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


class _Call(NamedTuple):
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
    ) -> _Call | ModelAnswer:
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
        return _Call(ticket, name, due, answer, outcome, usage, fate.draw)

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
