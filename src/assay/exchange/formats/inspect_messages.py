"""The messages of Inspect in the shape of the chat protocol, with references followed.

A sample keeps long texts and repeated messages once, in `attachments` and `events_data`, and
names them where they belong. What a text becomes by following references is bounded.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from assay.errors import UsageError
from assay.exchange.formats.foreign import as_list, as_mapping, as_text, flat_text, tool_call

__all__ = ["Pool", "read_message"]

_REFERENCE: Final = re.compile(r"attachment://([0-9a-f]{32})")
_MAX_EXPANDED: Final = 256 << 20
_ROLES: Final = ("system", "user", "assistant", "tool")


class Pool:
    """What a sample keeps once and names often."""

    def __init__(self, sample: Mapping[str, Any]) -> None:
        self._attachments = as_mapping(sample.get("attachments"))
        self._messages = as_list(as_mapping(sample.get("events_data")).get("messages"))
        self._left = _MAX_EXPANDED

    def request(self, event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The messages that a call was sent."""
        if given := as_list(event.get("input")):
            yield from (as_mapping(message) for message in given)
            return
        for reference in as_list(event.get("input_refs")):
            match reference:
                case [int(start), int(end)]:
                    bounds = (max(start, 0), max(end, 0))
                    yield from (as_mapping(each) for each in self._messages[slice(*bounds)])

    def text(self, text: str) -> str:
        """A text with the attachments it names put in."""
        if "attachment://" not in text:
            return text
        found = _REFERENCE.sub(self._attached, text)
        self._left -= len(found)
        return found

    def _attached(self, match: re.Match[str]) -> str:
        attached = self._attachments.get(match[1])
        if not isinstance(attached, str):
            return match[0]
        if attached.startswith("data:"):
            return "[image]"
        self._left -= len(attached)
        if self._left < 0:
            raise UsageError(f"its attachments come to more than {_MAX_EXPANDED >> 20} MB")
        return attached


def read_message(message: Mapping[str, Any], pool: Pool) -> dict[str, Any]:
    """A message in the shape of the chat protocol.

    Raises:
        UsageError: Nobody says it.
    """
    role = message.get("role")
    if role not in _ROLES:
        raise UsageError(f"a message has the role {str(role)[:40]!r}, which nobody has")
    content = message.get("content")
    value: dict[str, Any] = {"role": role, "content": pool.text(flat_text(content))}
    if calls := as_list(message.get("tool_calls")):
        value["tool_calls"] = [
            tool_call(each.get("id"), each.get("function"), each.get("arguments"), place)
            for place, each in enumerate(map(as_mapping, calls))
        ]
    if role == "tool":
        value["tool_call_id"] = as_text(message.get("tool_call_id"), 200)
        error = as_mapping(message.get("error"))
        if error:
            value["content"] = f"{as_text(error.get('message'))}\n{value['content']}".strip()
    parts = map(as_mapping, as_list(content))
    thoughts = [pool.text(as_text(part.get("reasoning"))) for part in parts]
    if any(thoughts):
        value["reasoning_content"] = "\n".join(thought for thought in thoughts if thought)
    return value
