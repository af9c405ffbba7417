"""Which messages of a row are trained."""

from collections.abc import Mapping
from dataclasses import dataclass

from .formats import RowContent, message_text
from .message_checks import Count, estimated

__all__ = ["RowMask", "mask_of"]


@dataclass(frozen=True, slots=True)
class RowMask:
    """One message of a row, and whether it is trained."""

    role: str
    text: str
    """What it says, and what it calls."""
    trained: bool
    tokens: int


def mask_of(row: RowContent, count: Count = estimated) -> list[RowMask]:
    """The messages of a row, and which of them are trained."""
    masks = []
    for place, message in enumerate(row.messages):
        parts = [message_text(message)]
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            about = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(about, Mapping):
                parts.append(f"{about.get('name')}({about.get('arguments')})")
        text = "\n".join(filter(None, parts))
        masks.append(
            RowMask(str(message.get("role")), text, row.is_trained(place), count(text))
        )
    return masks
