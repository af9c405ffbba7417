"""Who may talk to the service: checked before anything else looks at a request.

A page in a browser must not reach a service on the same machine, neither by a request to
another origin nor by a name that was made to lead here. So Host and Origin are checked even
on loopback, where no token is asked for.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Iterable, Iterator
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


_OPEN: Final = frozenset({"/health", "/openapi.json"})
"""Paths that tell nothing of any instance, and so ask for no token."""


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


class Guard:
    """Refuses requests for other hosts, from other origins, or without the token.

    Servers besides that of worlds name their own command and open paths, and put a refusal
    into the shape that the clients of a path know. The token may also stand in a header of
    their own, as it is.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        allowed: Iterable[str] = (),
        token: str | None = None,
        command: str = "assay serve",
        open_paths: frozenset[str] = _OPEN,
        key_header: bytes | None = None,
        shape: Callable[[Refusal, str], Refusal] = lambda refusal, path: refusal,
    ) -> None:
        self._app = app
        self._command, self._open, self._shape = command, open_paths, shape
        self._key_header = key_header
        self._names = {name.lower() for name in (host, "localhost", *allowed)}
        address = _address(host)
        # Behind 0.0.0.0 any address of the machine is right; only names can be made to lie.
        self._any_address = address is not None and address.is_unspecified
        self._token = None if token is None else token.encode("utf-8")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it."""
        refusal = self._refusal(scope) if scope["type"] != "lifespan" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await deny(self._shape(refusal, scope["path"]), scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
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
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return _forbidden(
                "the Host of the request is not one of this service; "
                f"'{self._command} --allow-host NAME' adds one"
            )
        if any(_netloc(origin) != _netloc(f"//{hosts[0]}") for origin in origins):
            return _forbidden("the Origin of the request is another host")
        if self._token is None or scope["path"] in self._open or self._is_right(tokens):
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

    def _is_ours(self, value: str) -> bool:
        host, _ = _netloc(f"//{value}")
        if host in self._names:
            return True
        address = _address(host)
        return address is not None and (address.is_loopback or self._any_address)

    def _is_right(self, values: list[bytes]) -> bool:
        if len(values) != 1 or self._token is None:
            return False
        scheme, _, given = values[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token)


def _forbidden(detail: str) -> Refusal:
    return Refusal(403, {"detail": detail, "code": "forbidden", "errors": None}, {})


def _netloc(url: str) -> tuple[str, int | None]:
    """The host and the port of an origin or of `//host:port`; ("", None) if it has none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", None
    # Neither has a user, a path or a query: a parser would find our name behind another.
    if "@" in parts.netloc or not url.endswith(f"//{parts.netloc}"):
        return "", None
    return host, port or (443 if parts.scheme == "https" else 80)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
