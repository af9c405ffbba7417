"""HTTP responses of the server: replies, errors, and injected faults.

A streamed reply is a sequence of server-sent events, whose deltas add up to the reply. `Pauses`
are waits that all end when the server does.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from starlette.types import Receive, Scope, Send

from assay.core.hosting import BoundedHttp
from assay.core.refusal import Refusal
from assay.models.serving.chat_wire import ParsedRequest, error_body, format_usage, split_text
from assay.models.serving.faults import Rejection
from assay.types import ChatReply

_EXTENSION: Final = "assay.cut"
_FAILURES: Final = (
    (500, "the server had an error, on request"),
    (502, "bad gateway, on request"),
    (503, "the server is overloaded, on request"),
)
_PAGE: Final = b"<html><body><h1>It works!</h1></body></html>"


class ErrorShape(Protocol):
    """Format of error responses in a protocol."""

    def __call__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None
    ) -> bytes:
        """Return the body of an error response."""
        ...


class ModelAnswer(NamedTuple):
    """A response that is not sent yet."""

    status: int
    parts: Sequence[bytes]
    """The body; each part is written separately."""
    headers: Mapping[str, str] = {}
    stream: bool = False
    """Whether it is a stream of events, without a Content-Length."""


def make_json_answer(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> ModelAnswer:
    """Build a JSON response."""
    return ModelAnswer(status, (body,), headers or {})


def make_error(
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
    shape: ErrorShape = error_body,
) -> ModelAnswer:
    """Build an error response, in the format of the protocol."""
    return make_json_answer(shape(status, message, code=code, param=param), status, headers)


def make_rejection(
    reason: Rejection,
    headers: Mapping[str, str] | None = None,
    shape: ErrorShape = error_body,
) -> ModelAnswer:
    """Build a 429 response with Retry-After.

    That header has whole seconds, so another one has milliseconds.
    """
    milliseconds = max(1, -int(-reason.seconds * 1000 // 1))
    retry = {
        "retry-after": str(-(-milliseconds // 1000)),
        "retry-after-ms": str(milliseconds),
    }
    message = f"{reason.message}; try again in {milliseconds} ms"
    retry = {**(headers or {}), **retry}
    return make_error(429, message, code=reason.code, headers=retry, shape=shape)


def reshape_refusal(refusal: Refusal, shape: ErrorShape = error_body) -> Refusal:
    """Convert a refusal of the guard to the error format of the protocol."""
    code = {401: "invalid_api_key"}.get(refusal.status, refusal.body["code"])
    message = refusal.body["detail"]
    if refusal.status == 401:
        message = "the API key is missing or wrong: send 'Authorization: Bearer <key>'"
    body = json.loads(shape(refusal.status, message, code=code))
    return Refusal(refusal.status, body, refusal.headers)


def make_malformed(answer: ModelAnswer, draw: int) -> ModelAnswer:
    """Return a malformed version of a response, with status 200; `draw` selects the kind."""
    if answer.stream:
        half = answer.parts[: len(answer.parts) // 2]
        return answer._replace(parts=(*half, b'data: {"id":"chatcmpl-\n\n'))
    (body,) = answer.parts
    kinds = (b"", body[: len(body) // 2], _PAGE, b'{"object":"chat.completion"}')
    return answer._replace(parts=((*kinds, b'{"choices":[]}')[draw % 5],))


def make_server_error(draw: int, shape: ErrorShape = error_body) -> ModelAnswer:
    """Build one of several server error responses; `draw` selects it."""
    status, message = _FAILURES[draw % len(_FAILURES)]
    return make_error(status, message, shape=shape)


async def send_answer(answer: ModelAnswer, send: Send) -> None:
    """Send a complete response."""
    await send(_make_start(answer))
    for part in answer.parts[:-1]:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": answer.parts[-1]})


def _make_start(answer: ModelAnswer) -> dict[str, Any]:
    headers = [
        (name.encode("ascii"), value.encode("latin-1"))
        for name, value in answer.headers.items()
    ]
    if answer.stream:
        headers.append((b"content-type", b"text/event-stream"))
        headers.append((b"cache-control", b"no-store"))
    else:
        headers.append((b"content-type", b"application/json"))
        headers.append((b"content-length", b"%d" % sum(map(len, answer.parts))))
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


async def send_truncated(
    answer: ModelAnswer, draw: int, scope: Scope, receive: Receive, send: Send
) -> None:
    """Drop the connection: one time in four before the response, else in the middle of it."""
    line: AbortableHttp = scope["extensions"][_EXTENSION]["line"]
    if draw % 4:
        await send(_make_start(answer))
        whole = b"".join(answer.parts)
        part = whole[: draw // 4 % max(1, len(whole))]
        await send({"type": "http.response.body", "body": part, "more_body": True})
        line.transport.close()  # data written before is still sent
    else:
        line.transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass


class AbortableHttp(BoundedHttp):
    """HTTP protocol that lets the application close the connection during a response."""

    def on_message_begin(self) -> None:
        """Pass the connection to the application, in the scope."""
        super().on_message_begin()
        self.scope["extensions"] = {_EXTENSION: {"line": self}}


DONE: Final = b"data: [DONE]\n\n"
"""Last event of a stream."""


def make_events(
    reply: ChatReply, question: ParsedRequest, *, id: str, created: int
) -> Iterator[bytes]:
    """Yield the events of a streamed reply, including the last one."""
    include_usage = question.include_usage
    head: dict[str, Any] = {
        "id": id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": question.request.model,
    }
    extra: dict[str, Any] = {"usage": None} if include_usage else {}
    for delta in _split_message(reply):
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield _encode_event({**head, "choices": [choice], **extra})
    last = {"index": 0, "delta": {}, "finish_reason": reply.finish_reason}
    yield _encode_event({**head, "choices": [last], **extra})
    if include_usage:
        yield _encode_event({**head, "choices": [], "usage": format_usage(reply.usage)})
    yield DONE


def _split_message(reply: ChatReply) -> Iterator[dict[str, Any]]:
    """Yield the deltas of a message; only text and arguments are split."""
    value = dict(reply.message.value)
    content, calls = value.pop("content", None), value.pop("tool_calls", None) or []
    text = content if isinstance(content, str) else ""
    yield {**value, "content": "" if text else content}
    yield from ({"content": piece} for piece in split_text(text))
    for index, call in enumerate(calls):
        function = call["function"]
        opened = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [opened]}
        for piece in split_text(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _encode_event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


class Pauses:
    """Interruptible waits in one event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[bool]] = set()
        self._closed = False

    async def until(self, due: float) -> bool:
        """Wait until a time of the monotonic clock; return False if interrupted by `close`."""
        seconds = due - time.monotonic()
        if seconds <= 0:
            return True
        if self._closed:
            return False
        loop = asyncio.get_running_loop()
        over: asyncio.Future[bool] = loop.create_future()
        self._waiting.add(over)
        timer = loop.call_later(seconds, _finish, over, True)
        try:
            return await over
        finally:
            timer.cancel()
            self._waiting.discard(over)

    def close(self) -> None:
        """End all waits; later ones end immediately."""
        self._closed = True
        for over in self._waiting:
            _finish(over, False)


def _finish(over: asyncio.Future[bool], value: bool) -> None:
    if not over.done():
        over.set_result(value)
