"""A model server on loopback that gives scripted answers of a coder or a judge."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Message = Mapping[str, Any]
Script = Callable[[Sequence[Message]], Message | int]
"""Maps the messages of a request to an answer, or to the status of an error."""
USAGE = {"prompt_tokens": 100, "completion_tokens": 10}


def call(name: str, arguments: Mapping[str, Any] | str, text: str | None = None) -> Message:
    """Return an answer that calls one tool."""
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": given}
    calls = [{"id": f"call_{name}", "type": "function", "function": function}]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def steps(*answers: Message, then: Message | None = None) -> Script:
    """Give these answers in order in every conversation, then always `then`."""

    def script(messages: Sequence[Message]) -> Message:
        count = sum(message["role"] == "assistant" for message in messages)
        return answers[count] if count < len(answers) else then or answers[-1]

    return script


def delay_answers(script: Script, after: int, seconds: float) -> Script:
    """Delay the answers of a script from the answer with number `after` on."""

    def slow(messages: Sequence[Message]) -> Message | int:
        if sum(message["role"] == "assistant" for message in messages) >= after:
            time.sleep(seconds)
        return script(messages)

    return slow


def judge_script(score: float) -> Script:
    """Return a judge that always gives this score."""
    return steps(call("score_rubric", {"reasoning": "as I see it", "score": score}))


class CodingServer:
    """Answers by the name of the model; scripts may be changed while it runs."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self.scripts = scripts
        self.asked: list[dict[str, Any]] = []
        """All requests, in order of arrival."""
        self.url = ""

    def answer(self, request: dict[str, Any]) -> tuple[int, bytes]:
        self.asked.append(request)
        said = self.scripts[request["model"]](request["messages"])
        if isinstance(said, int):
            return said, json.dumps({"error": {"message": "out of order"}}).encode()
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        model = f"{request['model']}-2026-11-01"
        return 200, json.dumps({"model": model, "choices": [choice], "usage": USAGE}).encode()


@contextmanager
def serving(**scripts: Script) -> Iterator[CodingServer]:
    """Serve these models."""
    coding = CodingServer(scripts)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            said = self.rfile.read(int(self.headers["content-length"]))
            status, body = coding.answer(json.loads(said))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore clients that have disconnected."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        coding.url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            yield coding
        finally:
            server.shutdown()
            thread.join()
