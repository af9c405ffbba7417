"""A provider that repeats the received key in its answers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

__all__ = [
    "Answer",
    "answering",
    "error_page",
    "key_in_error",
    "key_in_finish_reason",
    "key_in_refusal",
    "key_in_reply",
]

Answer = Callable[[str], tuple[int, bytes]]
"""Makes a status and a body from a key."""


def key_in_reply(key: str) -> tuple[int, bytes]:
    """Return a reply with the key in every text field."""
    return _reply(key, f"stop {key}")


def key_in_finish_reason(key: str) -> tuple[int, bytes]:
    """Return a reply with the key in a finish reason that is too long to be kept."""
    return _reply(key, f"{'stop ' * 4}{key}")


def _reply(key: str, finish: str) -> tuple[int, bytes]:
    function = {"name": "interact", "arguments": json.dumps({"actions": ["noop", key]})}
    message = {
        "role": "assistant",
        "content": f"The key is {key}, and again: {key}",
        "tool_calls": [{"id": f"call_{key}", "type": "function", "function": function}],
        "reasoning_content": key,
        key: key,
    }
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, key: key}
    return 200, _body({"id": key, "model": key, "choices": [choice], "usage": usage})


def key_in_refusal(key: str) -> tuple[int, bytes]:
    """Return a refusal with the key in it."""
    message = {"role": "assistant", "content": None, "refusal": f"not with {key}"}
    return 200, _body({"choices": [{"message": message, "finish_reason": "stop"}]})


def key_in_error(status: int) -> Answer:
    """Return an error with the key in its message."""

    def answer(key: str) -> tuple[int, bytes]:
        words = f"Incorrect API key provided: {key}. {'x' * 300} {key} {'x' * 90} {key}"
        return status, _body({"error": {"message": words, "code": key, "type": key}})

    return answer


def error_page(before: int) -> Answer:
    """Return an HTML error page with the key after so many characters."""

    def answer(key: str) -> tuple[int, bytes]:
        return 500, b"x" * before + key.encode() + b"</html>"

    return answer


def _body(value: Any) -> bytes:
    return json.dumps(value).encode()


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Answer every call with `answer`; yield the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            key = self.headers.get("authorization", "").removeprefix("Bearer ")
            status, body = answer(key)
            self.send_response(status, key)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.send_header("x-request-id", key)
            self.send_header("retry-after-ms", "10")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()
