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

_GAPS: Final = re.compile(r"[\s_-]+")
_AROUND: Final = " \t\r\n\"'`*.,;:!()[]{}<>"
_MAX_LINES: Final = 2_000
_MAX_LINE: Final = 2_000
_ANNOUNCED: Final = re.compile(
    r"[\s*_#>-]{0,8}(?:next |my |final )?actions?[\s*_]{0,4}[:=](.*)", re.IGNORECASE
)
_BULLET: Final = re.compile(r"\s{0,8}(?:[-*•]|\d{1,2}[.)])\s{1,8}")
_WORDS: Final = re.compile(r"[A-Za-z]{1,20}(?:[ _-][A-Za-z]{1,20}){0,3}|\d{1,2}")
_SEPARATORS: Final = re.compile(r"[,;\n]|->|→| then ")


@lru_cache(maxsize=16)
def _by_name(actions: tuple[str, ...]) -> dict[str, str]:
    numbers = {str(index): name for index, name in enumerate(actions)}
    return numbers | {_plain(name): name for name in actions} | {name: name for name in actions}


def _plain(text: str) -> str:
    return _GAPS.sub("_", text.strip(_AROUND).lower())


def known_action(text: str, actions: tuple[str, ...] = ACTIONS) -> str | None:
    """Return the action that a text names, if any, regardless of case, spaces and quotes."""
    names = _by_name(actions)
    return names.get(text) or names.get(_plain(text))


def actions_in_text(text: str, actions: tuple[str, ...] = ACTIONS) -> list[str]:
    """Return the actions that a text announces or consists of; none if it is prose."""
    lines = [line[:_MAX_LINE] for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]]
    return _announced(lines, actions) or _nothing_but_names(lines, actions)


def _announced(lines: list[str], actions: tuple[str, ...]) -> list[str]:
    """Return actions of lines like `Action: do`, up to an observation the model invents."""
    found: list[str] = []
    listing = False
    for line in lines:
        announced = _ANNOUNCED.match(line)
        if announced:
            said = announced[1].strip(_AROUND)
            listing = not said
            found += _names(said) if said else []
        elif listing and line.strip():
            bullet = _BULLET.match(line)
            name = known_action(line[bullet.end() :] if bullet else line, actions)
            listing = name is not None
            found += [name] if name else []
        elif found and line.lower().lstrip(_AROUND).startswith("observation"):
            break
    return found


def _names(said: str) -> list[str]:
    """Return the names in a list; empty if a part cannot be a name."""
    parts = [part.strip(_AROUND) for part in _SEPARATORS.split(said)]
    parts = [part for part in parts if part]
    return parts if all(_WORDS.fullmatch(part) for part in parts) else []


