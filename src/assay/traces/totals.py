"""What another program's log knows of a session only as a whole.

A log may count tokens or invalid actions without saying in which turn they fell. Such totals
stand in the metadata of the session, where an export keeps them, and take the place of the
sums over its turns. Beside them stands why the session cannot be played again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["IMPORTED", "Imported", "imported_columns", "unverifiable_reason"]

IMPORTED: Final = "imported"
"""The key in the metadata of a session."""

_COUNTS: Final = {
    **dict.fromkeys(("num_timesteps", "num_turns", "num_achievements"), 2**31),
    **dict.fromkeys(("actions_asked", "unknown_actions", "malformed_replies"), 2**31),
    **dict.fromkeys(("prompt_tokens", "completion_tokens"), 2**62),
    **dict.fromkeys(("cached_tokens", "reasoning_tokens"), 2**62),
}
_NUMBERS: Final = ("total_reward", "cost_usd")
_LARGE: Final = 1e15


@dataclass(frozen=True, slots=True)
class Imported:
    """What an importer knows beside the turns."""

    unverifiable: str | None
    """Why the session cannot be played again; None if it can."""
    totals: Mapping[str, float | None] = field(default_factory=dict)
    """By column of `session_traces`; None for what nobody knows."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The same for the metadata of a session."""
        about = {"unverifiable": self.unverifiable, "totals": dict(self.totals)}
        return {IMPORTED: {name: value for name, value in about.items() if value}}


def imported_columns(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `session_traces` that the metadata of an imported session decides.

    A metadata may come from anywhere: what is no total of a known column is left out.
    """
    about = metadata.get(IMPORTED)
    if not isinstance(about, Mapping):
        return {}
    totals = about.get("totals")
    columns: dict[str, Any] = {
        name: value
        for name, value in (totals.items() if isinstance(totals, Mapping) else ())
        if _allowed(name, value)
    }
    if unverifiable_reason(metadata) is not None:
        columns["verifiable"] = False
    return columns


def unverifiable_reason(metadata: Mapping[str, Any]) -> str | None:
    """Why an imported session cannot be played again; None if it can."""
    about = metadata.get(IMPORTED)
    reason = about.get("unverifiable") if isinstance(about, Mapping) else None
    return reason if isinstance(reason, str) and reason else None


def _allowed(name: str, value: object) -> bool:
    if name in _COUNTS:
        return type(value) is int and 0 <= value < _COUNTS[name]
    if name not in _NUMBERS or isinstance(value, bool):
        return False
    least = 0 if name == "cost_usd" else -_LARGE
    return value is None or (isinstance(value, int | float) and least <= value < _LARGE)
