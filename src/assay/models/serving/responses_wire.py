"""The Responses protocol: parsing of requests and encoding of replies.

Everything is translated to the chat protocol. Texts of one message are joined, consecutive
calls become one message, and reasoning is dropped, because chat has no field for it. A custom
tool, whose input is any text, becomes a function with one argument, `input`, and back again.
Hosted tools are not offered to the model, because the server cannot run them. Nothing is
stored, so a client sends the whole history. Independent of HTTP, models and faults.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

from assay.models.serving.chat_wire import (
    BadRequest,
    ChatBody,
    ParsedRequest,
    explain_error,
    split_text,
)
from assay.types import ChatReply, Usage

_OPEN: Final = ConfigDict(extra="allow", strict=True)
_INPUT: Final = "input"
"""Argument of the function that represents a custom tool."""
_DELTAS: Final = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}
"""Field with the input of a call, and the name of its events, by type."""


@with_config(_OPEN)
class _ResponsesPart(TypedDict):
    type: str
    text: NotRequired[str]
    image_url: NotRequired[str | None]


_Content = str | Annotated[list[_ResponsesPart], Field(fail_fast=True)]


@with_config(_OPEN)
class _ResponsesInput(TypedDict):
    role: Literal["user", "assistant", "system", "developer"]
    content: _Content


@with_config(_OPEN)
class _FunctionCall(TypedDict):
    call_id: str
    name: str
    arguments: str


@with_config(_OPEN)
class _CustomCall(TypedDict):
    call_id: str
    name: str
    input: str


@with_config(_OPEN)
class _Output(TypedDict):
    call_id: str
    output: _Content


@with_config(_OPEN)
class _Reasoning(TypedDict):
    type: Literal["reasoning"]


def _get_kind(item: Any) -> str | None:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else None


_Item = Annotated[
    Annotated[_ResponsesInput, Tag("message")]
    | Annotated[_FunctionCall, Tag("function_call")]
    | Annotated[_CustomCall, Tag("custom_tool_call")]
    | Annotated[_Output, Tag("function_call_output")]
    | Annotated[_Output, Tag("custom_tool_call_output")]
    | Annotated[_Reasoning, Tag("reasoning")],
    Discriminator(
        _get_kind,
        custom_error_type="item",
        custom_error_message="an item must be a message, function_call, function_call_output, "
        "custom_tool_call, custom_tool_call_output or reasoning",
    ),
]
_KINDS: Final = frozenset(
    {
        *("message", "function_call", "function_call_output", "reasoning"),
        *("custom_tool_call", "custom_tool_call_output"),
    }
)


@with_config(_OPEN)
class _ResponsesTool(TypedDict):
    type: str
    name: NotRequired[str]
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]


def _as_items(given: Any) -> Any:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


class _ResponsesRequest(BaseModel):
    """Fields of a request that are used; others are ignored."""

    model_config = ConfigDict(strict=True)
    model: str
    input: Annotated[
        list[_Item], Field(min_length=1, fail_fast=True), BeforeValidator(_as_items)
    ]
    instructions: str | None = None
    tools: Annotated[list[_ResponsesTool], Field(fail_fast=True)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    stream: bool | None = None


def read_response_request(body: bytes) -> ParsedRequest:
    """Parse a request."""
    try:
        parsed = _ResponsesRequest.model_validate_json(body)
    except ValidationError as error:
        raise explain_error(error, _KINDS) from None
    if parsed.previous_response_id is not None:
        raise BadRequest(
            "previous_response_id: responses are not stored; send the whole conversation as "
            "input",
            "previous_response_id",
        )
    custom = frozenset(
        tool["name"]
        for tool in parsed.tools or ()
        if tool["type"] == "custom" and "name" in tool
    )
    chat: ChatBody = {
        "model": parsed.model,
        "messages": _convert_messages(parsed),
        "tools": _convert_tools(parsed.tools or ()),
        "tool_choice": _convert_choice(parsed.tool_choice),
        "response_format": _convert_format(parsed.text),
        "temperature": parsed.temperature,
        "max_completion_tokens": parsed.max_output_tokens,
        "stream": parsed.stream,
    }
    return ParsedRequest.of_chat(chat, custom=custom)


def _convert_messages(parsed: _ResponsesRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if parsed.instructions:
        found.append({"role": "system", "content": parsed.instructions})
    calls: list[dict[str, Any]] = []
    for number, item in enumerate(parsed.input):
        kind, value = _get_kind(item), dict[str, Any](item)
        if kind == "reasoning":
            continue
        if kind == "message":
            content = _convert_content(value["content"], f"input[{number}].content")
            found.append({"role": value["role"], "content": content})
            calls = []
        elif kind in ("function_call", "custom_tool_call"):
            if not calls:
                if not found or found[-1]["role"] != "assistant":
                    found.append({"role": "assistant", "content": None})
                calls = found[-1]["tool_calls"] = []
            custom = kind == "custom_tool_call"
            arguments = json.dumps({_INPUT: value["input"]}) if custom else value["arguments"]
            function = {"name": value["name"], "arguments": arguments}
            calls.append({"id": value["call_id"], "type": "function", "function": function})
        else:
            content = _convert_content(value["output"], f"input[{number}].output")
            result = {"role": "tool", "tool_call_id": value["call_id"], "content": content}
            found.append(result)
            calls = []
    return found


def _convert_content(content: Any, where: str) -> str | list[dict[str, Any]]:
    """Convert content to one text or, if it has pictures, to parts of the chat protocol."""
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for number, part in enumerate(content):
        match part["type"]:
            case "input_text" | "output_text" | "text":
                parts.append({"type": "text", "text": part.get("text", "")})
            case "refusal":
                parts.append({"type": "text", "text": str(part.get("refusal", ""))})
            case "input_image" if part.get("image_url"):
                url = {"url": part["image_url"]}
                parts.append({"type": "image_url", "image_url": url})
            case _:
                raise BadRequest(
                    f"{where}[{number}]: a part must be input_text, output_text, refusal, or "
                    "input_image with an image_url",
                    f"{where}[{number}]",
                )
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _convert_tools(tools: Sequence[_ResponsesTool]) -> list[dict[str, Any]]:
    found = []
    for number, tool in enumerate(tools):
        if tool["type"] not in ("function", "custom"):
            continue
        if "name" not in tool:
            raise BadRequest(f"tools[{number}].name: Field required", f"tools[{number}].name")
        parameters = tool.get("parameters")
        if tool["type"] == "custom":
            parameters = {
                "type": "object",
                "properties": {_INPUT: {"type": "string"}},
                "required": [_INPUT],
                "additionalProperties": False,
            }
        function = {"name": tool["name"], "parameters": parameters}
        if tool.get("description"):
            function["description"] = tool["description"]
        found.append({"type": "function", "function": function})
    return found


def _convert_choice(choice: str | dict[str, Any] | None) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        return choice.get("mode")
    return {"type": "function", "function": {"name": choice.get("name")}}


def _convert_format(text: dict[str, Any] | None) -> dict[str, Any] | None:
    form = (text or {}).get("format")
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    return {"type": "json_schema", "json_schema": {"schema": form.get("schema")}}


def format_response_usage(usage: Usage) -> dict[str, Any]:
    """Convert token counts to the format of the protocol."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }


