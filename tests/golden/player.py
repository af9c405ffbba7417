"""A model behind HTTP that answers from the messages alone, counts, and can be held back.

Nothing of assay is in it, so that it stays the same whatever moves there: the same messages
get the same answer today as when the golden files were made.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any
from zlib import crc32

__all__ = ["Player", "answered_in", "asked_for", "playing"]

_ACTIONS = (
    *("move_left", "move_right", "move_up", "move_down"),
    *("do", "noop", "sleep", "place_sapling", "collect_drink"),
)
_PATIENCE_S = 120


def asked_for(messages: Any, seed: int | None) -> str:
    """What tells one request from another: two worlds may look the same at first."""
    return json.dumps([messages, seed], sort_keys=True, separators=(",", ":"))


class Player:
    """What was asked, in order, and how many answers may be given."""

    def __init__(self, allowed: int | None) -> None:
        self.asked: list[str] = []
        """Each request, by `asked_for`."""
        self.answered = 0
        self.url = ""
        self._allowed = allowed
        self._changed = Condition()

    def allow(self, answers: int | None) -> None:
        """Give so many answers in all; None for as many as are asked for."""
        with self._changed:
            self._allowed = answers
            self._changed.notify_all()

    def answer(self, body: Mapping[str, Any]) -> bytes:
        """The answer to a request, once it may be given."""
        asked = asked_for(body["messages"], body.get("seed"))
        with self._changed:
            self.asked.append(asked)
            self._changed.wait_for(self._may, timeout=_PATIENCE_S)
            self.answered += 1
        return json.dumps(_completion(crc32(asked.encode()))).encode()

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
    """Answer on loopback, on a port that is free; at most so many answers, if given."""
    player = Player(allowed)
    host, port = address.split(":")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = (
            -1
        )  # an answer in one piece: its second half would wait for an acknowledgment

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
        """Whoever was killed does not take its answer."""


def answered_in(lines: Sequence[bytes]) -> list[str]:
    """The requests that a journal has answers to, by `asked_for`."""
    messages: dict[int, Any] = {}
    found = []
    for line in lines:
        record = json.loads(line[9:])
        for position, _turn, _kind, _at, value in record.get("messages", ()):
            messages[position] = value
        if record["kind"] == "call":
            sent = [messages[position] for position in record["request"]]
            found.append(asked_for(sent, record["parameters"]["seed"]))
    return found
