"""Parser of model replies: tool calls, or JSON, or plain text.

It never raises on any reply, and its work is bounded. In plain text, actions are read from
lines that announce them, or from a text of nothing but action names. Other prose is not
searched for names: "I do not know" requests no action, although `do` is one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from assay.agents.prompts import INTERACT, TERMINATE
from assay.core.text import printable
from assay.crafter.rules import ACTIONS

_NAME_GAPS: Final = re.compile(r"[\s_-]+")
_PADDING: Final = " \t\r\n\"'`*.,;:!()[]{}<>"
_MAX_LINES: Final = 2_000
_MAX_LINE: Final = 2_000
_ANNOUNCED: Final = re.compile(
    r"[\s*_#>-]{0,8}(?:next |my |final )?actions?[\s*_]{0,4}[:=](.*)", re.IGNORECASE
)
_BULLET: Final = re.compile(r"\s{0,8}(?:[-*•]|\d{1,2}[.)])\s{1,8}")
_WORDS: Final = re.compile(r"[A-Za-z]{1,20}(?:[ _-][A-Za-z]{1,20}){0,3}|\d{1,2}")
_SEPARATORS: Final = re.compile(r"[,;\n]|->|→| then ")


@lru_cache(maxsize=16)
def _index_names(actions: tuple[str, ...]) -> dict[str, str]:
    numbers = {str(index): name for index, name in enumerate(actions)}
    return (
        numbers
        | {_normalise(name): name for name in actions}
        | {name: name for name in actions}
    )


def _normalise(text: str) -> str:
    return _NAME_GAPS.sub("_", text.strip(_PADDING).lower())


def find_action(text: str, actions: tuple[str, ...] = ACTIONS) -> str | None:
    """Return the action that a text names, if any, regardless of case, spaces and quotes."""
    names = _index_names(actions)
    return names.get(text) or names.get(_normalise(text))


def find_actions(text: str, actions: tuple[str, ...] = ACTIONS) -> list[str]:
    """Return the actions that a text announces or consists of; none if it is prose."""
    lines = [line[:_MAX_LINE] for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]]
    return _find_announced(lines, actions) or _find_bare_names(lines, actions)


def _find_announced(lines: list[str], actions: tuple[str, ...]) -> list[str]:
    """Return actions of lines like `Action: do`, up to an observation the model invents."""
    names: list[str] = []
    in_list = False
    for line in lines:
        match = _ANNOUNCED.match(line)
        if match:
            text = match[1].strip(_PADDING)
            in_list = not text
            names += _split_names(text) if text else []
        elif in_list and line.strip():
            bullet = _BULLET.match(line)
            name = find_action(line[bullet.end() :] if bullet else line, actions)
            in_list = name is not None
            names += [name] if name else []
        elif names and line.lower().lstrip(_PADDING).startswith("observation"):
            break
    return names


def _split_names(text: str) -> list[str]:
    """Return the names in a list; empty if a part cannot be a name."""
    parts = [part.strip(_PADDING) for part in _SEPARATORS.split(text)]
    parts = [part for part in parts if part]
    return parts if all(_WORDS.fullmatch(part) for part in parts) else []


def _find_bare_names(lines: list[str], actions: tuple[str, ...]) -> list[str]:
    names_found: list[str] = []
    for line in lines:
        bullet = _BULLET.match(line)
        text = line[bullet.end() :] if bullet else line
        for part in _SEPARATORS.split(text):
            if not part.strip(_PADDING):
                continue
            known = find_action(part, actions)
            # Indices alone are not accepted: a number may mean anything.
            names = [known] if known else [find_action(word, actions) for word in part.split()]
            if None in names or part.strip(_PADDING).isdigit():
                return []
            names_found += [name for name in names if name]
    return names_found


_MAX_TEXT: Final = 65_536
_MAX_CALLS: Final = 128
_MAX_NAME: Final = 60
_MAX_REASON: Final = 200
_MAX_STARTS: Final = 32
_ARGUMENTS: Final = ("arguments", "args", "parameters", "input")
_TOOL: Final = ("tool", "name", "tool_name", "function")
_TOO_LONG: Final = f"it is longer than {_MAX_TEXT:,} characters"
_NOTHING: Final = f"it calls neither {INTERACT} nor {TERMINATE}, and names no actions"


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of a model, read from its reply."""

    asked: tuple[str, ...] = ()
    """Requested actions, including unknown ones, up to the limit of a turn."""
    unknown: tuple[str, ...] = ()
    """Requested actions that do not exist."""
    actions: tuple[str, ...] = ()
    """Requested actions that exist, in order; these are played."""
    malformed: str | None = None
    """Reason if the reply could not be parsed."""
    terminate: str | None = None
    """The model's reason to end the episode after the actions, if it does."""
    cut: int = 0
    """Number of requested actions above the limit of a turn."""


