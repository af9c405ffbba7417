"""The wire protocol of messages: bytes in, `Question`; `ChatReply`, bytes or events out.

Everything is translated to the shapes of chat. Texts of one message are joined, results of
tools become messages of their own, and thinking is left out, since chat has no place for it.
Tools that a provider would run itself are not offered to the model. Knows nothing of HTTP,
models or faults.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, ValidationError, with_config
from typing_extensions import TypedDict

from assay.core.canonical_json import canonical_json
from assay.models.serving.chat_wire import BadRequest, ChatBody, Question, explained, pieces
from assay.types import ChatReply, Usage

_OPEN: Final = ConfigDict(extra="allow", strict=True)
_LEFT_OUT: Final = ("thinking", "redacted_thinking")
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
class _InputMessage(TypedDict):
    role: Literal["user", "assistant", "system"]
    content: _Content


@with_config(_OPEN)
class _MessagesTool(TypedDict):
    type: NotRequired[str | None]
    name: str
    description: NotRequired[str | None]
    input_schema: NotRequired[dict[str, Any] | None]


class _MessagesRequest(BaseModel):
    """What is used of a request; all else that clients send is ignored."""

    model_config = ConfigDict(strict=True)
    model: str
    max_tokens: int
    messages: Annotated[list[_InputMessage], Field(min_length=1, fail_fast=True)]
    system: _Content | None = None
    tools: Annotated[list[_MessagesTool], Field(fail_fast=True)] | None = None
    tool_choice: dict[str, Any] | None = None
    temperature: float | None = None
    stream: bool | None = None


def read_message_request(body: bytes) -> Question:
    """What a body asks."""
    try:
        asked = _MessagesRequest.model_validate_json(body)
    except ValidationError as error:
        raise explained(error) from None
    chat: ChatBody = {
        "model": asked.model,
        "messages": _messages(asked),
        "tools": [
            _function(tool)
            for tool in asked.tools or ()
            if (tool.get("type") or "custom") == "custom"
        ],
        "tool_choice": _choice(asked.tool_choice),
        "temperature": asked.temperature,
        "max_completion_tokens": asked.max_tokens,
        "stream": asked.stream,
    }
    return Question.of_chat(chat)


def _messages(asked: _MessagesRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if asked.system:
        found.append({"role": "system", "content": _chat_content(asked.system, "system")})
    for number, said in enumerate(asked.messages):
        where = f"messages[{number}].content"
        content = said["content"]
        if isinstance(content, str):
            found.append({"role": said["role"], "content": content})
        elif said["role"] == "assistant":
            found.append(_answered(content, where))
        else:
            found += _told(said["role"], content, where)
    return found


def _answered(blocks: Sequence[Any], where: str) -> dict[str, Any]:
    rest = [block for block in blocks if block["type"] != "tool_use"]
    calls = []
    for number, block in enumerate(blocks):
        if block["type"] != "tool_use":
            continue
        for key, kind in (("id", str), ("name", str), ("input", dict)):
            if not isinstance(block.get(key), kind):
                raise _bad(
                    f"{where}[{number}].{key}", "a tool_use has an id, a name and an input"
                )
        function = {"name": block["name"], "arguments": _dumped(block["input"], where)}
        calls.append({"id": block["id"], "type": "function", "function": function})
    message: dict[str, Any] = {
        "role": "assistant",
        "content": (_chat_content(rest, where) or None)
        if calls
        else _chat_content(rest, where),
    }
    return {**message, "tool_calls": calls} if calls else message


def _told(role: str, blocks: Sequence[Any], where: str) -> Iterator[dict[str, Any]]:
    rest = [block for block in blocks if block["type"] != "tool_result"]
    for number, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        place = f"{where}[{number}]"
        if not isinstance(block.get("tool_use_id"), str):
            raise _bad(f"{place}.tool_use_id", "a tool_result names the tool_use it belongs to")
        content = _chat_content(block.get("content") or "", f"{place}.content")
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
    if rest or not blocks:
        yield {"role": role, "content": _chat_content(rest, where)}


def _chat_content(content: Any, where: str) -> str | list[dict[str, Any]]:
    """Texts as one text; with pictures among them, parts as chat has them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _bad(where, "content is a text or a list of blocks")
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
            case {"type": kind} if kind in _LEFT_OUT:
                continue
            case _:
                raise _bad(place, "blocks are text, image, tool_use, tool_result or thinking")
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _bad(where: str, message: str) -> BadRequest:
    return BadRequest(f"{where}: {message}", where)


