"""The Messages protocol: parsing of requests and encoding of replies.

Everything is translated to the chat protocol. Texts of one message are joined, tool results
become separate messages, and thinking is dropped, because chat has no field for it. Tools that
a provider runs itself are not offered to the model. Independent of HTTP, models and faults.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, ValidationError, with_config
from typing_extensions import TypedDict

from assay.core.canonical_json import canonical_json
from assay.models.serving.chat_wire import (
    BadRequest,
    ChatBody,
    ParsedRequest,
    explain_error,
    split_text,
)
from assay.types import ChatReply, Usage

_OPEN: Final = ConfigDict(extra="allow", strict=True)
_DROPPED: Final = ("thinking", "redacted_thinking")
_ERRORS: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_STOPS: Final = {
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


@with_config(_OPEN)
class _ContentBlock(TypedDict):
    type: str


_Content = str | Annotated[list[_ContentBlock], Field(fail_fast=True)]


@with_config(_OPEN)
class _MessagesInput(TypedDict):
    role: Literal["user", "assistant", "system"]
    content: _Content


@with_config(_OPEN)
class _MessagesTool(TypedDict):
    type: NotRequired[str | None]
    name: str
    description: NotRequired[str | None]
    input_schema: NotRequired[dict[str, Any] | None]


class _MessagesRequest(BaseModel):
    """Fields of a request that are used; others are ignored."""

    model_config = ConfigDict(strict=True)
    model: str
    max_tokens: int
    messages: Annotated[list[_MessagesInput], Field(min_length=1, fail_fast=True)]
    system: _Content | None = None
    tools: Annotated[list[_MessagesTool], Field(fail_fast=True)] | None = None
    tool_choice: dict[str, Any] | None = None
    temperature: float | None = None
    stream: bool | None = None


def read_message_request(body: bytes) -> ParsedRequest:
    """Parse a request."""
    try:
        parsed = _MessagesRequest.model_validate_json(body)
    except ValidationError as error:
        raise explain_error(error) from None
    chat: ChatBody = {
        "model": parsed.model,
        "messages": _convert_messages(parsed),
        "tools": [
            _convert_tool(tool)
            for tool in parsed.tools or ()
            if (tool.get("type") or "custom") == "custom"
        ],
        "tool_choice": _convert_choice(parsed.tool_choice),
        "temperature": parsed.temperature,
        "max_completion_tokens": parsed.max_tokens,
        "stream": parsed.stream,
    }
    return ParsedRequest.of_chat(chat)


def _convert_messages(parsed: _MessagesRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if parsed.system:
        found.append({"role": "system", "content": _convert_content(parsed.system, "system")})
    for number, said in enumerate(parsed.messages):
        where = f"messages[{number}].content"
        content = said["content"]
        if isinstance(content, str):
            found.append({"role": said["role"], "content": content})
        elif said["role"] == "assistant":
            found.append(_convert_assistant(content, where))
        else:
            found += _convert_user(said["role"], content, where)
    return found


def _convert_assistant(blocks: Sequence[Any], where: str) -> dict[str, Any]:
    rest = [block for block in blocks if block["type"] != "tool_use"]
    calls = []
    for number, block in enumerate(blocks):
        if block["type"] != "tool_use":
            continue
        for key, kind in (("id", str), ("name", str), ("input", dict)):
            if not isinstance(block.get(key), kind):
                raise _make_error(
                    f"{where}[{number}].{key}", "a tool_use needs an id, a name and an input"
                )
        function = {"name": block["name"], "arguments": _encode_input(block["input"], where)}
        calls.append({"id": block["id"], "type": "function", "function": function})
    message: dict[str, Any] = {
        "role": "assistant",
        "content": (_convert_content(rest, where) or None)
        if calls
        else _convert_content(rest, where),
    }
    return {**message, "tool_calls": calls} if calls else message


def _convert_user(role: str, blocks: Sequence[Any], where: str) -> Iterator[dict[str, Any]]:
    rest = [block for block in blocks if block["type"] != "tool_result"]
    for number, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        place = f"{where}[{number}]"
        if not isinstance(block.get("tool_use_id"), str):
            raise _make_error(f"{place}.tool_use_id", "a tool_result needs a tool_use_id")
        content = _convert_content(block.get("content") or "", f"{place}.content")
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
    if rest or not blocks:
        yield {"role": role, "content": _convert_content(rest, where)}


def _convert_content(content: Any, where: str) -> str | list[dict[str, Any]]:
    """Convert content to one text or, if it has pictures, to parts of the chat protocol."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _make_error(where, "content must be text or a list of blocks")
    parts: list[dict[str, Any]] = []
    for number, block in enumerate(content):
        place = f"{where}[{number}]"
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append({"type": "text", "text": text})
            case {"type": "image", "source": {"type": "url", "url": str(url)}}:
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case {
                "type": "image",
                "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
            }:
                inline = {"url": f"data:{kind};base64,{data}"}
                parts.append({"type": "image_url", "image_url": inline})
            case {"type": kind} if kind in _DROPPED:
                continue
            case _:
                raise _make_error(
                    place, "a block must be text, image, tool_use, tool_result or thinking"
                )
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _make_error(where: str, message: str) -> BadRequest:
    return BadRequest(f"{where}: {message}", where)


