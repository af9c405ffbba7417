"""What a scripted player is asked and what it answers: limits, notes, what it sees.

Requests may come from anywhere, so nothing here raises on an odd one.
"""

import json
from collections.abc import Mapping
from hashlib import shake_128
from typing import Any, Final, NamedTuple

from assay._util.canonical import canonical_json
from assay.crafter.text import Observation
from assay.types import ChatRequest, Message

from ..feedback import observation_in
from ..prompt import INTERACT

__all__ = ["Choice", "draws", "last_observation", "max_actions", "notes", "offers_interact"]

_MAX_ACTIONS: Final = 50
_MAX_ARGUMENTS: Final = 65_536


class Choice(NamedTuple):
    """What a scripted player answers."""

    actions: tuple[str, ...]
    reasoning: str = ""
    notes: str = ""
    """What it wants to read back in its next turn."""


def offers_interact(request: ChatRequest) -> bool:
    """Whether a reply may call the tool that plays."""
    return _parameters(request) is not None


def max_actions(request: ChatRequest) -> int:
    """How many actions a reply may ask for: the `maxItems` of the tool, else 1."""
    found: Any = _parameters(request)
    for key in ("properties", "actions", "maxItems"):
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, int) or isinstance(found, bool):
        return 1
    return min(max(found, 1), _MAX_ACTIONS)


def _parameters(request: ChatRequest) -> Mapping[str, Any] | None:
    tools = request.tools.value
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and function.get("name") == INTERACT:
            parameters = function.get("parameters")
            return parameters if isinstance(parameters, Mapping) else {}
    return None


def last_observation(request: ChatRequest) -> Observation | None:
    """What the last message shows, if it can be read."""
    return observation_in(request.messages[-1].text) if request.messages else None


def notes(request: ChatRequest) -> str:
    """What the model noted in its last reply; empty if nothing."""
    for message in reversed(request.messages):
        if message.role == "assistant":
            found = _arguments(message).get("notes")
            return found if isinstance(found, str) else ""
    return ""


def _arguments(reply: Message) -> Mapping[str, Any]:
    """The arguments of the first call of a reply; without a call, its text."""
    calls = reply.value.get("tool_calls")
    found: Any = calls[0] if isinstance(calls, list) and calls else None
    for key in ("function", "arguments"):
        found = found.get(key) if isinstance(found, Mapping) else None
    text = found if isinstance(found, str) else reply.text
    if len(text) > _MAX_ARGUMENTS:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def draws(request: ChatRequest, below: int, count: int) -> list[int]:
    """Numbers from 0 to `below` - 1 that follow from the seed and the last message."""
    last = request.messages[-1].hash if request.messages else ""
    stream = shake_128(canonical_json([request.seed, last])).digest(8 * count)
    return [int.from_bytes(stream[i : i + 8], "big") % below for i in range(0, len(stream), 8)]
