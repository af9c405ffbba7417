"""JSON out, and bodies of a bounded size in."""

import asyncio
from typing import Any, Final

from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from assay.errors import RequestTooLarge

from .problems import Refusal
from .requests import MAX_BODY

__all__ = ["BODY_SECONDS", "Abandoned", "deny", "reply", "reply_refusal", "whole_body"]

BODY_SECONDS: Final = 30.0
"""A body must have arrived in this time."""
_MAX_DISCARDED: Final = 16 * MAX_BODY
"""Somewhat too much is read to its end and thrown away: who still sends cannot yet listen."""
_TOO_LARGE: Final = f"the body is too large; at most {MAX_BODY} bytes are taken"


class Abandoned(Exception):
    """A body that was not read to its end; the connection cannot be used any longer."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        body = {"detail": detail, "code": code, "errors": None}
        self.refusal = Refusal(status, body, {"connection": "close"})


def reply(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A reply of JSON."""
    return Response(to_json(content), status, headers, media_type="application/json")


def reply_refusal(refusal: Refusal) -> Response:
    """A reply that says why not."""
    return reply(refusal.body, refusal.status, refusal.headers)


async def deny(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a WebSocket before it opens, with a refusal."""
    if scope["type"] == "websocket":
        await receive()  # the request to connect
    await reply_refusal(refusal)(scope, receive, send)


async def whole_body(request: Request) -> bytes:
    """The body, if it is not too large and not too slow."""
    declared = request.headers.get("content-length", "")
    expected = int(declared) if declared.isdecimal() and len(declared) < 20 else 0
    if expected > (MAX_BODY if "expect" in request.headers else _MAX_DISCARDED):
        raise Abandoned(413, "too_large", _TOO_LARGE)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > _MAX_DISCARDED:
                    raise Abandoned(413, "too_large", _TOO_LARGE)
                if size > MAX_BODY:
                    parts.clear()
                else:
                    parts.append(part)
    except (TimeoutError, ClientDisconnect):
        raise Abandoned(408, "timeout", "the body did not arrive in time") from None
    if size > MAX_BODY:
        raise RequestTooLarge(_TOO_LARGE)
    return b"".join(parts)
