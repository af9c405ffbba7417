"""The routes: they read a request, ask `Worlds`, and write the answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from assay._http.guard import Guard
from assay._http.refusal import Refusal
from assay._http.replies import Abandoned, deny, reply, reply_refusal, whole_body
from assay._util.text import shown
from assay.errors import AssayError, InvalidField, RequestTooLarge
from assay.service.problems import refusal_of

from .openapi import document
from .page import page
from .requests import (
    ENVIRONMENT,
    MAX_BATCH,
    InitializeRequest,
    RestoreRequest,
    StepRequest,
    TerminateRequest,
)
from .results import Started, adapter
from .worlds import Worlds

__all__ = ["make_app"]

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
    """The whole service as an ASGI application."""
    app = Starlette(
        routes=_routes(worlds),
        exception_handlers={
            HTTPException: _http_error,
            AssayError: _assay_error,
            ValidationError: _assay_error,
            Abandoned: _abandoned,
            Exception: _bug,
        },
        lifespan=partial(_sweeping, worlds=worlds, seconds=sweep_seconds),
    )
    app.router.redirect_slashes = False
    return Guard(app, host=host, allowed=allowed_hosts, token=token)


def _routes(worlds: Worlds) -> list[BaseRoute]:
    async def initialize(request: Request) -> Response:
        asked = InitializeRequest.model_validate_json(await whole_body(request) or b"{}")
        return reply(adapter(Started).dump_json(worlds.initialize(asked)))

    async def step(request: Request) -> Response:
        return reply(worlds.step(StepRequest.model_validate_json(await whole_body(request))))

    async def terminate(request: Request) -> Response:
        asked = TerminateRequest.model_validate_json(await whole_body(request))
        return reply(worlds.terminate(asked.env_id))

    async def restore(request: Request) -> Response:
        asked = RestoreRequest.model_validate_json(await whole_body(request))
        return reply(adapter(Started).dump_json(worlds.restore(asked)))

    async def checkpoint(request: Request) -> Response:
        env_id = request.query_params.get("env_id")
        if env_id is None:
            raise InvalidField([("env_id", "is missing from the query", None)])
        return reply(worlds.checkpoint(env_id))

    async def metadata(request: Request) -> Response:
        return reply(worlds.metadata(request.query_params.get("env_id")))

    async def batch(request: Request) -> Response:
        return reply(_many(worlds, await whole_body(request)))

    async def health(request: Request) -> Response:
        return reply({"status": "ok", "supported_environments": [ENVIRONMENT]})

    async def openapi(request: Request) -> Response:
        return reply(document())

    async def docs(request: Request) -> Response:
        policy = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(page(document()), headers=policy)

    def at(path: str, endpoint: _Endpoint, method: str) -> Route:
        return Route(f"/env/{{env_name}}/{path}", _named(endpoint), methods=[method])

    async def socket(websocket: WebSocket) -> None:
        await _talk(worlds, websocket)

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
        Route("/docs", docs),
    ]


def _named(endpoint: _Endpoint) -> _Endpoint:
    """Refuse environments that do not exist."""

    async def checked(request: Request) -> Response:
        refusal = _unknown_environment(request.path_params["env_name"])
        return await endpoint(request) if refusal is None else reply_refusal(refusal)

    return checked


def _unknown_environment(name: str) -> Refusal | None:
    if name == ENVIRONMENT:
        return None
    detail = f"unsupported environment {shown(name)}; supported: {ENVIRONMENT}"
    return Refusal(404, {"detail": detail, "code": "unknown_environment", "errors": None}, {})


def _many(worlds: Worlds, body: bytes | str) -> bytes:
    """Play a list of steps, each on its own: one that is refused stops no other."""
    items: list[Any]
    try:
        items = _BATCH.validate_json(body)
    except ValidationError as error:
        items = _listed(body, error)
    return b"[%b]" % b",".join([_one(worlds, item) for item in _sized(items)])


def _listed(body: bytes | str, error: ValidationError) -> list[Any]:
    try:
        items = from_json(body)
    except ValueError:
        raise error from None
    if not isinstance(items, list):
        raise error
    return items


def _sized(items: list[Any]) -> list[Any]:
    if len(items) > MAX_BATCH:
        raise RequestTooLarge(
            f"{len(items)} steps are too many for a batch; at most {MAX_BATCH} are taken"
        )
    return items


def _one(worlds: Worlds, item: StepRequest | Any) -> bytes:
    try:
        asked = item if isinstance(item, StepRequest) else StepRequest.model_validate(item)
        return _good(worlds.step(asked))
    except (AssayError, ValidationError) as error:
        return _refused(error)


def _good(step: bytes) -> bytes:
    return b'{"status":200,' + step.removeprefix(b"{")


def _refused(error: AssayError | ValidationError) -> bytes:
    refusal = refusal_of(error)
    return to_json({"status": refusal.status, **refusal.body})


async def _talk(worlds: Worlds, websocket: WebSocket) -> None:
    """Answer each message, a step or a list of steps, with a message of the same form."""
    refusal = _unknown_environment(websocket.path_params["env_name"])
    if refusal is not None:
        await deny(refusal, websocket.scope, websocket.receive, websocket.send)
        return
    await websocket.accept()
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            answer = _answer(worlds, message["bytes"] if text is None else text)
            await websocket.send_text(answer.decode("utf-8"))
    except WebSocketDisconnect:
        return


def _answer(worlds: Worlds, body: bytes | str) -> bytes:
    try:
        try:
            asked = StepRequest.model_validate_json(body)
        except ValidationError as error:
            # An object that is no step has one error per field; a list has one in all.
            if error.errors(include_url=False)[0]["type"] == "model_type":
                return _many(worlds, body)
            raise
        return _good(worlds.step(asked))
    except (AssayError, ValidationError) as error:
        return _refused(error)


async def _assay_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, (AssayError, ValidationError))
    return reply_refusal(refusal_of(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http")
    body = {"detail": f"{error.detail}; see /docs", "code": code, "errors": None}
    return reply(body, error.status_code, dict(error.headers or {}))


async def _abandoned(request: Request, error: Exception) -> Response:
    assert isinstance(error, Abandoned)
    return reply_refusal(error.refusal)


async def _bug(request: Request, error: Exception) -> Response:
    return reply({"detail": "a bug of the service", "code": "bug", "errors": None}, 500)


@asynccontextmanager
async def _sweeping(app: Starlette, *, worlds: Worlds, seconds: float) -> AsyncIterator[None]:
    """Forget idle instances now and then, so that they go even when nobody asks."""

    async def sweep() -> None:
        while True:
            await asyncio.sleep(seconds)
            worlds.instances.expire()

    task = asyncio.create_task(sweep())
    try:
        yield
    finally:
        task.cancel()
