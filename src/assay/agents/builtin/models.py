"""Scripted players behind the chat protocol.

A model is a pure function of the request: it holds no state, and what it must remember it
writes into the notes of its reply and reads back from the history. So the same request has
the same reply in every process, in any order, after any interruption.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from assay._util.canonical import canonical_json, derived_id
from assay._util.names import unknown_name
from assay.crafter.rules import ACTIONS
from assay.errors import UsageError
from assay.models.wire import token_count
from assay.types import ChatModel, ChatReply, ChatRequest, Message, Usage

from ..prompt import INTERACT
from .request import Choice, draws, last_observation, max_actions, notes, offers_interact

__all__ = ["BUILTIN_MODELS", "BuiltinModel", "builtin_models", "is_scripted", "make_builtin"]


class BuiltinModel:
    """A `ChatModel` that needs no key and no network, and costs nothing.

    A token is four bytes: usage counts the canonical bytes of the messages sent, and of the
    reply, divided by four and rounded up. Temperature and token limit make no difference.
    """

    provider = "builtin"

    def __init__(self, name: str, decide: Callable[[ChatRequest], Choice]) -> None:
        self.name = name
        self._decide = decide

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Answer by a call of `interact`, or in JSON where that is not offered."""
        return self.answer(request)

    def answer(self, request: ChatRequest) -> ChatReply:
        """The same, for callers that do not wait."""
        choice = self._decide(request)
        called = offers_interact(request)
        message = _call(request, choice) if called else _said(choice)
        sent = sum(len(part.encoded) for part in request.messages)
        return ChatReply(
            message=message,
            finish_reason="tool_calls" if called else "stop",
            usage=Usage(prompt=token_count(sent), completion=token_count(len(message.encoded))),
            cost_usd=0.0,
        )

    async def close(self) -> None:
        """Nothing is held open."""


def _arguments(choice: Choice) -> str:
    told: dict[str, Any] = {"actions": choice.actions}
    if choice.reasoning:
        told["reasoning"] = choice.reasoning
    if choice.notes:
        told["notes"] = choice.notes
    return canonical_json(told).decode()


def _call(request: ChatRequest, choice: Choice) -> Message:
    last = request.messages[-1].hash if request.messages else ""
    call = {
        "id": f"call_{derived_id(last, request.seed or 0, request.model)}",
        "type": "function",
        "function": {"name": INTERACT, "arguments": _arguments(choice)},
    }
    return Message({"role": "assistant", "content": None, "tool_calls": [call]})


def _said(choice: Choice) -> Message:
    return Message({"role": "assistant", "content": _arguments(choice)})


def _noop(request: ChatRequest) -> Choice:
    return Choice(("noop",) * max_actions(request))


def _random(request: ChatRequest) -> Choice:
    drawn = draws(request, len(ACTIONS), max_actions(request))
    return Choice(tuple(ACTIONS[i] for i in drawn))


def _forager(request: ChatRequest) -> Choice:
    """It waits where it sees nothing it can read."""
    from assay.players import forage

    seen = last_observation(request)
    if seen is None:
        return Choice(("noop",), "I see no observation.")
    limit = max_actions(request)
    return Choice(*forage(seen, notes(request), limit, partial(draws, request)))


def _expert(request: ChatRequest) -> Choice:
    from .expert import decide

    return decide(request)


_DECIDE: Final[dict[str, Callable[[ChatRequest], Choice]]] = {
    "builtin/noop": _noop,
    "builtin/random": _random,
    "builtin/forager": _forager,
    "builtin/expert": _expert,
}
BUILTIN_MODELS: Final = tuple(_DECIDE)
"""The names of the built-in models, weakest first."""


def is_scripted(label: str) -> bool:
    """Whether an arm is one of the built-in models, whose tokens nobody pays for."""
    return label.startswith("builtin/")


def make_builtin(name: str) -> ChatModel:
    """The built-in model of that name."""
    if name not in _DECIDE:
        raise UsageError(unknown_name("built-in model", name, BUILTIN_MODELS))
    return BuiltinModel(name, _DECIDE[name])


def builtin_models() -> dict[str, ChatModel]:
    """All built-in models, by name."""
    return {name: make_builtin(name) for name in BUILTIN_MODELS}