def _dumped(value: Any, where: str) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise _bad(where, "an input holds a number that is too large") from None


def _function(tool: _MessagesTool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool["name"], "parameters": tool.get("input_schema")}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _choice(choice: dict[str, Any] | None) -> Any:
    match (choice or {}).get("type"):
        case "any":
            return "required"
        case "tool":
            return {"type": "function", "function": {"name": (choice or {}).get("name")}}
        case kind:
            return kind


def message_usage(usage: Usage) -> dict[str, int]:
    """Tokens in the words of the protocol: what was read from a cache is counted by itself."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


def message_answer(reply: ChatReply, question: Question, *, id: str, created: int) -> bytes:
    """A whole answer."""
    told = {
        **_head(question, id),
        "content": list(_blocks(reply)),
        "stop_reason": _stop(reply),
        "usage": message_usage(reply.usage),
    }
    return json.dumps(told).encode()


def _head(question: Question, id: str) -> dict[str, Any]:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": question.request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop(reply: ChatReply) -> str:
    return _STOPS.get(reply.finish_reason, "end_turn")


def _blocks(reply: ChatReply) -> Iterator[dict[str, Any]]:
    if reply.message.text:
        yield {"type": "text", "text": reply.message.text}
    for call in reply.message.value.get("tool_calls") or ():
        function = call["function"]
        told = {"id": call["id"], "name": function["name"]}
        yield {"type": "tool_use", **told, "input": _object(function["arguments"])}


def _object(arguments: str) -> dict[str, Any]:
    """Arguments as an object; nothing where they were cut off or are none."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def message_events(
    reply: ChatReply, question: Question, *, id: str, created: int
) -> Iterator[bytes]:
    """The events of a reply, the last one included."""
    usage = message_usage(reply.usage)
    begun = {**_head(question, id), "usage": {**usage, "output_tokens": 0}}
    yield _event({"type": "message_start", "message": begun})
    texts = [reply.message.text] if reply.message.text else []
    calls = reply.message.value.get("tool_calls") or ()
    for index, block in enumerate(_blocks(reply)):
        place = {"index": index}
        if block["type"] == "text":
            empty, kind, text = {**block, "text": ""}, "text", texts[0]
        else:
            arguments = calls[index - len(texts)]["function"]["arguments"]
            empty, kind, text = {**block, "input": {}}, "input_json", arguments
        key = "text" if kind == "text" else "partial_json"
        yield _event({"type": "content_block_start", **place, "content_block": empty})
        for piece in pieces(text):
            delta = {"type": f"{kind}_delta", key: piece}
            yield _event({"type": "content_block_delta", **place, "delta": delta})
        yield _event({"type": "content_block_stop", **place})
    ended = {"stop_reason": _stop(reply), "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": ended, "usage": usage})
    yield _event({"type": "message_stop"})


def _event(value: dict[str, Any]) -> bytes:
    data = json.dumps(value, separators=(",", ":"))
    return f"event: {value['type']}\ndata: {data}\n\n".encode()


def message_error(
    status: int, message: str, *, code: str | None = None, param: str | None = None
) -> bytes:
    """An answer that says what is wrong; the protocol has no place for a code or a field."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return canonical_json({"type": "error", "error": {"type": kind, "message": message}})
