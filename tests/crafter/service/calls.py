"""Requests made with the standard library, independent of our client."""

import http.client
import json
import socket
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ENV = "/env/CrafterClassic"
TRAILERS = {"many": (b"x: " + b"y" * 60 + b"\r\n") * 4_000, "long": b"x" * 260_000}
"""What may follow a body in pieces, again and again."""


class Answer(NamedTuple):
    status: int
    json: Any
    headers: dict[str, str]


def ask(
    address: str,
    path: str,
    body: Any = None,
    *,
    method: str | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Send one request on a new connection; a body that is not bytes is sent as JSON."""
    parts = urlsplit(address)
    assert parts.hostname
    assert parts.port
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(
            method or ("GET" if body is None else "POST"), path, data, headers or {}
        )
        response = connection.getresponse()
        text = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
    finally:
        connection.close()
    is_json = found.get("content-type") == "application/json"
    return Answer(response.status, json.loads(text) if is_json and text else text, found)


def start(address: str, **config: Any) -> dict[str, Any]:
    """Create an instance; return the whole response."""
    answer = ask(address, f"{ENV}/initialize", {"config": config})
    assert answer.status == 200, answer.json
    return dict(answer.json)


def step_body(env_id: str, *actions: Any, request_id: str | None = None) -> dict[str, Any]:
    calls = [{"tool": "interact", "args": {"action": action}} for action in actions]
    body: dict[str, Any] = {"env_id": env_id, "action": {"tool_calls": calls}}
    return body if request_id is None else {**body, "request_id": request_id}


def step(address: str, env_id: str, *actions: Any, request_id: str | None = None) -> Answer:
    return ask(address, f"{ENV}/step", step_body(env_id, *actions, request_id=request_id))


def raw(address: str, data: bytes, *, wait: float = 5.0) -> bytes:
    """Send raw bytes; return the response until the server closes or stops sending."""
    parts = urlsplit(address)
    assert parts.port
    received = b""
    with socket.create_connection((parts.hostname or "", parts.port), timeout=wait) as line:
        try:
            line.sendall(data)
            while part := line.recv(65536):
                received += part
        except (TimeoutError, ConnectionError):
            pass
    return received


def send_trailers(address: str, path: str, trailers: bytes, *head: str, times: int = 40) -> int:
    """Post a chunked body with trailers; return how many trailer bytes were accepted."""
    lines = (f"POST {path} HTTP/1.1", *head, "Transfer-Encoding: chunked", "", "2", "{}", "0")
    parts = urlsplit(address)
    sent = 0
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5) as line:
        line.sendall("".join(f"{text}\r\n" for text in lines).encode())
        with suppress(ConnectionError):
            while sent < times * len(trailers):
                line.sendall(trailers)
                sent += len(trailers)
    return sent
