"""Refusals of requests, and the size limit of requests. Needs no server or library."""

from typing import Any, Final, NamedTuple

MAX_BODY: Final = 1 << 20
"""Default size limit of a request and of a WebSocket message, in bytes."""


class Refusal(NamedTuple):
    """An error response."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]
