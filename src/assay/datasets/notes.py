"""Takes the notes out of answers, in requests and replies alike.

What a scripted teacher keeps in its notes, such as its memory in base 64, no student can learn
to write. Without it, a row holds what the student will see.
"""

import json
from dataclasses import replace
from typing import Any

from assay._util.canonical import canonical_json
from assay.traces.conversations import StoredConversation

__all__ = ["without_notes"]

_NAME = "notes"


def without_notes(session: StoredConversation) -> StoredConversation:
    """The session with answers that have no notes; all else stays as it is."""
    bodies = [
        _without(body) if role == "assistant" and _NAME in body else body
        for body, role in zip(session.bodies, session.roles, strict=True)
    ]
    return replace(session, bodies=bodies)


def _without(body: str) -> str:
    message = json.loads(body)
    for call in message.get("tool_calls") or ():
        call["function"]["arguments"] = _cut(call["function"].get("arguments"))
    message["content"] = _cut(message.get("content"))
    return canonical_json(message).decode()


def _cut(text: Any) -> Any:
    """A JSON object as text without its notes; anything else as it is."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return text
    if not isinstance(value, dict) or _NAME not in value:
        return text
    del value[_NAME]
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
