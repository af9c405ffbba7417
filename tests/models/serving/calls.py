"""Requests to a model server, and their parts."""

import http.client
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from assay.core.canonical_json import canonical_json
from assay.types import ChatRequest
from tests.agents.play import play

__all__ = ["CHAT", "HELLO", "Got", "body_of", "game", "post"]

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {
    "model": "builtin/noop",
    "messages": [{"role": "user", "content": "hello"}],
}


class Got(NamedTuple):
    """A raw response; `body` may be anything."""

    status: int
    body: bytes
    headers: dict[str, str]


def post(address: str, body: Any, path: str = CHAT, **headers: str) -> Got:
    """Send one request on a new connection."""
    data = body if isinstance(body, bytes) else canonical_json(body)
    parts = urlsplit(address)
    line = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        line.request("POST", path, data, headers)
        answer = line.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Got(answer.status, answer.read(), found)
    finally:
        line.close()


def body_of(request: ChatRequest, **more: Any) -> bytes:
    """Return a request in its wire format."""
    return canonical_json(
        {
            "model": request.model,
            "messages": [message.value for message in request.messages],
            "tools": request.tools.value,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            **more,
        }
    )


def game(model: str, turns: int = 12) -> list[ChatRequest]:
    """The requests of an episode."""
    return play(model, 3, turns=turns).requests
