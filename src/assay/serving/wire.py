"""The wire protocol of chat completions: bytes in, `ChatRequest`; `ChatReply`, bytes out.

Messages go through as they are: what a model is asked is what was sent, and the message of
its reply stands in the answer byte for byte. Knows nothing of HTTP, models or faults. Another
protocol would be another such module.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, ValidationError, with_config
from typing_extensions import TypedDict

from assay._util.canonical import canonical_json
from assay._util.text import printable
from assay.types import ChatReply, ChatRequest, Encoded, Message, Usage

__all__ = ["BadRequest", "Question", "completion", "error_body", "read_request", "usage_of"]

_MAX_NAME: Final = 512
_MAX_TOKENS: Final = 10_000_000
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_OPEN: Final = ConfigDict(extra="allow", strict=True)


@with_config(_OPEN)
class _Part(TypedDict):
    type: str


_Content = str | Annotated[list[_Part], Field(fail_fast=True)]


@with_config(_OPEN)
class _Function(TypedDict):
    name: str
    arguments: str


@with_config(_OPEN)
class _Call(TypedDict):
    id: str
    type: NotRequired[Literal["function"]]
    function: _Function


@with_config(_OPEN)
class _Told(TypedDict):
    role: Literal["system", "developer", "user"]
    content: _Content


@with_config(_OPEN)
class _Answered(TypedDict):
    role: Literal["assistant"]
    content: NotRequired[_Content | None]
    tool_calls: NotRequired[Annotated[list[_Call], Field(fail_fast=True)] | None]


@with_config(_OPEN)
class _Returned(TypedDict):
    role: Literal["tool"]
    content: _Content
    tool_call_id: str


@with_config(_OPEN)
class _Described(TypedDict):
    name: Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]
    parameters: NotRequired[dict[str, Any] | None]


@with_config(_OPEN)
class _Tool(TypedDict):
    type: Literal["function"]
    function: _Described


class _StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True)
    include_usage: bool | None = None


_Tokens = Annotated[int, Field(ge=1, le=_MAX_TOKENS)]
_Message = Annotated[_Told | _Answered | _Returned, Field(discriminator="role")]


class _Request(BaseModel):
    """What is used of a request; all else that clients send is ignored."""

    model_config = ConfigDict(strict=True)
    model: Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]
    messages: Annotated[list[_Message], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[_Tool], Field(fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


class BadRequest(Exception):
    """A body that is no request; `param` is the field to blame."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and how its answer is to be sent."""

    request: ChatRequest
    stream: bool
    include_usage: bool
    """Whether a stream ends with a count of tokens."""


def read_request(body: bytes) -> Question:
    """What a body asks."""
    try:
        asked = _Request.model_validate_json(body)
    except ValidationError as error:
        raise _explained(error) from None
    tools = [] if asked.tool_choice == "none" else asked.tools or []
    try:
        request = ChatRequest(
            model=asked.model,
            messages=[Message(message) for message in asked.messages],
            tools=Encoded(tools),
            temperature=asked.temperature,
            max_tokens=asked.max_completion_tokens or asked.max_tokens or 1024,
            seed=asked.seed,
        )
    except (ValueError, RecursionError):
        # A number that JSON has no way to write again, somewhere among the unknown keys.
        raise BadRequest("a message or tool holds a number that is too large") from None
    usage = asked.stream_options is not None and bool(asked.stream_options.include_usage)
    return Question(request, bool(asked.stream), usage)


def _explained(error: ValidationError) -> BadRequest:
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ""
    for before, part in zip((None, *found["loc"]), found["loc"], strict=False):
        if isinstance(part, int):
            param += f"[{part}]"
        elif not (isinstance(before, int) and part in _ROLES):  # the kind of a message
            param += f".{part}" if param else part
    param = printable(param)[:100]
    where = f"{param}: " if param else ""
    return BadRequest(f"{where}{printable(found['msg'])[:300]}", param or None)


def usage_of(usage: Usage) -> dict[str, Any]:
    """Tokens in the words of the protocol."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def completion(reply: ChatReply, *, id: str, model: str, created: int) -> bytes:
    """A whole answer."""
    head = f'{{"id":{json.dumps(id)},"object":"chat.completion","created":{created}'
    middle = f',"model":{json.dumps(model)},"choices":[{{"index":0,"message":'
    end = (
        f',"logprobs":null,"finish_reason":{json.dumps(reply.finish_reason)}}}]'
        f',"usage":{json.dumps(usage_of(reply.usage), separators=(",", ":"))}}}'
    )
    return b"".join((head.encode(), middle.encode(), reply.message.encoded, end.encode()))


def error_body(
    message: str, *, type: str, code: str | None = None, param: str | None = None
) -> bytes:
    """An answer that says what is wrong."""
    return canonical_json(
        {"error": {"message": message, "type": type, "param": param, "code": code}}
    )
