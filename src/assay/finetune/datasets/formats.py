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


_TOOLS: Final = "\n\n# Tools\n\n<tools>\n"
_END_TOOLS: Final = "\n</tools>"
_CALL: Final = re.compile(r"\n?<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_NAMED: Final = re.compile(r'\{"name": ("(?:[^"\\]|\\.)*"), "arguments": (.*)\}', re.DOTALL)
_RESPONSE: Final = ("<tool_response>\n", "\n</tool_response>")
_ROLES: Final = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(slots=True)
class RowWriter:
    """Writes rows in one format."""

    form: RowFormat
    train_history: bool = False
    """Whether answers in the prompt are trained too, in formats with weights."""
    prompt_completion: bool = False
    """For TRL: write prompt and completion instead of messages."""

    def fragment(self, body: str, role: str, *, trained: bool, tools: str | None) -> str:
        """Format one message as JSON text; pass `tools` only for the first message of a row."""
        if self.form is RowFormat.OPENAI:
            if role == "assistant" and not trained and not self.train_history:
                return f'{body[:-1]},"weight":0}}'
            return body
        if self.form in (RowFormat.TRL, RowFormat.PROMPTS):
            return body
        message = json.loads(body)
        if self.form is RowFormat.MESSAGES:
            return ",".join(map(_dumps, in_words(message, tools)))
        return ",".join(map(_dumps, _in_turns(message)))

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

    def tail(self, tools: str | None) -> bytes:
        """Return the end of a row, after its last message."""
        if tools is None or self.form is RowFormat.MESSAGES:
            return b"]}\n"
        plain = self.form in (RowFormat.OPENAI, RowFormat.PROMPTS)
        offered = tools if plain else _dumps(tools)
        return b'],"tools":%b}\n' % offered.encode()


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, whose content may be a text or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _call_text(call: Mapping[str, Any]) -> str:
    """Format a tool call in the style of Hermes; arguments that are JSON are kept verbatim."""
    function = call.get("function", {})
    raw = function.get("arguments", "")
    try:
        is_object = isinstance(json.loads(raw), dict)
    except (TypeError, ValueError):
        is_object = False
    arguments = raw if is_object else _dumps(raw)
    return f'{{"name": {_dumps(function.get("name", ""))}, "arguments": {arguments}}}'


def in_words(message: Mapping[str, Any], tools: str | None) -> list[dict[str, str]]:
    """Convert a message to role and text, preceded by a system message if tools need one."""
    role, text = str(message.get("role")), message_text(message)
    written: list[dict[str, str]] = []
    if role == "assistant":
        calls = "\n".join(
            f"<tool_call>\n{_call_text(call)}\n</tool_call>"
            for call in message.get("tool_calls") or ()
        )
        text = "\n".join(filter(None, (text, calls)))
    elif role == "tool":
        role, text = "user", text.join(_RESPONSE)
    if tools is not None:
        offered = "\n".join(map(_dumps, json.loads(tools)))
        shown = f"{_TOOLS}{offered}{_END_TOOLS}"
        if role == "system":
            text += shown
        else:
            written.append({"role": "system", "content": shown.lstrip("\n")})
    return [*written, {"role": role, "content": text}]


def _in_turns(message: Mapping[str, Any]) -> list[dict[str, str]]:
    """Convert a message to the sharegpt format of LLaMA-Factory."""
    role, text = str(message.get("role")), message_text(message)
    calls = [_call_text(call) for call in message.get("tool_calls") or ()]
    if calls and not text:
        value = calls[0] if len(calls) == 1 else f"[{', '.join(calls)}]"
        return [{"from": "function_call", "value": value}]
    if calls:
        text = "\n".join((text, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)))
    return [{"from": _ROLES.get(role, role), "value": text}]


class RowContent(NamedTuple):
    """Content of a row, independent of its format."""

    form: str
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    prompt: int = 0
    """Number of leading messages that are a prompt and never trained."""

    def is_trained(self, place: int) -> bool:
        """Return whether a message is an answer to train."""
        message = self.messages[place]
        answers = message.get("role") == "assistant" and message.get("weight") != 0
        return answers and place >= self.prompt


