"""Access control and body limits of HTTP services, checked before a request is processed.

A web page in a browser must not reach a service on the same machine, neither by a cross-origin
request nor by DNS rebinding. Host and Origin are therefore checked even on loopback, where no
token is required.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from assay.core.refusal import MAX_BODY, Refusal
from assay.errors import RequestTooLarge

BODY_SECONDS: Final = 30.0
"""Time limit for receiving a body."""
_MAX_DISCARDED: Final = 16 * MAX_BODY
"""A body over the limit is read and discarded up to this size, because a client that is still
sending cannot receive the error."""


class BodyAbandoned(Exception):
    """A body was not read to its end, so the connection cannot be used any longer."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        body = {"detail": detail, "code": code, "errors": None}
        self.refusal = Refusal(status, body, {"connection": "close"})


class BodyMemory:
    """Memory limit for all requests that are open at the same time."""

    def __init__(self, limit: int) -> None:
        self._limit, self._reserved = limit, 0

    @contextmanager
    def reserve_for_request(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves bytes for one request; released at the end."""
        own_bytes = 0

        def reserve(size: int) -> None:
            nonlocal own_bytes
            if self._reserved + size > self._limit:
                raise BodyAbandoned(
                    503,
                    "too_large_together",
                    "all open requests together need too much memory; the limit is "
                    f"{self._limit} bytes; send less, or retry when another request is done",
                )
            own_bytes += size
            self._reserved += size

        try:
            yield reserve
        finally:
            self._reserved -= own_bytes


def make_response(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a JSON response; bytes are sent unchanged."""
    body = content if isinstance(content, bytes) else to_json(content, inf_nan_mode="null")
    return Response(body, status, headers, media_type="application/json")


def to_response(refusal: Refusal) -> Response:
    """Return the response for a refusal."""
    return make_response(refusal.body, refusal.status, refusal.headers)


async def send_refusal(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Reject a request, or a WebSocket before it opens."""
    if scope["type"] == "websocket":
        await receive()  # the request to connect
    await to_response(refusal)(scope, receive, send)


async def read_body(
    request: Request, limit: int = MAX_BODY, reserve: Callable[[int], None] = lambda size: None
) -> bytes:
    """Return the body if it is neither too large nor too slow; `take` gets each part's size."""
    too_large = f"the body is too large; at most {limit} bytes are accepted"
    discarded = max(_MAX_DISCARDED, 2 * limit)
    declared = request.headers.get("content-length", "")
    expected = int(declared) if declared.isdecimal() and len(declared) < 20 else 0
    if expected > (limit if "expect" in request.headers else discarded):
        raise BodyAbandoned(413, "too_large", too_large)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                reserve(len(part))
                size += len(part)
                if size > discarded:
                    raise BodyAbandoned(413, "too_large", too_large)
                if size > limit:
                    parts.clear()
                else:
                    parts.append(part)
    except (TimeoutError, ClientDisconnect):
        raise BodyAbandoned(408, "timeout", "the body did not arrive in time") from None
    if size > limit:
        raise RequestTooLarge(too_large)
    return b"".join(parts)


_OPEN_PATHS: Final = frozenset({"/health", "/openapi.json"})
"""Paths that reveal nothing about any instance, so they need no token."""


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable from this machine only."""
    address = _parse_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


class Guard:
    """Middleware that rejects other hosts, other origins, and requests without the token.

    Servers other than the environment service set `command` and `open_paths`, and convert a
    refusal with `shape` to the format that clients of a path expect. The token may also be sent
    alone in the header `key_header`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        allowed: Iterable[str] = (),
        token: str | None = None,
        command: str = "assay serve",
        open_paths: Container[str] = _OPEN_PATHS,
        key_header: bytes | None = None,
        shape: Callable[[Refusal, str], Refusal] = lambda refusal, path: refusal,
    ) -> None:
        self._app = app
        self._command, self._open, self._shape = command, open_paths, shape
        self._key_header = key_header
        self._names = {name.lower() for name in (host, "localhost", *allowed)}
        address = _parse_address(host)
        # Behind 0.0.0.0 any address of the machine is valid; only names can be forged.
        self._any_address = address is not None and address.is_unspecified
        self._token = None if token is None else token.encode("utf-8")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or reject it."""
        refusal = self._find_refusal(scope) if scope["type"] != "lifespan" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await send_refusal(self._shape(refusal, scope["path"]), scope, receive, send)

    def _find_refusal(self, scope: Scope) -> Refusal | None:
        hosts, origins, tokens = [], [], []
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1"))
            elif name == b"origin":
                origins.append(value.decode("latin-1"))
            elif name == b"authorization":
                tokens.append(value)
            elif name == self._key_header:
                tokens.append(b"Bearer " + value)
        if len(hosts) != 1 or not self._is_allowed_host(hosts[0]):
            return _make_forbidden(
                "the Host header of the request is not an allowed host name; "
                f"'{self._command} --allow-host NAME' adds one"
            )
        if any(_parse_netloc(origin) != _parse_netloc(f"//{hosts[0]}") for origin in origins):
            return _make_forbidden("the Origin header of the request names another host")
        if self._token is None or scope["path"] in self._open or self._is_valid_token(tokens):
            return None
        return Refusal(
            401,
            {
                "detail": "a token is needed: send 'Authorization: Bearer <token>'",
                "code": "unauthorized",
                "errors": None,
            },
            {"www-authenticate": "Bearer"},
        )

    def _is_allowed_host(self, value: str) -> bool:
        host, _ = _parse_netloc(f"//{value}")
        if host in self._names:
            return True
        address = _parse_address(host)
        return address is not None and (address.is_loopback or self._any_address)

    def _is_valid_token(self, values: list[bytes]) -> bool:
        if len(values) != 1 or self._token is None:
            return False
        scheme, _, token = values[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


def _make_forbidden(detail: str) -> Refusal:
    return Refusal(403, {"detail": detail, "code": "forbidden", "errors": None}, {})


def _parse_netloc(url: str) -> tuple[str, int | None]:
    """Return the host and the port of an origin or of `//host:port`; ("", None) if invalid."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", None
    # Neither has a user, a path or a query: with them, a parser could find our name after
    # another.
    if "@" in parts.netloc or not url.endswith(f"//{parts.netloc}"):
        return "", None
    return host, port or (443 if parts.scheme == "https" else 80)


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
