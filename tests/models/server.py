"""A scripted provider on loopback, with real HTTP."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from assay.models.registry import ModelEntry, Price, Provider
from assay.types import ChatRequest, Encoded, Message

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
PRICE = Price(input=1.0, output=10.0, cached=0.5)
TOOLS = Encoded([{"type": "function", "function": {"name": "interact", "parameters": {}}}])


def request(text: str = "What do you do?", **changes: Any) -> ChatRequest:
    messages = [
        Message({"role": "system", "content": "You play."}),
        Message({"role": "user", "content": text}),
    ]
    fields: dict[str, Any] = {"model": "stub", "messages": messages, "tools": TOOLS}
    return ChatRequest(**{**fields, "max_tokens": 64, **changes})


def entry(**changes: Any) -> ModelEntry:
    provider = Provider(name="stub", base_url="http://127.0.0.1:1/v1")
    fields: dict[str, Any] = {"name": "stub", "provider": provider, "remote_name": "stub-1"}
    return ModelEntry(**{**fields, "price": PRICE, **changes})


def completion(
    message: Mapping[str, Any] | None = None, finish: str = "stop", **changes: Any
) -> dict[str, Any]:
    said = message or {"role": "assistant", "content": "north"}
    choice = {"index": 0, "message": said, "finish_reason": finish}
    return {"id": "1", "choices": [choice], "usage": USAGE, **changes}


def problem(message: str, code: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "error": {"message": message, "type": "invalid_request_error", "code": code, **more}
    }


@dataclass
class Say:
    """One response."""

    status: int = 200
    body: Any = None
    """Bytes as they are, anything else as JSON; a completion if there is none."""
    headers: Mapping[str, str] = field(default_factory=dict)
    late: float = 0.0
    cut: bool = False
    """Whether the connection is lost in the middle of the body."""


@dataclass
class Provided:
    """A running provider: sends the responses in `script`, then completions."""

    script: deque[Say] = field(default_factory=deque)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def answer(self, call: Request) -> Response:
        self.asked.append(json.loads(await call.body()))
        self.headers.append(call.headers)
        say = self.script.popleft() if self.script else Say()
        await asyncio.sleep(say.late)
        body = completion() if say.body is None else say.body
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **say.headers}
        if not say.cut:
            return Response(content, say.status, headers)
        headers["content-length"] = str(len(content))
        return StreamingResponse(_half(content), say.status, headers)


async def _half(content: bytes) -> AsyncIterator[bytes]:
    yield content[: len(content) // 2]
    raise ConnectionError("cut on purpose")


@asynccontextmanager
async def providing(*script: Say, port: int = 0) -> AsyncIterator[Provided]:
    """A provider with a script, in this event loop."""
    provided = Provided(deque(script))
    route = Route("/v1/chat/completions", provided.answer, methods=["POST"])
    config = uvicorn.Config(
        Starlette(routes=[route]), port=port, log_config=None, lifespan="off", ws="none"
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    provided.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield provided
    finally:
        # Its own shutdown waits a tenth of a second.
        for listener in server.servers:
            listener.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        for task in list(server.server_state.tasks):
            task.cancel()
        await asyncio.sleep(0)