def _nothing_but_names(lines: list[str], actions: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for line in lines:
        bullet = _BULLET.match(line)
        said = line[bullet.end() :] if bullet else line
        for part in _SEPARATORS.split(said):
            if not part.strip(_AROUND):
                continue
            known = known_action(part, actions)
            # Indices alone are not accepted: a number may mean anything.
            names = [known] if known else [known_action(word, actions) for word in part.split()]
            if None in names or part.strip(_AROUND).isdigit():
                return []
            found += [name for name in names if name]
    return found


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


class Reading(NamedTuple):
    """A decision, and the data needed to respond to its tool calls."""

    decision: Decision
    calls: tuple[str, ...]
    """Ids of all tool calls; each needs a response."""
    problems: tuple[str, ...]
    """Errors in some calls, if others could be parsed."""


class _Unreadable(Exception):
    """A call that cannot be parsed; the message is the reason."""


class _Collected:
    """Actions, termination and errors collected from the calls of a reply."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.actions: list[Any] = []
        self.terminate: str | None = None
        self.problems: list[str] = []

    def take(self, name: object, arguments: object) -> None:
        if self.terminate is not None:
            return
        try:
            self._take(name, arguments)
        except _Unreadable as problem:
            self.problems.append(str(problem))

    def _take(self, name: object, arguments: object) -> None:
        if name == INTERACT:
            self.actions += _action_list(_decoded(arguments))
        elif name == TERMINATE:
            self.terminate = _reason(_decoded(arguments))
        else:
            raise _Unreadable(
                f"there is no tool {_clean(name)!r}; call {INTERACT} or {TERMINATE}"
            )

    @property
    def empty(self) -> bool:
        return not self.actions and self.terminate is None


def read_reply(
    message: Mapping[str, Any], limit: int, actions: tuple[str, ...] = ACTIONS
) -> Reading:
    """Parse an assistant message; only the first `limit` actions count."""
    calls = message.get("tool_calls")
    found = _Collected(actions)
    ids: tuple[str, ...] = ()
    if isinstance(calls, list) and calls:
        if len(calls) > _MAX_CALLS:
            return _nothing(f"it has {len(calls):,} tool calls, more than {_MAX_CALLS}")
        named = [call.get("id") for call in calls if isinstance(call, dict)]
        ids = tuple(id for id in named if isinstance(id, str) and id)
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                found.problems.append("a tool call has no function")
            else:
                found.take(function.get("name"), function.get("arguments"))
    if found.empty and not ids:
        content = message.get("content")
        if isinstance(content, str) and content.strip():
            if len(content) > _MAX_TEXT:
                return _nothing(_TOO_LONG)
            _read_text(content, found)
        elif not found.problems:
            return _nothing("it is empty")
    if found.empty:
        return _nothing("; ".join(found.problems[:3]) or _NOTHING, ids)
    return Reading(_decision(found, limit), ids, tuple(found.problems[:3]))


def _nothing(reason: str, ids: tuple[str, ...] = ()) -> Reading:
    return Reading(Decision(malformed=reason), ids, ())


def _decision(found: _Collected, limit: int) -> Decision:
    named = [_name(entry, found.names) for entry in found.actions[:limit]]
    return Decision(
        asked=tuple(name for name, _ in named),
        unknown=tuple(name for name, known in named if not known),
        actions=tuple(name for name, known in named if known),
        terminate=found.terminate,
        cut=max(0, len(found.actions) - limit),
    )


def _name(entry: object, names: tuple[str, ...]) -> tuple[str, bool]:
    """Return the name of an entry in a list of actions, and whether that action exists."""
    if isinstance(entry, dict):
        entry = next((entry[key] for key in ("action", "name") if key in entry), "{}")
    if isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < len(names):
        return names[entry], True
    if isinstance(entry, str) and len(entry) <= _MAX_NAME:
        known = known_action(entry, names)
        if known is not None:
            return known, True
    return _clean(entry), False


def _clean(value: object, longest: int = _MAX_NAME) -> str:
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
    shown = printable(text[:longest])
    return f"{shown[:longest]}…" if len(text) > longest or len(shown) > longest else shown


def _decoded(arguments: object) -> object:
    """Decode the arguments of a call, which may be JSON in a string, once or twice."""
    for _ in range(2):
        if not isinstance(arguments, str):
            break
        if len(arguments) > _MAX_TEXT:
            raise _Unreadable(f"the arguments cannot be read: {_TOO_LONG}")
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise _Unreadable("the arguments are not valid JSON") from None
    return arguments


def _action_list(arguments: object) -> list[Any]:
    """Return the entries of the action list in the arguments of `interact`."""
    if isinstance(arguments, dict):
        for key in ("actions", "action"):
            if key in arguments:
                arguments = arguments[key]
                break
        else:
            raise _Unreadable(f"{INTERACT} was called without actions")
    if isinstance(arguments, str):
        arguments = _listed(arguments)
    if isinstance(arguments, int) and not isinstance(arguments, bool):
        arguments = [arguments]
    if not isinstance(arguments, list):
        raise _Unreadable("actions must be a list of names")
    if not arguments:
        raise _Unreadable("the list of actions is empty")
    return arguments


def _listed(text: str) -> object:
    """Parse a list in a string: JSON, separated values, or one name."""
    if len(text) > _MAX_TEXT:
        raise _Unreadable(_TOO_LONG)
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return [part for part in re.split(r"[,;\n]", text.strip(" \t\n[]")) if part.strip()]


def _reason(arguments: object) -> str:
    reason = arguments.get("reason") if isinstance(arguments, dict) else arguments
    return _clean(reason, _MAX_REASON) if isinstance(reason, str) and reason.strip() else "none"


def _read_text(content: str, found: _Collected) -> None:
    """Parse a reply without usable tool calls."""
    # The text before this tag is the model's reasoning.
    said = content.rpartition("</think>")[2]
    for value in _json_values(said):
        _take_value(value, found)
        if not found.empty:
            found.problems.clear()
            return
    if not found.problems:
        found.actions += actions_in_text(said, found.names)


def _take_value(value: object, found: _Collected) -> None:
    if isinstance(value, list):
        if value and all(isinstance(entry, dict) for entry in value[:_MAX_CALLS]):
            for entry in value[:_MAX_CALLS]:
                _take_value(entry, found)
        elif value and all(
            isinstance(entry, str) and _name(entry, found.names)[1] for entry in value
        ):
            # Strings only: a number in brackets is more likely a reference.
            found.actions += value
        return
    if not isinstance(value, dict):
        return
    name = next((value[key] for key in _TOOL if isinstance(value.get(key), str)), None)
    if name in (INTERACT, TERMINATE):
        inner = next((value[key] for key in _ARGUMENTS if key in value), value)
        found.take(name, inner)
    elif "actions" in value or "action" in value:
        found.take(INTERACT, value)


_FENCE: Final = re.compile(r"```[a-zA-Z]*\n?")
_DECODER: Final = json.JSONDecoder()
_BETWEEN: Final = re.compile(r"(?:\s|,|</?tool_call>)*")


def _json_values(text: str) -> Iterator[object]:
    """Yield the JSON values in a text, in order; adjacent objects are yielded as one list."""
    text = _FENCE.sub("", text).strip()
    position, starts = 0, 0
    while starts < _MAX_STARTS:
        position = _next_start(text, position)
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


def _next_start(text: str, position: int) -> int:
    found = [at for at in (text.find(sign, position) for sign in "{[") if at >= 0]
    return min(found, default=-1)
