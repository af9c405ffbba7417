"""JSON out, and bodies of a bounded size in."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from assay._http.refusal import MAX_BODY, Refusal
from assay.errors import RequestTooLarge

__all__ = [
    "BODY_SECONDS",
    "Abandoned",
    "BodyRoom",
    "deny",
    "reply",
    "reply_refusal",
    "whole_body",
]

BODY_SECONDS: Final = 30.0
"""A body must have arrived in this time."""
_MAX_DISCARDED: Final = 16 * MAX_BODY
"""Somewhat too much is read to its end and thrown away: who still sends cannot yet listen."""


class Abandoned(Exception):
    """A body that was not read to its end; the connection cannot be used any longer."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        body = {"detail": detail, "code": code, "errors": None}
        self.refusal = Refusal(status, body, {"connection": "close"})


class BodyRoom:
    """Bounds the memory of all requests that are open at the same time."""

    def __init__(self, limit: int) -> None:
        self._limit, self._taken = limit, 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes bytes for one request; given back at the end."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self._taken + size > self._limit:
                raise Abandoned(
                    503,
                    "too_large_together",
                    "all open requests together take too much memory; at most "
                    f"{self._limit} bytes are given; send less, or try again when another "
                    "request has been answered",
                )
            mine += size
            self._taken += size

        try:
            yield take
        finally:
            self._taken -= mine


def reply(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A reply of JSON; bytes are JSON already."""
    body = content if isinstance(content, bytes) else to_json(content)
    return Response(body, status, headers, media_type="application/json")


def reply_refusal(refusal: Refusal) -> Response:
    """A reply that says why not."""
    return reply(refusal.body, refusal.status, refusal.headers)


async def deny(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a WebSocket before it opens, with a refusal."""
    if scope["type"] == "websocket":
        await receive()  # the request to connect
    await reply_refusal(refusal)(scope, receive, send)


async def whole_body(
    request: Request, limit: int = MAX_BODY, take: Callable[[int], None] = lambda size: None
) -> bytes:
    """The body, if it is not too large and not too slow; `take` hears of each part's size."""
    too_large = f"the body is too large; at most {limit} bytes are taken"
    discarded = max(_MAX_DISCARDED, 2 * limit)
    declared = request.headers.get("content-length", "")
    expected = int(declared) if declared.isdecimal() and len(declared) < 20 else 0
    if expected > (limit if "expect" in request.headers else discarded):
        raise Abandoned(413, "too_large", too_large)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                take(len(part))
                size += len(part)
                if size > discarded:
                    raise Abandoned(413, "too_large", too_large)
                if size > limit:
                    parts.clear()
                else:
                    parts.append(part)
    except (TimeoutError, ClientDisconnect):
        raise Abandoned(408, "timeout", "the body did not arrive in time") from None
    if size > limit:
        raise RequestTooLarge(too_large)
    return b"".join(parts)
