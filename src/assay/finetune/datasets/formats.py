"""Formats of a row, and parsing each of them back to messages and tools.

A format defines how a message is written and how the messages of a row are joined. A message
occurs in many rows, so it is written once and its text is reused. Chat formats without tools
show them as text in the style of Hermes, like the templates of many open models: `<tools>`,
`<tool_call>` and `<tool_response>`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from assay.errors import UsageError


class RowFormat(StrEnum):
    """Format of a row."""

    OPENAI = "openai"
    """messages, tools and weight, as used by OpenAI's fine-tuning."""
    MESSAGES = "messages"
    """Messages with only a role and text."""
    TRL = "trl"
    """messages, and tools as JSON text, for TRL and `datasets`."""
    SHAREGPT = "sharegpt"
    """conversations of from and value, for LLaMA-Factory and axolotl."""
    PREFERENCE = "preference"
    """A request and two answers, the better one first, in OpenAI's format."""
    PREFERENCE_TRL = "preference-trl"
    """A request and two answers as prompt, chosen and rejected, for TRL."""
    PROMPTS = "prompts"
    """messages without an answer, the state of the world, and the reward from there on."""


_TOOLS_START: Final = "\n\n# Tools\n\n<tools>\n"
_TOOLS_END: Final = "\n</tools>"
_CALL_PATTERN: Final = re.compile(r"\n?<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_CALL_PARTS: Final = re.compile(
    r'\{"name": ("(?:[^"\\]|\\.)*"), "arguments": (.*)\}', re.DOTALL
)
_RESPONSE_TAGS: Final = ("<tool_response>\n", "\n</tool_response>")
_SHAREGPT_ROLES: Final = {
    "system": "system",
    "user": "human",
    "assistant": "gpt",
    "tool": "observation",
}

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(slots=True)
class RowWriter:
    """Writes rows in one format."""

    form: RowFormat
    train_history: bool = False
    """Whether answers in the prompt are trained too, in formats with weights."""
    prompt_completion: bool = False
    """For TRL: write prompt and completion instead of messages."""

    def format_message(self, body: str, role: str, *, trained: bool, tools: str | None) -> str:
        """Format one message as JSON text; pass `tools` only for the first message of a row."""
        if self.form is RowFormat.OPENAI:
            if role == "assistant" and not trained and not self.train_history:
                return f'{body[:-1]},"weight":0}}'
            return body
        if self.form in (RowFormat.TRL, RowFormat.PROMPTS):
            return body
        message = json.loads(body)
        if self.form is RowFormat.MESSAGES:
            return ",".join(map(_dumps, convert_to_text_messages(message, tools)))
        return ",".join(map(_dumps, _convert_to_sharegpt(message)))

    @property
    def head(self) -> bytes:
        """Start of a row, before its first message."""
        if self.prompt_completion:
            return b'{"prompt":['
        name = b"conversations" if self.form is RowFormat.SHAREGPT else b"messages"
        return b'{"%b":[' % name

    @property
    def between(self) -> bytes:
        """Separator between the prompt and the messages after it."""
        return b'],"completion":[' if self.prompt_completion else b","

    def format_tail(self, tools: str | None) -> bytes:
        """Return the end of a row, after its last message."""
        if tools is None or self.form is RowFormat.MESSAGES:
            return b"]}\n"
        is_json = self.form in (RowFormat.OPENAI, RowFormat.PROMPTS)
        tools_text = tools if is_json else _dumps(tools)
        return b'],"tools":%b}\n' % tools_text.encode()


def get_message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, whose content may be a text or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _format_call(call: Mapping[str, Any]) -> str:
    """Format a tool call in the style of Hermes; arguments that are JSON are kept verbatim."""
    function = call.get("function", {})
    raw = function.get("arguments", "")
    try:
        is_object = isinstance(json.loads(raw), dict)
    except (TypeError, ValueError):
        is_object = False
    arguments = raw if is_object else _dumps(raw)
    return f'{{"name": {_dumps(function.get("name", ""))}, "arguments": {arguments}}}'


