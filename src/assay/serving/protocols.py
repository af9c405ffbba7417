"""The wire protocols that a model can be asked by, each at its path.

All of them are read into the same `Question` and written from the same `ChatReply`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from assay.types import ChatReply

from .answers import ErrorShape, ModelAnswer, json_answer
from .messages import message_answer, message_error, message_events, read_message_request
from .responses import read_response_request, response, response_events
from .streaming import events
from .wire import Question, completion, error_body, read_request

__all__ = ["PROTOCOLS", "WireProtocol"]


class _Whole(Protocol):
    def __call__(
        self, reply: ChatReply, question: Question, *, id: str, created: int
    ) -> bytes: ...


class _Streamed(Protocol):
    def __call__(
        self, reply: ChatReply, question: Question, *, id: str, created: int
    ) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class WireProtocol:
    """One way to ask a model over HTTP."""

    path: str
    id_prefix: str
    read: Callable[[bytes], Question]
    """What a body asks; raises BadRequest."""
    whole: _Whole
    streamed: _Streamed
    error: ErrorShape

    def answer(
        self, reply: ChatReply, question: Question, name: str, headers: Mapping[str, str]
    ) -> ModelAnswer:
        """A reply as it is sent; `name` is what its id is made of."""
        id, created = f"{self.id_prefix}{name}", int(time.time())
        if question.stream:
            parts = tuple(self.streamed(reply, question, id=id, created=created))
            return ModelAnswer(200, parts, headers, stream=True)
        body = self.whole(reply, question, id=id, created=created)
        return json_answer(body, 200, headers)


PROTOCOLS: Final[Mapping[str, WireProtocol]] = {
    protocol.path: protocol
    for protocol in (
        WireProtocol(
            "/v1/chat/completions", "chatcmpl-", read_request, completion, events, error_body
        ),
        WireProtocol(
            "/v1/responses",
            "resp_",
            read_response_request,
            response,
            response_events,
            error_body,
        ),
        WireProtocol(
            "/v1/messages",
            "msg_",
            read_message_request,
            message_answer,
            message_events,
            message_error,
        ),
    )
}
"""By their paths."""