def _encode_input(value: Any, where: str) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise _make_error(where, "an input contains a number that is too large") from None


def _convert_tool(tool: _MessagesTool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool["name"], "parameters": tool.get("input_schema")}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _convert_choice(choice: dict[str, Any] | None) -> Any:
    match (choice or {}).get("type"):
        case "any":
            return "required"
        case "tool":
            return {"type": "function", "function": {"name": (choice or {}).get("name")}}
        case kind:
            return kind


def format_message_usage(usage: Usage) -> dict[str, int]:
    """Convert token counts to the format of the protocol, with cached ones apart."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


def make_message(reply: ChatReply, question: ParsedRequest, *, id: str, created: int) -> bytes:
    """Build a complete (non-streaming) response."""
    body = {
        **_make_head(question, id),
        "content": list(_make_blocks(reply)),
        "stop_reason": _get_stop_reason(reply),
        "usage": format_message_usage(reply.usage),
    }
    return json.dumps(body).encode()


def _make_head(question: ParsedRequest, id: str) -> dict[str, Any]:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": question.request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _get_stop_reason(reply: ChatReply) -> str:
    return _STOPS.get(reply.finish_reason, "end_turn")


def _make_blocks(reply: ChatReply) -> Iterator[dict[str, Any]]:
    if reply.message.text:
        yield {"type": "text", "text": reply.message.text}
    for call in reply.message.value.get("tool_calls") or ():
        function = call["function"]
        head = {"type": "tool_use", "id": call["id"], "name": function["name"]}
        yield {**head, "input": _parse_arguments(function["arguments"])}


def _parse_arguments(arguments: str) -> dict[str, Any]:
    """Parse arguments as an object; empty if they were cut off or are invalid."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def make_message_events(
    reply: ChatReply, question: ParsedRequest, *, id: str, created: int
) -> Iterator[bytes]:
    """Yield the events of a streamed reply, including the last one."""
    usage = format_message_usage(reply.usage)
    begun = {**_make_head(question, id), "usage": {**usage, "output_tokens": 0}}
    yield _encode_event({"type": "message_start", "message": begun})
    texts = [reply.message.text] if reply.message.text else []
    calls = reply.message.value.get("tool_calls") or ()
    for index, block in enumerate(_make_blocks(reply)):
        place = {"index": index}
        if block["type"] == "text":
            empty, kind, text = {**block, "text": ""}, "text", texts[0]
        else:
            arguments = calls[index - len(texts)]["function"]["arguments"]
            empty, kind, text = {**block, "input": {}}, "input_json", arguments
        key = "text" if kind == "text" else "partial_json"
        yield _encode_event({"type": "content_block_start", **place, "content_block": empty})
        for piece in split_text(text):
            delta = {"type": f"{kind}_delta", key: piece}
            yield _encode_event({"type": "content_block_delta", **place, "delta": delta})
        yield _encode_event({"type": "content_block_stop", **place})
    ended = {"stop_reason": _get_stop_reason(reply), "stop_sequence": None}
    yield _encode_event({"type": "message_delta", "delta": ended, "usage": usage})
    yield _encode_event({"type": "message_stop"})


def _encode_event(value: dict[str, Any]) -> bytes:
    data = json.dumps(value, separators=(",", ":"))
    return f"event: {value['type']}\ndata: {data}\n\n".encode()


def make_message_error(
    status: int, message: str, *, code: str | None = None, param: str | None = None
) -> bytes:
    """Build the body of an error response; the protocol has no fields for code and param."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return canonical_json({"type": "error", "error": {"type": kind, "message": message}})
