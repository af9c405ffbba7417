"""HTTP routes of the environment service: parse requests, call `Worlds`, write responses."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from assay.core.hosting import (
    HostSettings,
    Server,
    format_address,
    make_server,
    open_listener,
    serve_in_thread,
)
from assay.core.http import (
    BodyAbandoned,
    Guard,
    make_response,
    read_body,
    send_refusal,
    to_response,
)
from assay.core.refusal import MAX_BODY, Refusal
from assay.core.text import shown
from assay.crafter.service.openapi import document
from assay.crafter.service.problems import make_refusal
from assay.crafter.service.requests import (
    ENVIRONMENT,
    MAX_BATCH,
    InitializeRequest,
    RestoreRequest,
    StepRequest,
    TerminateRequest,
)
from assay.crafter.service.results import Started, adapter
from assay.crafter.service.worlds import DEFAULT_IDLE_TIMEOUT, DEFAULT_INSTANCES, Worlds
from assay.crafter.world import warmup
from assay.errors import AssayError, InvalidField, RequestTooLarge

_BATCH: Final = TypeAdapter(list[StepRequest])
_Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(
    worlds: Worlds,
    *,
    host: str = "127.0.0.1",
    allowed_hosts: Iterable[str] = (),
    token: str | None = None,
    sweep_seconds: float = 30.0,
) -> ASGIApp:
    """Return the whole service as an ASGI application."""
    app = Starlette(
        routes=_make_routes(worlds),
        exception_handlers={
            HTTPException: _on_http_error,
            AssayError: _on_assay_error,
            ValidationError: _on_assay_error,
            BodyAbandoned: _on_abandoned,
            Exception: _on_bug,
        },
        lifespan=partial(_lifespan, worlds=worlds, seconds=sweep_seconds),
    )
    app.router.redirect_slashes = False
    return Guard(app, host=host, allowed=allowed_hosts, token=token)


def _make_routes(worlds: Worlds) -> list[BaseRoute]:
    async def initialize(request: Request) -> Response:
        parsed = InitializeRequest.model_validate_json(await read_body(request) or b"{}")
        return make_response(adapter(Started).dump_json(worlds.initialize(parsed)))

    async def step(request: Request) -> Response:
        return make_response(
            worlds.step(StepRequest.model_validate_json(await read_body(request)))
        )

    async def terminate(request: Request) -> Response:
        parsed = TerminateRequest.model_validate_json(await read_body(request))
        return make_response(worlds.terminate(parsed.env_id))

    async def restore(request: Request) -> Response:
        parsed = RestoreRequest.model_validate_json(await read_body(request))
        return make_response(adapter(Started).dump_json(worlds.restore(parsed)))

    async def checkpoint(request: Request) -> Response:
        env_id = request.query_params.get("env_id")
        if env_id is None:
            raise InvalidField([("env_id", "is missing from the query", None)])
        return make_response(worlds.checkpoint(env_id))

    async def metadata(request: Request) -> Response:
        return make_response(worlds.metadata(request.query_params.get("env_id")))

    async def batch(request: Request) -> Response:
        return make_response(_step_many(worlds, await read_body(request)))

    async def health(request: Request) -> Response:
        return make_response({"status": "ok", "supported_environments": [ENVIRONMENT]})

    async def openapi(request: Request) -> Response:
        return make_response(document())

    def at(path: str, endpoint: _Endpoint, method: str) -> Route:
        return Route(f"/env/{{env_name}}/{path}", _check_name(endpoint), methods=[method])

    async def socket(websocket: WebSocket) -> None:
        await _serve_websocket(worlds, websocket)

    return [
        at("step", step, "POST"),
        at("batch", batch, "POST"),
        at("initialize", initialize, "POST"),
        at("terminate", terminate, "POST"),
        at("restore", restore, "POST"),
        at("checkpoint", checkpoint, "GET"),
        at("metadata", metadata, "GET"),
        WebSocketRoute("/env/{env_name}/ws", socket),
        Route("/health", health),
        Route("/openapi.json", openapi),
    ]


def _check_name(endpoint: _Endpoint) -> _Endpoint:
    """Reject unknown environments."""

    async def checked(request: Request) -> Response:
        refusal = _refuse_unknown(request.path_params["env_name"])
        return await endpoint(request) if refusal is None else to_response(refusal)

    return checked


def _refuse_unknown(name: str) -> Refusal | None:
    if name == ENVIRONMENT:
        return None
    detail = f"unsupported environment {shown(name)}; supported: {ENVIRONMENT}"
    return Refusal(404, {"detail": detail, "code": "unknown_environment", "errors": None}, {})


def _step_many(worlds: Worlds, body: bytes | str) -> bytes:
    """Carry out a list of steps independently: a rejected step does not stop the others."""
    items: list[Any]
    try:
        items = _BATCH.validate_json(body)
    except ValidationError as error:
        items = _parse_list(body, error)
    return b"[%b]" % b",".join([_step_one(worlds, item) for item in _check_batch_size(items)])


def _parse_list(body: bytes | str, error: ValidationError) -> list[Any]:
    try:
        items = from_json(body)
    except ValueError:
        raise error from None
    if not isinstance(items, list):
        raise error
    return items


def _check_batch_size(items: list[Any]) -> list[Any]:
    if len(items) > MAX_BATCH:
        raise RequestTooLarge(
            f"{len(items)} steps are too many for a batch; at most {MAX_BATCH} are taken"
        )
    return items


def _step_one(worlds: Worlds, item: StepRequest | Any) -> bytes:
    try:
        parsed = item if isinstance(item, StepRequest) else StepRequest.model_validate(item)
        return _format_success(worlds.step(parsed))
    except (AssayError, ValidationError) as error:
        return _format_refusal(error)


def _format_success(step: bytes) -> bytes:
    return b'{"status":200,' + step.removeprefix(b"{")


def _format_refusal(error: AssayError | ValidationError) -> bytes:
    refusal = make_refusal(error)
    return to_json({"status": refusal.status, **refusal.body})


async def _serve_websocket(worlds: Worlds, websocket: WebSocket) -> None:
    """Answer each message, a step or a list of steps, with a message of the same form."""
    refusal = _refuse_unknown(websocket.path_params["env_name"])
    if refusal is not None:
        await send_refusal(refusal, websocket.scope, websocket.receive, websocket.send)
        return
    await websocket.accept()
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            answer = _answer_message(worlds, message["bytes"] if text is None else text)
            await websocket.send_text(answer.decode("utf-8"))
    except WebSocketDisconnect:
        return


def _answer_message(worlds: Worlds, body: bytes | str) -> bytes:
    try:
        try:
            parsed = StepRequest.model_validate_json(body)
        except ValidationError as error:
            # An object that is not a valid step has one error per field; a list has one.
            if error.errors(include_url=False)[0]["type"] == "model_type":
                return _step_many(worlds, body)
            raise
        return _format_success(worlds.step(parsed))
    except (AssayError, ValidationError) as error:
        return _format_refusal(error)


async def _on_assay_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, (AssayError, ValidationError))
    return to_response(make_refusal(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http")
    body = {"detail": f"{error.detail}; see /openapi.json", "code": code, "errors": None}
    return make_response(body, error.status_code, dict(error.headers or {}))


async def _on_abandoned(request: Request, error: Exception) -> Response:
    assert isinstance(error, BodyAbandoned)
    return to_response(error.refusal)


async def _on_bug(request: Request, error: Exception) -> Response:
    return make_response({"detail": "a bug of the service", "code": "bug", "errors": None}, 500)


@asynccontextmanager
async def _lifespan(app: Starlette, *, worlds: Worlds, seconds: float) -> AsyncIterator[None]:
    """Delete expired instances periodically, even without requests."""

    async def sweep() -> None:
        while True:
            await asyncio.sleep(seconds)
            worlds.instances.expire()

    task = asyncio.create_task(sweep())
    try:
        yield
    finally:
        task.cancel()


DEFAULT_PORT: Final = 8901


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(HostSettings):
    """Settings of the service."""

    port: int = DEFAULT_PORT
    max_instances: int = DEFAULT_INSTANCES
    idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    """Seconds without a request after which an instance is deleted."""
    seed: int = field(default_factory=lambda: secrets.randbelow(2**31))
    """Seed of the generator that draws worlds for requests without a seed."""
    token: str | None = field(default=None, repr=False)
    """Token that clients must send, if any."""


@dataclass(frozen=True)
class RunningService:
    """A service that accepts requests."""

    address: str
    """For example http://127.0.0.1:8901"""
    settings: ServiceSettings