class ParsedReply(NamedTuple):
    """A decision, and the data needed to respond to its tool calls."""

    decision: Decision
    calls: tuple[str, ...]
    """Ids of all tool calls; each needs a response."""
    problems: tuple[str, ...]
    """Errors in some calls, if others could be parsed."""


class _InvalidCall(Exception):
    """A call that cannot be parsed; the message is the reason."""


class _ParsedCalls:
    """Actions, termination and errors collected from the calls of a reply."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.actions: list[Any] = []
        self.terminate: str | None = None
        self.problems: list[str] = []

    def add(self, name: object, arguments: object) -> None:
        if self.terminate is not None:
            return
        try:
            self._add(name, arguments)
        except _InvalidCall as problem:
            self.problems.append(str(problem))

    def _add(self, name: object, arguments: object) -> None:
        if name == INTERACT:
            self.actions += _extract_actions(_decode_arguments(arguments))
        elif name == TERMINATE:
            self.terminate = _read_reason(_decode_arguments(arguments))
        else:
            raise _InvalidCall(
                f"there is no tool {_format_value(name)!r}; call {INTERACT} or {TERMINATE}"
            )

    @property
    def is_empty(self) -> bool:
        return not self.actions and self.terminate is None


def read_reply(
    message: Mapping[str, Any], limit: int, actions: tuple[str, ...] = ACTIONS
) -> ParsedReply:
    """Parse an assistant message; only the first `limit` actions count."""
    calls = message.get("tool_calls")
    parsed = _ParsedCalls(actions)
    ids: tuple[str, ...] = ()
    if isinstance(calls, list) and calls:
        if len(calls) > _MAX_CALLS:
            return _make_malformed(f"it has {len(calls):,} tool calls, more than {_MAX_CALLS}")
        call_ids = [call.get("id") for call in calls if isinstance(call, dict)]
        ids = tuple(id for id in call_ids if isinstance(id, str) and id)
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                parsed.problems.append("a tool call has no function")
            else:
                parsed.add(function.get("name"), function.get("arguments"))
    if parsed.is_empty and not ids:
        content = message.get("content")
        if isinstance(content, str) and content.strip():
            if len(content) > _MAX_TEXT:
                return _make_malformed(_TOO_LONG)
            _read_text(content, parsed)
        elif not parsed.problems:
            return _make_malformed("it is empty")
    if parsed.is_empty:
        return _make_malformed("; ".join(parsed.problems[:3]) or _NOTHING, ids)
    return ParsedReply(_make_decision(parsed, limit), ids, tuple(parsed.problems[:3]))


def _make_malformed(reason: str, ids: tuple[str, ...] = ()) -> ParsedReply:
    return ParsedReply(Decision(malformed=reason), ids, ())


def _make_decision(parsed: _ParsedCalls, limit: int) -> Decision:
    resolved = [_resolve_name(entry, parsed.names) for entry in parsed.actions[:limit]]
    return Decision(
        asked=tuple(name for name, _ in resolved),
        unknown=tuple(name for name, known in resolved if not known),
        actions=tuple(name for name, known in resolved if known),
        terminate=parsed.terminate,
        cut=max(0, len(parsed.actions) - limit),
    )


def _resolve_name(entry: object, names: tuple[str, ...]) -> tuple[str, bool]:
    """Return the name of an entry in a list of actions, and whether that action exists."""
    if isinstance(entry, dict):
        entry = next((entry[key] for key in ("action", "name") if key in entry), "{}")
    if isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < len(names):
        return names[entry], True
    if isinstance(entry, str) and len(entry) <= _MAX_NAME:
        known = find_action(entry, names)
        if known is not None:
            return known, True
    return _format_value(entry), False


def _format_value(value: object, longest: int = _MAX_NAME) -> str:
    """Format a value as one short line that is safe to show and to store."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, int) and value.bit_length() > 128:
        text = type(value).__name__  # Python refuses to print very long integers
    elif isinstance(value, int | float | None):
        text = json.dumps(value)
    else:
        text = type(value).__name__
    text = text.strip()
    line = printable(text[:longest])
    return f"{line[:longest]}…" if len(text) > longest or len(line) > longest else line