def make_response(reply: ChatReply, question: ParsedRequest, *, id: str, created: int) -> bytes:
    """Build a complete (non-streaming) response."""
    items = list(_make_items(reply, question, id))
    return json.dumps(_make_final(reply, question, id, created, items)).encode()


def _make_head(question: ParsedRequest, id: str, created: int) -> dict[str, Any]:
    request = question.request
    return {
        "id": id,
        "object": "response",
        "created_at": created,
        "model": request.model,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": question.max_tokens,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": request.temperature,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def _make_final(
    reply: ChatReply,
    question: ParsedRequest,
    id: str,
    created: int,
    items: list[dict[str, Any]],
) -> dict[str, Any]:
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(
        reply.finish_reason
    )
    return {
        **_make_head(question, id, created),
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": items,
        "usage": format_response_usage(reply.usage),
    }


def _make_items(reply: ChatReply, question: ParsedRequest, id: str) -> Iterator[dict[str, Any]]:
    stem = id.partition("_")[2]
    calls = reply.message.value.get("tool_calls") or ()
    if reply.message.text or not calls:
        text = {"type": "output_text", "text": reply.message.text, "annotations": []}
        yield {
            "id": f"msg_{stem}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
    for number, call in enumerate(calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        head = {"status": "completed", "call_id": call["id"], "name": name}
        if name in question.custom:
            yield {
                "id": f"ctc_{stem}{number}",
                "type": "custom_tool_call",
                **head,
                "input": _parse_custom_input(arguments),
            }
        else:
            yield {
                "id": f"fc_{stem}{number}",
                "type": "function_call",
                **head,
                "arguments": arguments,
            }


def _parse_custom_input(arguments: str) -> str:
    try:
        given = json.loads(arguments)
    except ValueError:
        return arguments  # the model wrote the text itself
    value = given.get(_INPUT) if isinstance(given, dict) else None
    return value if isinstance(value, str) else arguments


def make_response_events(
    reply: ChatReply, question: ParsedRequest, *, id: str, created: int
) -> Iterator[bytes]:
    """Yield the events of a streamed reply, including the last one."""
    head = _make_head(question, id, created)
    items = list(_make_items(reply, question, id))
    ended = _make_final(reply, question, id, created, items)
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": head},
        {"type": "response.in_progress", "response": head},
    ]
    for index, item in enumerate(items):
        events += _make_item_events(index, item)
    events.append({"type": f"response.{ended['status']}", "response": ended})
    for number, event in enumerate(events):
        data = json.dumps({**event, "sequence_number": number}, separators=(",", ":"))
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()


def _make_item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    started = {**item, "status": "in_progress"}
    if item["type"] == "message":
        (part,) = item["content"]
        text = part["text"]
        here = {**place, "content_index": 0}
        opened = {**started, "content": []}
        yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        empty = {**part, "text": ""}
        yield {"type": "response.content_part.added", **here, "part": empty}
        for piece in split_text(text):
            yield {
                "type": "response.output_text.delta",
                **here,
                "delta": piece,
                "logprobs": [],
            }
        yield {"type": "response.output_text.done", **here, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **here, "part": part}
    else:
        key, deltas = _DELTAS[item["type"]]
        name = f"response.{deltas}"
        opened = {**started, key: ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        for piece in split_text(item[key]):
            yield {"type": f"{name}.delta", **place, "delta": piece}
        yield {"type": f"{name}.done", **place, key: item[key], "name": item["name"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
