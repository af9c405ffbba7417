"""A reply as a stream of server-sent events: what its pieces add up to is the reply."""

import json
from collections.abc import Iterator
from typing import Any, Final

from assay.types import ChatReply

from .wire import Question, pieces, usage_of

__all__ = ["DONE", "events"]

DONE: Final = b"data: [DONE]\n\n"
"""The last event of a stream."""


def events(reply: ChatReply, question: Question, *, id: str, created: int) -> Iterator[bytes]:
    """The events of a reply, the last one included."""
    include_usage = question.include_usage
    head: dict[str, Any] = {
        "id": id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": question.request.model,
    }
    extra: dict[str, Any] = {"usage": None} if include_usage else {}
    for delta in _deltas(reply):
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield _event({**head, "choices": [choice], **extra})
    last = {"index": 0, "delta": {}, "finish_reason": reply.finish_reason}
    yield _event({**head, "choices": [last], **extra})
    if include_usage:
        yield _event({**head, "choices": [], "usage": usage_of(reply.usage)})
    yield DONE


def _deltas(reply: ChatReply) -> Iterator[dict[str, Any]]:
    """The message in pieces; all but text and arguments comes whole, in the first of them."""
    value = dict(reply.message.value)
    content, calls = value.pop("content", None), value.pop("tool_calls", None) or []
    text = content if isinstance(content, str) else ""
    yield {**value, "content": "" if text else content}
    yield from ({"content": piece} for piece in pieces(text))
    for index, call in enumerate(calls):
        function = call["function"]
        opened = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [opened]}
        for piece in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