def convert_to_text_messages(
    message: Mapping[str, Any], tools: str | None
) -> list[dict[str, str]]:
    """Convert a message to role and text, preceded by a system message if tools need one."""
    role, text = str(message.get("role")), get_message_text(message)
    messages: list[dict[str, str]] = []
    if role == "assistant":
        calls = "\n".join(
            f"<tool_call>\n{_format_call(call)}\n</tool_call>"
            for call in message.get("tool_calls") or ()
        )
        text = "\n".join(filter(None, (text, calls)))
    elif role == "tool":
        role, text = "user", text.join(_RESPONSE_TAGS)
    if tools is not None:
        tool_lines = "\n".join(map(_dumps, json.loads(tools)))
        tools_text = f"{_TOOLS_START}{tool_lines}{_TOOLS_END}"
        if role == "system":
            text += tools_text
        else:
            messages.append({"role": "system", "content": tools_text.lstrip("\n")})
    return [*messages, {"role": role, "content": text}]


def _convert_to_sharegpt(message: Mapping[str, Any]) -> list[dict[str, str]]:
    """Convert a message to the sharegpt format of LLaMA-Factory."""
    role, text = str(message.get("role")), get_message_text(message)
    calls = [_format_call(call) for call in message.get("tool_calls") or ()]
    if calls and not text:
        value = calls[0] if len(calls) == 1 else f"[{', '.join(calls)}]"
        return [{"from": "function_call", "value": value}]
    if calls:
        text = "\n".join((text, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)))
    return [{"from": _SHAREGPT_ROLES.get(role, role), "value": text}]


class RowContent(NamedTuple):
    """Content of a row, independent of its format."""

    form: str
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    prompt: int = 0
    """Number of leading messages that are a prompt and never trained."""

    def is_trained(self, index: int) -> bool:
        """Return whether a message is an answer to train."""
        message = self.messages[index]
        is_answer = message.get("role") == "assistant" and message.get("weight") != 0
        return is_answer and index >= self.prompt


def read_row(row: Any) -> RowContent:
    """Parse a row in any of these formats.

    Raises:
        UsageError: The row has none of the formats.
    """
    if not isinstance(row, Mapping):
        raise UsageError("is not a JSON object")
    tools = row.get("tools")
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError as error:
            raise UsageError("tools is text but not valid JSON") from error
    if tools is not None and not isinstance(tools, list):
        raise UsageError("tools is not a list")
    if "preferred_output" in row and isinstance(row.get("input"), Mapping):
        request = _get_messages(row["input"], "messages")
        _get_messages(row, "non_preferred_output")
        answer = _get_messages(row, "preferred_output")
        request_tools = row["input"].get("tools")
        request_tools = request_tools if isinstance(request_tools, list) else None
        return RowContent("preference", [*request, *answer], request_tools, len(request))
    if "chosen" in row and "rejected" in row and "prompt" in row:
        request, answer = _get_messages(row, "prompt"), _get_messages(row, "chosen")
        _get_messages(row, "rejected")
        return RowContent("preference-trl", [*request, *answer], tools, len(request))
    if "messages" in row and "snapshot" in row:
        messages = _get_messages(row, "messages")
        return RowContent("prompts", messages, tools, len(messages))
    if "messages" in row:
        form = "trl" if isinstance(row.get("tools"), str) else "openai"
        messages = _get_messages(row, "messages")
        if tools is None and messages:
            first = messages[0].get("content")
            if isinstance(first, str) and first.endswith(_TOOLS_END):
                return RowContent("messages", *_parse_text_messages(messages))
        return RowContent(form, messages, tools)
    if "conversations" in row:
        turns = _get_messages(row, "conversations")
        return RowContent("sharegpt", [_parse_sharegpt_turn(turn) for turn in turns], tools)
    if "completion" in row and "prompt" in row:
        prompt, completion = _get_messages(row, "prompt"), _get_messages(row, "completion")
        return RowContent("trl", [*prompt, *completion], tools, len(prompt))
    names = ", ".join(list(map(str, row))[:5]) or "nothing"
    raise UsageError(
        f"has none of messages, conversations, or prompt and completion; it has {names}"
    )


