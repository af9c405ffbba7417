"""The chat completions protocol: parsing of requests and encoding of replies.

Messages are passed on unchanged: the model receives what was sent, and its message is in the
response byte for byte, unless the client requires a function, a JSON schema, or fewer tokens.
Independent of HTTP, models and faults. The other protocols, `responses` and `messages`, are
translated to this one.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, ValidationError, with_config
from typing_extensions import TypedDict

from assay.core.canonical_json import canonical_json, derive_id
from assay.core.text import printable
from assay.models.serving.scripted import example
from assay.types import ChatReply, ChatRequest, Encoded, Message, Usage

_MAX_NAME: Final = 512
_MAX_TOKENS: Final = 10_000_000
_PIECE: Final = 64
"""Characters of text per event."""
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_OPEN: Final = ConfigDict(extra="allow", strict=True)


@with_config(_OPEN)
class _ContentPart(TypedDict):
    type: str


_Content = str | Annotated[list[_ContentPart], Field(fail_fast=True)]


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
class _AssistantMessage(TypedDict):
    role: Literal["assistant"]
    content: NotRequired[_Content | None]
    tool_calls: NotRequired[Annotated[list[_ToolCall], Field(fail_fast=True)] | None]


@with_config(_OPEN)
class _ToolMessage(TypedDict):
    role: Literal["tool"]
    content: _Content
    tool_call_id: str


@with_config(_OPEN)
class _FunctionDefinition(TypedDict):
    name: Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]
    parameters: NotRequired[dict[str, Any] | None]


@with_config(_OPEN)
class _Tool(TypedDict):
    type: Literal["function"]
    function: _FunctionDefinition


class _StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True)
    include_usage: bool | None = None


_Tokens = Annotated[int, Field(ge=1, le=_MAX_TOKENS)]
_Message = Annotated[
    _PromptMessage | _AssistantMessage | _ToolMessage, Field(discriminator="role")
]


class _Request(BaseModel):
    """Fields of a request that are used; others are ignored."""

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
    """A chat request translated from another protocol; it is checked like a received one."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    tool_choice: Any
    response_format: dict[str, Any] | None
    temperature: float | None
    max_completion_tokens: int | None
    stream: bool | None


class BadRequest(Exception):
    """An invalid request; `param` is the invalid field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A parsed request, with the required form of its response."""

    request: ChatRequest
    stream: bool
    include_usage: bool
    """Whether a stream ends with token counts."""
    demanded: Sequence[Mapping[str, Any]] = ()
    """Functions of which one must be called; empty if no call is required."""
    schema: dict[str, Any] | None = None
    """JSON schema of the reply, if there are no tools."""
    max_tokens: int | None = None
    """Maximum length of the reply, if the client sets one."""
    custom: frozenset[str] = frozenset()
    """Functions that are custom tools in the client's protocol."""

    @classmethod
    def of_chat(
        cls, body: ChatBody, *, custom: frozenset[str] = frozenset()
    ) -> "ParsedRequest":
        """Parse a request that was translated from another protocol."""
        try:
            parsed = _Request.model_validate(body)
        except ValidationError as error:
            raise explain_error(error) from None
        return _make_question(parsed, custom)


def read_request(body: bytes) -> ParsedRequest:
    """Parse a request."""
    try:
        parsed = _Request.model_validate_json(body)
    except ValidationError as error:
        raise explain_error(error) from None
    return _make_question(parsed)


def _make_question(parsed: _Request, custom: frozenset[str] = frozenset()) -> ParsedRequest:
    tools = [] if parsed.tool_choice == "none" else parsed.tools or []
    try:
        request = ChatRequest(
            model=parsed.model,
            messages=[Message(message) for message in parsed.messages],
            tools=Encoded(tools),
            temperature=parsed.temperature,
            max_tokens=parsed.max_completion_tokens or parsed.max_tokens or 1024,
            seed=parsed.seed,
        )
    except (ValueError, RecursionError):
        # An unknown key has a number that JSON cannot represent.
        raise BadRequest("a message or tool contains a number that is too large") from None
    usage = parsed.stream_options is not None and bool(parsed.stream_options.include_usage)
    return ParsedRequest(
        request,
        bool(parsed.stream),
        usage,
        demanded=_find_required(parsed.tool_choice, tools),
        schema=None if tools else _get_schema(parsed.response_format),
        max_tokens=parsed.max_completion_tokens or parsed.max_tokens,
        custom=custom,
    )


