"""The HTTP client that the models of one provider share.

Opened inside the event loop that first needs it, closed when the last model has left. Replies
are bounded, after they are unpacked. The `openai` package is loaded here and in `client` only,
and late: it is large.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from assay.core.secrets import Secret
from assay.models.faults import reason_of

if TYPE_CHECKING:
    import httpx2

MOST_BYTES: Final = 4_000_000
"""Of a reply: eight times what 128,000 tokens have. Each message of an episode is kept."""
_IDLE = 15.0
"""Seconds an idle connection is kept: less than most providers keep it."""
_PACKED: Final = ("", "identity", "gzip", "deflate")
"""How a reply may be packed: others make gigabytes out of one packet."""


class ReplyRefused(Exception):
    """A reply that is not read to its end, and why; never leaves this package."""


@cache
def certificates() -> ssl.SSLContext:
    """Whom to believe that it is the provider; reading them takes a while."""
    import httpx2

    return httpx2.create_ssl_context()


@cache
def _bounded_client() -> "type[httpx2.AsyncClient]":
    import httpx2
    from openai import DefaultAioHttpClient

    class BoundedClient(DefaultAioHttpClient):
        async def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
            response = await super().send(request, **{**more, "stream": True})
            parts: list[bytes] = []
            size = 0
            try:
                packed = response.headers.get("content-encoding", "").strip().lower()
                if packed not in _PACKED:
                    raise ReplyRefused("it is packed in a way that was not asked for")
                async for part in response.aiter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > MOST_BYTES:
                        raise ReplyRefused(f"it is longer than {MOST_BYTES:,} bytes")
            finally:
                await response.aclose()
            headers = [pair for pair in response.headers.raw if pair[0].lower() != _ENCODING]
            return httpx2.Response(
                response.status_code, headers=headers, content=b"".join(parts), request=request
            )

    return BoundedClient


_ENCODING: Final = b"content-encoding"


class Connections:
    """Connections to one provider; `most` of them at once."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._users = 0
        self._http: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def join(self) -> None:
        """Somebody else uses them, until `leave`."""
        self._users += 1

    async def leave(self) -> None:
        """Close them, if nobody is left."""
        self._users -= 1
        if self._users <= 0 and self._http is not None:
            http, self._http = self._http, None
            await http.aclose()

    def http(self) -> "httpx2.AsyncClient":
        """The client itself."""
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            import httpx2

            limits = httpx2.Limits(max_connections=self._most, keepalive_expiry=_IDLE)
            # A redirect would carry the request, and perhaps the key, to somebody else.
            self._http = _bounded_client()(
                limits=limits,
                follow_redirects=False,
                verify=certificates(),
                headers={"accept-encoding": "gzip, deflate"},
            )
            self._loop = loop
        return self._http


SILENT = "no answer within"
"""How the reason begins where somebody may be there, and takes long."""
REFUSED_KEY = "the key is refused"
"""How the reason begins where somebody is there and does not accept the key."""
_OTHER_HEADER = "https://api.anthropic.com/"
"""Takes its key in another way than `Authorization`, but for chats."""


async def why_unreachable(
    addresses: Iterable[str],
    timeout: float = 3.0,
    *,
    keys: Mapping[str, Secret | None] | None = None,
) -> dict[str, str]:
    """The addresses that cannot be asked, each with a reason; all are tried at once.

    Without keys any answer will do, a refusal too: what is asked for may need one.

    Args:
        addresses: URLs.
        timeout: Seconds to wait.
        keys: The key for each address; then it is asked for its list of models, which shows
            a key that is refused.
    """
    import httpx2

    asked = list(dict.fromkeys(addresses))
    async with httpx2.AsyncClient(
        timeout=timeout, follow_redirects=False, verify=certificates()
    ) as http:
        reasons = await asyncio.gather(*(_ask(http, one, timeout, keys) for one in asked))
    return {one: reason for one, reason in zip(asked, reasons, strict=True) if reason}


async def _ask(
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
        return reason_of(error) or (str(error).splitlines() or [type(error).__name__])[0]