def read_row_as_written(row: Any) -> RowContent:
    """Parse a row for a chat template, which needs the messages as written in the file.

    Unlike `read_row`, it keeps tools and calls of the format `messages` as text.

    Raises:
        UsageError: The row has none of the formats.
    """
    content = read_row(row)
    if content.form == RowFormat.MESSAGES:
        return RowContent(content.form, row["messages"], None)
    return content


def _get_messages(row: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    messages = row[name]
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) for message in messages
    ):
        raise UsageError(f"{name} is not a list of objects")
    return messages


def _parse_sharegpt_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    sender, value = turn.get("from"), turn.get("value")
    roles = {name: role for role, name in _SHAREGPT_ROLES.items()}
    if sender == "function_call" and isinstance(value, str):
        calls = _parse_calls(value)
        if calls is not None:
            return {"role": "assistant", "content": None, "tool_calls": calls}
    return parse_calls_in_text({"role": roles.get(str(sender), str(sender)), "content": value})


def _parse_calls(value: str) -> list[dict[str, Any]] | None:
    try:
        parsed = json.loads(value)
    except ValueError:
        return None
    if isinstance(parsed, dict):
        call = _parse_call(value, 0)
        return None if call is None else [call]
    if not isinstance(parsed, list):
        return None
    calls = [
        _parse_call(_format_parsed_call(call_value), index)
        for index, call_value in enumerate(parsed)
    ]
    return [call for call in calls if call is not None]


def _format_parsed_call(value: Any) -> str:
    fields = value if isinstance(value, dict) else {}
    arguments = _dumps(fields.get("arguments"))
    return f'{{"name": {_dumps(fields.get("name", ""))}, "arguments": {arguments}}}'


def _parse_call(text: str, index: int) -> dict[str, Any] | None:
    match = _CALL_PARTS.fullmatch(text.strip())
    if match is None:
        return None
    raw = match[2]
    arguments = json.loads(raw) if raw.startswith('"') else raw
    function = {"name": json.loads(match[1]), "arguments": arguments}
    return {"id": f"call_{index}", "type": "function", "function": function}


def parse_calls_in_text(message: dict[str, Any]) -> dict[str, Any]:
    """Parse tool calls and tool responses that are written in the text of a message."""
    text = message.get("content")
    if not isinstance(text, str):
        return message
    if message["role"] == "assistant" and "<tool_call>" in text:
        calls = [
            _parse_call(call_text, index)
            for index, call_text in enumerate(_CALL_PATTERN.findall(text))
        ]
        if all(call is not None for call in calls):
            remaining = _CALL_PATTERN.sub("", text)
            return {**message, "content": remaining or None, "tool_calls": calls}
    if message["role"] == "user" and text.startswith(_RESPONSE_TAGS[0]):
        return {
            "role": "tool",
            "content": text[len(_RESPONSE_TAGS[0]) : -len(_RESPONSE_TAGS[1])],
        }
    return message


def _parse_text_messages(
    messages: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """Convert rows of the format `messages` back to messages with tool calls, and tools."""
    tools: list[Any] | None = None
    parsed = [parse_calls_in_text(message) for message in messages]
    if parsed and parsed[0].get("role") == "system":
        system_text, separator, rest = f"\n\n{parsed[0].get('content')}".rpartition(
            _TOOLS_START
        )
        if separator and rest.endswith(_TOOLS_END):
            lines = rest[: -len(_TOOLS_END)].splitlines()
            tools = [json.loads(line) for line in lines]
            system_text = system_text.removeprefix("\n\n")
            parsed = (
                [{**parsed[0], "content": system_text}, *parsed[1:]]
                if system_text
                else parsed[1:]
            )
    return parsed, tools