def read_row(row: Any) -> RowContent:
    """Parse a row in any of these formats.

    Raises:
        UsageError: The row has none of the formats.
    """
    if not isinstance(row, Mapping):
        raise UsageError("is no JSON object")
    tools = row.get("tools")
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError as error:
            raise UsageError("tools is a text that is no JSON") from error
    if tools is not None and not isinstance(tools, list):
        raise UsageError("tools is no list")
    if "preferred_output" in row and isinstance(row.get("input"), Mapping):
        sent = _listed(row["input"], "messages")
        _listed(row, "non_preferred_output")
        answer = _listed(row, "preferred_output")
        offered = row["input"].get("tools")
        offered = offered if isinstance(offered, list) else None
        return RowContent("preference", [*sent, *answer], offered, len(sent))
    if "chosen" in row and "rejected" in row and "prompt" in row:
        sent, answer = _listed(row, "prompt"), _listed(row, "chosen")
        _listed(row, "rejected")
        return RowContent("preference-trl", [*sent, *answer], tools, len(sent))
    if "messages" in row and "snapshot" in row:
        messages = _listed(row, "messages")
        return RowContent("prompts", messages, tools, len(messages))
    if "messages" in row:
        form = "trl" if isinstance(row.get("tools"), str) else "openai"
        messages = _listed(row, "messages")
        if tools is None and messages:
            first = messages[0].get("content")
            if isinstance(first, str) and first.endswith(_END_TOOLS):
                return RowContent("messages", *_from_words(messages))
        return RowContent(form, messages, tools)
    if "conversations" in row:
        turns = _listed(row, "conversations")
        return RowContent("sharegpt", [_from_turn(turn) for turn in turns], tools)
    if "completion" in row and "prompt" in row:
        prompt, completion = _listed(row, "prompt"), _listed(row, "completion")
        return RowContent("trl", [*prompt, *completion], tools, len(prompt))
    names = ", ".join(list(map(str, row))[:5]) or "nothing"
    raise UsageError(
        f"has none of messages, conversations, or prompt and completion; it has {names}"
    )


def written_row(row: Any) -> RowContent:
    """Parse a row for a chat template, which needs the messages as written in the file.

    Unlike `read_row`, it keeps tools and calls of the format `messages` as text.

    Raises:
        UsageError: The row has none of the formats.
    """
    content = read_row(row)
    if content.form == RowFormat.MESSAGES:
        return RowContent(content.form, row["messages"], None)
    return content


def _listed(row: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    messages = row[name]
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise UsageError(f"{name} is no list of objects")
    return messages


def _from_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    speaker, value = turn.get("from"), turn.get("value")
    back = {name: role for role, name in _ROLES.items()}
    if speaker == "function_call" and isinstance(value, str):
        calls = _calls_of(value)
        if calls is not None:
            return {"role": "assistant", "content": None, "tool_calls": calls}
    return with_calls({"role": back.get(str(speaker), str(speaker)), "content": value})


def _calls_of(value: str) -> list[dict[str, Any]] | None:
    try:
        parsed = json.loads(value)
    except ValueError:
        return None
    if isinstance(parsed, dict):
        call = _call_of(value, 0)
        return None if call is None else [call]
    if not isinstance(parsed, list):
        return None
    calls = [_call_of(_plain_call(each), place) for place, each in enumerate(parsed)]
    return [call for call in calls if call is not None]


def _plain_call(value: Any) -> str:
    about = value if isinstance(value, dict) else {}
    arguments = _dumps(about.get("arguments"))
    return f'{{"name": {_dumps(about.get("name", ""))}, "arguments": {arguments}}}'


def _call_of(text: str, place: int) -> dict[str, Any] | None:
    found = _NAMED.fullmatch(text.strip())
    if found is None:
        return None
    raw = found[2]
    arguments = json.loads(raw) if raw.startswith('"') else raw
    function = {"name": json.loads(found[1]), "arguments": arguments}
    return {"id": f"call_{place}", "type": "function", "function": function}


def with_calls(message: dict[str, Any]) -> dict[str, Any]:
    """Parse tool calls and tool responses that are written in the text of a message."""
    text = message.get("content")
    if not isinstance(text, str):
        return message
    if message["role"] == "assistant" and "<tool_call>" in text:
        calls = [_call_of(found, place) for place, found in enumerate(_CALL.findall(text))]
        if all(call is not None for call in calls):
            said = _CALL.sub("", text)
            return {**message, "content": said or None, "tool_calls": calls}
    if message["role"] == "user" and text.startswith(_RESPONSE[0]):
        return {"role": "tool", "content": text[len(_RESPONSE[0]) : -len(_RESPONSE[1])]}
    return message


def _from_words(
    messages: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """Convert rows of the format `messages` back to messages with tool calls, and tools."""
    tools: list[Any] | None = None
    back = [with_calls(message) for message in messages]
    if back and back[0].get("role") == "system":
        said, shown, rest = f"\n\n{back[0].get('content')}".rpartition(_TOOLS)
        if shown and rest.endswith(_END_TOOLS):
            lines = rest[: -len(_END_TOOLS)].splitlines()
            tools = [json.loads(line) for line in lines]
            said = said.removeprefix("\n\n")
            back = [{**back[0], "content": said}, *back[1:]] if said else back[1:]
    return back, tools
