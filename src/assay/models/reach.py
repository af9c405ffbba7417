"""Whether anybody answers at the addresses of providers. Shows nobody a key."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .connections import _certificates
from .faults import reason_of

if TYPE_CHECKING:
    import httpx2

__all__ = ["SILENT", "why_unreachable"]

SILENT = "no answer within"
"""How the reason begins where somebody may be there, and takes long."""


async def why_unreachable(addresses: Iterable[str], timeout: float = 3.0) -> dict[str, str]:
    """The addresses where nobody answers, each with a reason; all are asked at once.

    Any answer will do, a refusal too: what is asked for may need a key.

    Args:
        addresses: URLs.
        timeout: Seconds to wait.
    """
    import httpx2

    asked = list(dict.fromkeys(addresses))
    async with httpx2.AsyncClient(
        timeout=timeout, follow_redirects=False, verify=_certificates()
    ) as http:
        reasons = await asyncio.gather(*(_ask(http, one, timeout) for one in asked))
    return {one: reason for one, reason in zip(asked, reasons, strict=True) if reason}


async def _ask(http: "httpx2.AsyncClient", address: str, timeout: float) -> str | None:
    import httpx2

    try:
        async with asyncio.timeout(timeout), http.stream("GET", address):
            return None
    except (TimeoutError, httpx2.TimeoutException):
        return f"{SILENT} {timeout:g} s"
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return reason_of(error) or (str(error).splitlines() or [type(error).__name__])[0]
