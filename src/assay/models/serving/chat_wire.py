"""The wire protocol of chat completions: bytes in, `ChatRequest`; `ChatReply`, bytes out.

Messages go through as they are: what a model is asked is what was sent, and the message of
its reply stands in the answer byte for byte, unless the client demands another function, an
answer by a schema, or fewer tokens. Knows nothing of HTTP, models or faults. The other
protocols translate to this one: `responses` and `messages`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, ValidationError, with_config
from typing_extensions import TypedDict

from assay.core.canonical_json import canonical_json, derived_id
from assay.core.text import printable
from assay.models.serving.scripted import example
from assay.types import ChatReply, ChatRequest, Encoded, Message, Usage

_MAX_NAME: Final = 512
_MAX_TOKENS: Final = 10_000_000
_PIECE: Final = 64
"""Characters of text in an event."""
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
class _ToolCall(TypedDict):
    id: str
    type: NotRequired[Literal["function"]]
    function: _Function


@with_config(_OPEN)
class _PromptMessage(TypedDict):
    role: Literal["system", "developer", "user"]
    content: _Content


@with_config(_OPEN)
class _Answered(TypedDict):
    role: Literal["assistant"]
    content: NotRequired[_Content | None]
    tool_calls: NotRequired[Annotated[list[_ToolCall], Field(fail_fast=True)] | None]


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
_Message = Annotated[_PromptMessage | _Answered | _Returned, Field(discriminator="role")]


class _Request(BaseModel):
    """What is used of a request; all else that clients send is ignored."""

    model_config = ConfigDict(strict=True)
    model: Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]
    messages: Annotated[list[_Message], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[_Tool], Field(fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


class ChatBody(TypedDict, total=False):
    """A request of chat as another protocol makes it; it is checked as if it were sent."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    tool_choice: Any
    response_format: dict[str, Any] | None
    temperature: float | None
    max_completion_tokens: int | None
    stream: bool | None


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
    demanded: Sequence[Mapping[str, Any]] = ()
    """Functions of which one must be called; none need be where it is empty."""
    schema: dict[str, Any] | None = None
    """What the answer must fit, where no function is to be called."""
    max_tokens: int | None = None
    """Where the answer is cut off, if the client says so."""
    custom: frozenset[str] = frozenset()
    """Functions that are custom tools in the protocol of the client."""

    @classmethod
    def of_chat(cls, body: ChatBody, *, custom: frozenset[str] = frozenset()) -> "Question":
        """What a body asks that another protocol was translated to."""
        try:
            asked = _Request.model_validate(body)
        except ValidationError as error:
            raise explained(error) from None
        return _question(asked, custom)


def read_request(body: bytes) -> Question:
    """What a body asks."""
    try:
        asked = _Request.model_validate_json(body)
    except ValidationError as error:
        raise explained(error) from None
    return _question(asked)


def _question(asked: _Request, custom: frozenset[str] = frozenset()) -> Question:
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
    return Question(
        request,
        bool(asked.stream),
        usage,
        demanded=_demanded(asked.tool_choice, tools),
        schema=None if tools else _answer_schema(asked.response_format),
        max_tokens=asked.max_completion_tokens or asked.max_tokens,
        custom=custom,
    )


def _demanded(choice: Any, tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The functions of which a client wants one called."""
    functions = [tool["function"] for tool in tools]
    if choice == "required" and not functions:
        raise BadRequest("tool_choice: 'required' needs tools", "tool_choice")
    if isinstance(choice, dict):
        function = choice.get("function")
        wanted = function.get("name") if isinstance(function, dict) else None
        functions = [each for each in functions if each["name"] == wanted]
        if not functions:
            named = printable(str(wanted))[:100]
            raise BadRequest(f"tool_choice: there is no tool {named!r} in tools", "tool_choice")
        return functions
    return functions if choice == "required" else []


def _answer_schema(form: dict[str, Any] | None) -> dict[str, Any] | None:
    asked = (form or {}).get("json_schema")
    schema = asked.get("schema") if isinstance(asked, dict) else None
    return schema if isinstance(schema, dict) else None


def as_asked(reply: ChatReply, question: Question) -> ChatReply:
    """A reply that calls the function it must, fits the schema it must, and is not too long."""
    called = [call["function"]["name"] for call in reply.message.value.get("tool_calls") or ()]
    names = [function["name"] for function in question.demanded]
    if names and not set(called) & set(names):
        name = names[0]
        arguments = canonical_json(
            example(question.demanded[0].get("parameters")) or {}
        ).decode()
        call_id = f"call_{derived_id(name, *(m.hash for m in question.request.messages[-1:]))}"
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        told: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
        reply = _with(reply, told, "tool_calls")
    elif question.schema is not None:
        content = canonical_json(example(question.schema)).decode()
        reply = _with(reply, {"role": "assistant", "content": content}, "stop")
    return reply if question.max_tokens is None else _cut(reply, question.max_tokens)


def _cut(reply: ChatReply, most: int) -> ChatReply:
    """A reply whose text, or the arguments of whose call, has at most so many tokens."""
    value = dict(reply.message.value)
    calls = value.get("tool_calls")
    text = calls[0]["function"]["arguments"] if calls else str(value.get("content") or "")
    if len(text) <= 4 * most:
        return reply
    if calls:
        function = {**calls[0]["function"], "arguments": text[: 4 * most]}
        value["tool_calls"] = [{**calls[0], "function": function}]
    else:
        value["content"] = text[: 4 * most]
    short = _with(reply, value, "length")
    return replace(short, usage=replace(short.usage, completion=most))


def _with(reply: ChatReply, value: dict[str, Any], reason: str) -> ChatReply:
    message = Message(value)
    usage = replace(reply.usage, completion=-(-len(message.encoded) // 4))
    return replace(reply, message=message, finish_reason=reason, usage=usage)


def explained(error: ValidationError, tags: frozenset[str] = _ROLES) -> BadRequest:
    """Explain why a body is not a request.

    `tags` are the kinds of items, which are no part of the name of a field.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ""
    for before, part in zip((None, *found["loc"]), found["loc"], strict=False):
        if isinstance(part, int):
            param += f"[{part}]"
        elif not (isinstance(before, int) and part in tags):
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


def pieces(text: str) -> Iterator[str]:
    """A text as a stream has it."""
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def completion(reply: ChatReply, question: Question, *, id: str, created: int) -> bytes:
    """A whole answer."""
    model = question.request.model
    head = f'{{"id":{json.dumps(id)},"object":"chat.completion","created":{created}'
    middle = f',"model":{json.dumps(model)},"choices":[{{"index":0,"message":'
    end = (
        f',"logprobs":null,"finish_reason":{json.dumps(reply.finish_reason)}}}]'
        f',"usage":{json.dumps(usage_of(reply.usage), separators=(",", ":"))}}}'
    )
    return b"".join((head.encode(), middle.encode(), reply.message.encoded, end.encode()))


def error_body(
    status: int, message: str, *, code: str | None = None, param: str | None = None
) -> bytes:
    """An answer that says what is wrong."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    kind = "requests" if status == 429 else kind
    return canonical_json(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}
    )