def _decode_arguments(arguments: object) -> object:
    """Decode the arguments of a call, which may be JSON in a string, once or twice."""
    for _ in range(2):
        if not isinstance(arguments, str):
            break
        if len(arguments) > _MAX_TEXT:
            raise _InvalidCall(f"the arguments cannot be read: {_TOO_LONG}")
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise _InvalidCall("the arguments are not valid JSON") from None
    return arguments


def _extract_actions(arguments: object) -> list[Any]:
    """Return the entries of the action list in the arguments of `interact`."""
    if isinstance(arguments, dict):
        for key in ("actions", "action"):
            if key in arguments:
                arguments = arguments[key]
                break
        else:
            raise _InvalidCall(f"{INTERACT} was called without actions")
    if isinstance(arguments, str):
        arguments = _parse_list(arguments)
    if isinstance(arguments, int) and not isinstance(arguments, bool):
        arguments = [arguments]
    if not isinstance(arguments, list):
        raise _InvalidCall("actions must be a list of names")
    if not arguments:
        raise _InvalidCall("the list of actions is empty")
    return arguments


def _parse_list(text: str) -> object:
    """Parse a list in a string: JSON, separated values, or one name."""
    if len(text) > _MAX_TEXT:
        raise _InvalidCall(_TOO_LONG)
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return [part for part in re.split(r"[,;\n]", text.strip(" \t\n[]")) if part.strip()]


def _read_reason(arguments: object) -> str:
    reason = arguments.get("reason") if isinstance(arguments, dict) else arguments
    return (
        _format_value(reason, _MAX_REASON)
        if isinstance(reason, str) and reason.strip()
        else "none"
    )


def _read_text(content: str, parsed: _ParsedCalls) -> None:
    """Parse a reply without usable tool calls."""
    # The text before this tag is the model's reasoning.
    text = content.rpartition("</think>")[2]
    for value in _iterate_json(text):
        _add_value(value, parsed)
        if not parsed.is_empty:
            parsed.problems.clear()
            return
    if not parsed.problems:
        parsed.actions += find_actions(text, parsed.names)


def _add_value(value: object, parsed: _ParsedCalls) -> None:
    if isinstance(value, list):
        if value and all(isinstance(entry, dict) for entry in value[:_MAX_CALLS]):
            for entry in value[:_MAX_CALLS]:
                _add_value(entry, parsed)
        elif value and all(
            isinstance(entry, str) and _resolve_name(entry, parsed.names)[1] for entry in value
        ):
            # Strings only: a number in brackets is more likely a reference.
            parsed.actions += value
        return
    if not isinstance(value, dict):
        return
    name = next((value[key] for key in _TOOL if isinstance(value.get(key), str)), None)
    if name in (INTERACT, TERMINATE):
        arguments = next((value[key] for key in _ARGUMENTS if key in value), value)
        parsed.add(name, arguments)
    elif "actions" in value or "action" in value:
        parsed.add(INTERACT, value)


_FENCE: Final = re.compile(r"```[a-zA-Z]*\n?")
_DECODER: Final = json.JSONDecoder()
_BETWEEN: Final = re.compile(r"(?:\s|,|</?tool_call>)*")


def _iterate_json(text: str) -> Iterator[object]:
    """Yield the JSON values in a text, in order; adjacent objects are yielded as one list."""
    text = _FENCE.sub("", text).strip()
    position, starts = 0, 0
    while starts < _MAX_STARTS:
        position = _find_next_start(text, position)
        if position < 0:
            return
        starts += 1
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            position += 1
            continue
        values = [value]
        while isinstance(value, dict) and starts < _MAX_STARTS:
            between = _BETWEEN.match(text, end)
            start = between.end() if between else end
            if not text.startswith("{", start):
                break
            starts += 1
            try:
                value, end = _DECODER.raw_decode(text, start)
            except (ValueError, RecursionError):
                break
            values.append(value)
        yield values if len(values) > 1 else values[0]
        position = end


def _find_next_start(text: str, position: int) -> int:
    positions = [
        position for position in (text.find(sign, position) for sign in "{[") if position >= 0
    ]
    return min(positions, default=-1)
