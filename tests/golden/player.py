"""A model behind HTTP whose replies depend only on the messages; it can be paused.

It does not import assay, so that changes there do not affect it: the same messages get the
same reply as when the golden files were made.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any
from zlib import crc32

__all__ = ["Player", "find_answered_requests", "make_request_key", "playing"]

_ACTIONS = (
    *("move_left", "move_right", "move_up", "move_down"),
    *("do", "noop", "sleep", "place_sapling", "collect_drink"),
)
_PATIENCE_S = 120


def make_request_key(messages: Any, seed: int | None) -> str:
    """Return the identity of a request; the seed is needed as two worlds may start alike."""
    return json.dumps([messages, seed], sort_keys=True, separators=(",", ":"))


class Player:
    """The received requests, in order, and the number of replies to give."""

    def __init__(self, allowed: int | None) -> None:
        self.requests: list[str] = []
        """The key of each request."""
        self.answered = 0
        self.url = ""
        self._allowed = allowed
        self._changed = Condition()

    def allow(self, answers: int | None) -> None:
        """Allow this number of replies in total; None allows any number."""
        with self._changed:
            self._allowed = answers
            self._changed.notify_all()

    def answer(self, body: Mapping[str, Any]) -> bytes:
        """Return the reply to a request once it is allowed."""
        key = make_request_key(body["messages"], body.get("seed"))
        with self._changed:
            self.requests.append(key)
            self._changed.wait_for(self._may, timeout=_PATIENCE_S)
            self.answered += 1
        return json.dumps(_completion(crc32(key.encode()))).encode()

    def _may(self) -> bool:
        return self._allowed is None or self.answered < self._allowed


def _completion(number: int) -> dict[str, Any]:
    actions = [_ACTIONS[(number >> 4 * place) % len(_ACTIONS)] for place in range(3)]
    call = {
        "id": f"call_{number:08x}",
        "type": "function",
        "function": {"name": "interact", "arguments": json.dumps({"actions": actions})},
    }
    message = {"role": "assistant", "content": f"Number {number}.", "tool_calls": [call]}
    return {
        "id": f"chatcmpl-{number:08x}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "player",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


@contextmanager
def playing(allowed: int | None = None, address: str = "127.0.0.1:0") -> Iterator[Player]:
    """Serve on a free loopback port, with a limit on the number of replies if given."""
    player = Player(allowed)
    host, port = address.split(":")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # a reply in one piece: its second half would wait for an acknowledgment

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = player.answer(body)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with _Server((host, int(port)), Handler) as server:
        player.url = f"http://{host}:{server.server_port}/v1"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield player
        finally:
            player.allow(None)
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A killed client does not read its reply."""


def find_answered_requests(lines: Sequence[bytes]) -> list[str]:
    """Return the keys of the requests with a reply in a journal."""
    messages: dict[int, Any] = {}
    found = []
    for line in lines:
        record = json.loads(line[9:])
        for position, _turn, _kind, _at, value in record.get("messages", ()):
            messages[position] = value
        if record["kind"] == "call":
            sent = [messages[position] for position in record["request"]]
            found.append(make_request_key(sent, record["parameters"]["seed"]))
    return found