def _find_required(choice: Any, tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    functions = [tool["function"] for tool in tools]
    if choice == "required" and not functions:
        raise BadRequest("tool_choice: 'required' needs tools", "tool_choice")
    if isinstance(choice, dict):
        function = choice.get("function")
        wanted = function.get("name") if isinstance(function, dict) else None
        functions = [function for function in functions if function["name"] == wanted]
        if not functions:
            name = printable(str(wanted))[:100]
            raise BadRequest(f"tool_choice: tool {name!r} is not in tools", "tool_choice")
        return functions
    return functions if choice == "required" else []


def _get_schema(form: dict[str, Any] | None) -> dict[str, Any] | None:
    parsed = (form or {}).get("json_schema")
    schema = parsed.get("schema") if isinstance(parsed, dict) else None
    return schema if isinstance(schema, dict) else None


def adapt_reply(reply: ChatReply, question: ParsedRequest) -> ChatReply:
    """Adapt a reply to the required function, schema and length."""
    called = [call["function"]["name"] for call in reply.message.value.get("tool_calls") or ()]
    names = [function["name"] for function in question.demanded]
    if names and not set(called) & set(names):
        name = names[0]
        arguments = canonical_json(
            example(question.demanded[0].get("parameters")) or {}
        ).decode()
        call_id = f"call_{derive_id(name, *(m.hash for m in question.request.messages[-1:]))}"
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        value: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
        reply = _with_message(reply, value, "tool_calls")
    elif question.schema is not None:
        content = canonical_json(example(question.schema)).decode()
        reply = _with_message(reply, {"role": "assistant", "content": content}, "stop")
    return reply if question.max_tokens is None else _truncate(reply, question.max_tokens)


def _truncate(reply: ChatReply, most: int) -> ChatReply:
    """Truncate the text of a reply, or the arguments of its call, to a number of tokens."""
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
    short = _with_message(reply, value, "length")
    return replace(short, usage=replace(short.usage, completion=most))


def _with_message(reply: ChatReply, value: dict[str, Any], reason: str) -> ChatReply:
    message = Message(value)
    usage = replace(reply.usage, completion=-(-len(message.encoded) // 4))
    return replace(reply, message=message, finish_reason=reason, usage=usage)


def explain_error(error: ValidationError, tags: frozenset[str] = _ROLES) -> BadRequest:
    """Convert a validation error to a BadRequest.

    Args:
        error: The validation error.
        tags: Names of item kinds in error locations, which are not part of a field's name.
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


def format_usage(usage: Usage) -> dict[str, Any]:
    """Convert token counts to the format of the protocol."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def split_text(text: str) -> Iterator[str]:
    """Split a text into the pieces of a stream."""
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def make_completion(
    reply: ChatReply, question: ParsedRequest, *, id: str, created: int
) -> bytes:
    """Build a complete (non-streaming) response."""
    model = question.request.model
    head = f'{{"id":{json.dumps(id)},"object":"chat.completion","created":{created}'
    middle = f',"model":{json.dumps(model)},"choices":[{{"index":0,"message":'
    end = (
        f',"logprobs":null,"finish_reason":{json.dumps(reply.finish_reason)}}}]'
        f',"usage":{json.dumps(format_usage(reply.usage), separators=(",", ":"))}}}'
    )
    return b"".join((head.encode(), middle.encode(), reply.message.encoded, end.encode()))


def error_body(
    status: int, message: str, *, code: str | None = None, param: str | None = None
) -> bytes:
    """Build the body of an error response."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    kind = "requests" if status == 429 else kind
    return canonical_json(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}
    )
