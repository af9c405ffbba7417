"""The HTTP client that the models of one provider share.

Opened inside the event loop that first needs it, closed when the last model has left. The
`openai` package is loaded here and in `client` only, and late: it is large.
"""

import asyncio
import ssl
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

__all__ = ["Connections"]

_IDLE = 15.0
"""Seconds an idle connection is kept: less than most providers keep it."""


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to believe that it is the provider; reading them takes a while."""
    import httpx2

    return httpx2.create_ssl_context()


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
            from openai import DefaultAioHttpClient

            limits = httpx2.Limits(max_connections=self._most, keepalive_expiry=_IDLE)
            # A redirect would carry the request, and perhaps the key, to somebody else.
            self._http = DefaultAioHttpClient(
                limits=limits, follow_redirects=False, verify=_certificates()
            )
            self._loop = loop
        return self._http