def run(
    settings: ServiceSettings,
    announce: Callable[[RunningService], None],
    prepare: Callable[[], object] = warmup,
) -> None:
    """Serve until SIGINT or SIGTERM.

    `prepare` is called for slow work after the address is bound, and `announce` when clients
    can connect.
    """
    with _bind(settings) as (server, listener, service):
        prepare()
        server.announce = lambda: announce(service)
        server.run([listener])


@contextlib.contextmanager
def running(settings: ServiceSettings) -> Iterator[RunningService]:
    """Serve in a thread for the duration of the block."""
    with _bind(settings) as (server, listener, service):
        warmup()
        with serve_in_thread(server, listener):
            yield service


@contextlib.contextmanager
def _bind(settings: ServiceSettings) -> Iterator[tuple[Server, socket.socket, RunningService]]:
    with open_listener(settings.host, settings.port) as listener:
        worlds = Worlds(
            seed=settings.seed,
            max_instances=settings.max_instances,
            idle_timeout=settings.idle_timeout,
        )
        app = make_app(
            worlds,
            host=settings.host,
            allowed_hosts=settings.allowed_hosts,
            token=settings.token,
            sweep_seconds=min(30.0, max(0.1, settings.idle_timeout / 4)),
        )
        server = make_server(app, websocket_bytes=MAX_BODY)
        yield (
            server,
            listener,
            RunningService(format_address(settings.host, listener), settings),
        )
