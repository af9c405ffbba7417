"""How the agent talks to a model, as a checked value. No behaviour."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from assay.errors import UsageError

__all__ = ["AgentOptions", "ViewForm"]

ViewForm = Literal["full", "short"]
"""The two forms of an observation."""

_MAX_PROMPT = 200_000


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How the agent talks to a model; a value that is not allowed is a UsageError."""

    history: int = 8
    """How many of the last turns a model sees, from 1 to 100."""
    temperature: float = 0.0
    """From 0 to 2."""
    max_tokens: int = 1024
    """The most tokens a reply may have."""
    actions_per_turn: int = 5
    """The most actions of one turn, from 1 to 50."""
    view: ViewForm = "full"
    """Sentences and a map of words, or as few tokens as possible."""
    prompt: str | None = None
    """The text of a prompt file: it replaces the instructions, not the rules and tools."""

    def __post_init__(self) -> None:
        _check_int("history", self.history, 1, 100)
        _check_int("actions_per_turn", self.actions_per_turn, 1, 50)
        _check_int("max_tokens", self.max_tokens, 1, None)
        kind = type(self.temperature)
        if kind not in (int, float) or not 0 <= self.temperature <= 2:
            _refuse("temperature", self.temperature, "a number from 0 to 2")
        if self.view not in get_args(ViewForm):
            _refuse("view", self.view, "full or short")
        if self.prompt is None:
            return
        if not isinstance(self.prompt, str) or not self.prompt.strip():
            _refuse("prompt", self.prompt, "a text that is not empty, or leave it out")
        if len(self.prompt) > _MAX_PROMPT:
            found = f"of {len(self.prompt):,} characters"
            raise UsageError(f"a prompt {found} is not allowed; give at most {_MAX_PROMPT:,}")


def _check_int(name: str, value: Any, low: int, high: int | None) -> None:
    wrong = not isinstance(value, int) or isinstance(value, bool)
    if wrong or value < low or (high is not None and value > high):
        upper = "" if high is None else f" to {high}"
        _refuse(name, value, f"an int from {low}{upper}")


def _refuse(name: str, value: object, allowed: str) -> None:
    raise UsageError(f"{name} {value!r} is not allowed; give {allowed}")
