"""Whether anybody answers at the addresses of providers, without a call that costs anything."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from assay._util.secret import Secret

from .connections import certificates
from .faults import reason_of

if TYPE_CHECKING:
    import httpx2

__all__ = ["REFUSED_KEY", "SILENT", "why_unreachable"]

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
