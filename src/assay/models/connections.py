"""The HTTP client shared by the models of a run, and a free check that addresses respond.

The client is opened in the event loop that first needs it and closed when the last model has
left. The size of unpacked replies is limited. The `openai` package is imported only here and in
`client`, and only when needed, because it is large.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from assay.core.secrets import Secret
from assay.models.faults import find_system_reason

if TYPE_CHECKING:
    import httpx2

MOST_BYTES: Final = 4_000_000
"""Maximum size of a reply: eight times that of 128,000 tokens. All messages are stored."""
_IDLE = 15.0
"""Seconds an idle connection is kept: less than most providers do."""
_ENCODINGS: Final = ("", "identity", "gzip", "deflate")
"""Accepted encodings; others can expand one packet to gigabytes."""


class ReplyRefused(Exception):
    """A reply that was not read to its end; never leaves this package."""


@cache
def certificates() -> ssl.SSLContext:
    """Return the TLS context with the trusted certificates; cached, because loading is slow."""
    import httpx2

    return httpx2.create_ssl_context()


@cache
def _make_client_class() -> "type[httpx2.AsyncClient]":
    import httpx2
    from openai import DefaultAioHttpClient

    class BoundedClient(DefaultAioHttpClient):
        async def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
            response = await super().send(request, **{**more, "stream": True})
            parts: list[bytes] = []
            size = 0
            try:
                packed = response.headers.get("content-encoding", "").strip().lower()
                if packed not in _ENCODINGS:
                    raise ReplyRefused("it is packed in a way that was not asked for")
                async for part in response.aiter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > MOST_BYTES:
                        raise ReplyRefused(f"it is longer than {MOST_BYTES:,} bytes")
            finally:
                await response.aclose()
            headers = [
                pair for pair in response.headers.raw if pair[0].lower() != _ENCODING_HEADER
            ]
            return httpx2.Response(
                response.status_code, headers=headers, content=b"".join(parts), request=request
            )

    return BoundedClient


_ENCODING_HEADER: Final = b"content-encoding"


class Connections:
    """Shared connections to providers, at most `most` at a time."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._users = 0
        self._http: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def join(self) -> None:
        """Register a user, until `leave`."""
        self._users += 1

    async def leave(self) -> None:
        """Unregister a user; close the connections after the last one."""
        self._users -= 1
        if self._users <= 0 and self._http is not None:
            http, self._http = self._http, None
            await http.aclose()

    def http(self) -> "httpx2.AsyncClient":
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            import httpx2

            limits = httpx2.Limits(max_connections=self._most, keepalive_expiry=_IDLE)
            # A redirect would send the request, and perhaps the key, to another host.
            self._http = _make_client_class()(
                limits=limits,
                follow_redirects=False,
                verify=certificates(),
                headers={"accept-encoding": "gzip, deflate"},
            )
            self._loop = loop
        return self._http


SILENT = "no answer within"
"""Start of the reason if the connection timed out."""
REFUSED_KEY = "the key is refused"
"""Start of the reason if the service does not accept the key."""
_OTHER_HEADER = "https://api.anthropic.com/"
"""Accepts the key in `Authorization` only for chats."""


async def find_unreachable(
    addresses: Iterable[str],
    timeout: float = 3.0,
    *,
    keys: Mapping[str, Secret | None] | None = None,
) -> dict[str, str]:
    """Return the addresses that do not respond, with reasons; all are checked concurrently.

    Without keys, any response counts, even an error.

    Args:
        addresses: URLs.
        timeout: Seconds to wait.
        keys: The key for each address; its list of models is then requested, to find out
            whether the key is accepted.
    """
    import httpx2

    urls = list(dict.fromkeys(addresses))
    async with httpx2.AsyncClient(
        timeout=timeout, follow_redirects=False, verify=certificates()
    ) as http:
        reasons = await asyncio.gather(*(_check_address(http, u, timeout, keys) for u in urls))
    return {url: reason for url, reason in zip(urls, reasons, strict=True) if reason}


async def _check_address(
    http: "httpx2.AsyncClient",
    address: str,
    timeout: float,
    keys: Mapping[str, Secret | None] | None,
) -> str | None:
    import httpx2

    url, headers = address, {}
    if keys is not None and not address.startswith(_OTHER_HEADER):
        url = f"{address.rstrip('/')}/models"
        if (key := keys.get(address)) is not None:
            headers["Authorization"] = f"Bearer {key.reveal()}"
    try:
        async with (
            asyncio.timeout(timeout),
            http.stream("GET", url, headers=headers) as answer,
        ):
            refused = url != address and answer.status_code == 401
            return f"{REFUSED_KEY} (status 401)" if refused else None
    except (TimeoutError, httpx2.TimeoutException):
        return f"{SILENT} {timeout:g} s"
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return (
            find_system_reason(error) or (str(error).splitlines() or [type(error).__name__])[0]
        )
