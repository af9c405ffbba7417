"""Why a request is not answered, and how large one may be. No server, no library."""

from typing import Any, Final, NamedTuple

MAX_BODY: Final = 1 << 20
"""A request and a WebSocket message may have this many bytes, unless a server says so."""


class Refusal(NamedTuple):
    """An error as it goes over the wire."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]
