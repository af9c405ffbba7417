"""Built-in chat models: scripted policies behind the chat protocol.

A model is a pure function of the request. It has no state: it writes its memory into the notes
of its reply, and reads it back from the history. So a request gets the same reply in every
process, in any order, and after any interruption. Requests may come from any client, so an
unexpected one does not raise an error.

The notes of `builtin/expert` are the state of its policy, in base 64. If they are missing,
truncated, altered or from another place, it starts without memory. The seed of the request
decides between equally good directions.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import shake_128
from typing import Any, Final, NamedTuple

from assay.agents.feedback import MARKER, parse_observation, parse_results
from assay.agents.prompts import INTERACT
from assay.core.canonical_json import canonical_json, derive_id
from assay.core.text import unknown_name
from assay.crafter.players.expert.policy import ExpertPolicy
from assay.crafter.players.expert.turns import catch_up, plan
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS
from assay.crafter.text.observation import Observation, as_view
from assay.crafter.view import View
from assay.errors import UsageError
from assay.models.wire import token_count
from assay.types import ChatModel, ChatReply, ChatRequest, Message, Usage

_MAX_ACTIONS: Final = 50
_MAX_ARGUMENTS: Final = 65_536


class Choice(NamedTuple):
    """Reply of a scripted policy."""

    actions: tuple[str, ...]
    reasoning: str = ""
    notes: str = ""
    """Text to read back in the next turn."""


def offers_interact(request: ChatRequest) -> bool:
    """Return whether the request offers the tool that plays."""
    return _find_parameters(request) is not None


def read_max_actions(request: ChatRequest) -> int:
    """Return the maximum number of actions in a reply: `maxItems` of the tool, or 1."""
    value: Any = _find_parameters(request)
    for key in ("properties", "actions", "maxItems"):
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return 1
    return min(max(value, 1), _MAX_ACTIONS)


def _find_parameters(request: ChatRequest) -> Mapping[str, Any] | None:
    tools = request.tools.value
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and function.get("name") == INTERACT:
            parameters = function.get("parameters")
            return parameters if isinstance(parameters, Mapping) else {}
    return None


def find_last_observation(request: ChatRequest) -> Observation | None:
    """Return the observation in the last message, or None if it has none."""
    return parse_observation(request.messages[-1].text) if request.messages else None


def read_notes(request: ChatRequest) -> str:
    """Return the notes in the model's last reply, or an empty string."""
    for message in reversed(request.messages):
        if message.role == "assistant":
            notes = _parse_arguments(message).get("notes")
            return notes if isinstance(notes, str) else ""
    return ""


def _parse_arguments(reply: Message) -> Mapping[str, Any]:
    """Return the arguments of the first call of a reply; without a call, its text as JSON."""
    calls = reply.value.get("tool_calls")
    part: Any = calls[0] if isinstance(calls, list) and calls else None
    for key in ("function", "arguments"):
        part = part.get(key) if isinstance(part, Mapping) else None
    text = part if isinstance(part, str) else reply.text
    if len(text) > _MAX_ARGUMENTS:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def draw_numbers(request: ChatRequest, below: int, count: int) -> list[int]:
    """Return numbers from 0 to `below` - 1, derived from the seed and the last message."""
    last = request.messages[-1].hash if request.messages else ""
    stream = shake_128(canonical_json([request.seed, last])).digest(8 * count)
    return [int.from_bytes(stream[i : i + 8], "big") % below for i in range(0, len(stream), 8)]


class BuiltinModel:
    """A `ChatModel` that needs no key and no network, and costs nothing.

    A token is four bytes: usage is the number of canonical bytes of the messages, and of the
    reply, divided by four and rounded up. Temperature and token limit have no effect.
    """

    provider = "builtin"

    def __init__(self, name: str, choose: Callable[[ChatRequest], Choice]) -> None:
        self.name = name
        self._choose = choose

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Reply with a call of `interact`, or with JSON if that tool is not offered."""
        return self.answer(request)

    def answer(self, request: ChatRequest) -> ChatReply:
        """Reply without `await`; see `reply`."""
        choice = self._choose(request)
        is_tool_call = offers_interact(request)
        content = {"role": "assistant", "content": _format_arguments(choice)}
        message = _make_tool_call(request, choice) if is_tool_call else Message(content)
        sent_bytes = sum(len(part.encoded) for part in request.messages)
        return ChatReply(
            message=message,
            finish_reason="tool_calls" if is_tool_call else "stop",
            usage=Usage(
                prompt=token_count(sent_bytes), completion=token_count(len(message.encoded))
            ),
            cost_usd=0.0,
        )

    async def close(self) -> None:
        """Do nothing: no resources are held."""


def _format_arguments(choice: Choice) -> str:
    arguments: dict[str, Any] = {"actions": choice.actions}
    if choice.reasoning:
        arguments["reasoning"] = choice.reasoning
    if choice.notes:
        arguments["notes"] = choice.notes
    return canonical_json(arguments).decode()


def _make_tool_call(request: ChatRequest, choice: Choice) -> Message:
    last = request.messages[-1].hash if request.messages else ""
    call = {
        "id": f"call_{derive_id(last, request.seed or 0, request.model)}",
        "type": "function",
        "function": {"name": INTERACT, "arguments": _format_arguments(choice)},
    }
    return Message({"role": "assistant", "content": None, "tool_calls": [call]})


def _play_noop(request: ChatRequest) -> Choice:
    return Choice(("noop",) * read_max_actions(request))


def _play_random(request: ChatRequest) -> Choice:
    drawn = draw_numbers(request, len(ACTIONS), read_max_actions(request))
    return Choice(tuple(ACTIONS[i] for i in drawn))


def _play_forager(request: ChatRequest) -> Choice:
    """Choose actions of the forager, or a noop without an observation."""
    from assay.crafter.players.forager import forage

    observation = find_last_observation(request)
    if observation is None:
        return Choice(("noop",), "I see no observation.")
    limit = read_max_actions(request)
    return Choice(
        *forage(observation, read_notes(request), limit, partial(draw_numbers, request))
    )


_NOTES_PREFIX: Final = "memory:"
_MAX_NOTES: Final = 10_000
"""Length limit; the notes on a whole world are shorter."""
_ACHIEVED: Final = re.compile(
    r"^Achieved so far(?: \(\d+ of \d+\): (.+)|: none of \d+)\.$", re.M
)


def _play_expert(request: ChatRequest) -> Choice:
    """Choose the reply of the expert; a noop without an observation."""
    observation = find_last_observation(request)
    if observation is None:
        return Choice(("noop",))
    view = as_view(observation)
    policy = _restore_policy(request, view)
    turn = plan(policy, view, read_max_actions(request))
    return Choice(
        actions=tuple(ACTIONS[action] for action in turn.actions),
        reasoning=f"My goal is to {turn.goal}.",
        notes=f"{_NOTES_PREFIX}{base64.b64encode(turn.state).decode()}",
    )


def _restore_policy(request: ChatRequest, view: View) -> ExpertPolicy:
    """Restore the expert from its last reply, and update it with the results of its actions."""
    seed = abs(request.seed or 0)
    text = request.messages[-1].text
    state = _decode_state(read_notes(request))
    if state is None:
        policy = ExpertPolicy(seed)
    else:
        results = parse_results(text)
        actions = [ACTIONS.index(result.action) for result in results]
        failed = {i for i, result in enumerate(results) if not result.worked}
        policy = catch_up(seed, state, actions, view, failed=failed)
    policy.memory.known_achievements = _parse_achievements(text)
    return policy


def _decode_state(text: str) -> bytes | None:
    if not text.startswith(_NOTES_PREFIX) or len(text) > _MAX_NOTES:
        return None
    try:
        return base64.b64decode(text.removeprefix(_NOTES_PREFIX), validate=True)
    except ValueError:
        return None


def _parse_achievements(report: str) -> frozenset[str] | None:
    """Return the achievements a report lists; None if it has no such line."""
    match = _ACHIEVED.search(report.rpartition(f"{MARKER}\n")[0])
    if match is None:
        return None
    return frozenset((match[1] or "").split(", ")).intersection(ACHIEVEMENTS)


_DECIDE: Final[dict[str, Callable[[ChatRequest], Choice]]] = {
    "builtin/noop": _play_noop,
    "builtin/random": _play_random,
    "builtin/forager": _play_forager,
    "builtin/expert": _play_expert,
}
BUILTIN_MODELS: Final = tuple(_DECIDE)
"""Names of the built-in models, weakest first."""


def is_scripted(label: str) -> bool:
    """Return whether an arm is a built-in model, whose tokens are free."""
    return label.startswith("builtin/")


def make_builtin(name: str) -> ChatModel:
    """Create the built-in model with this name."""
    if name not in _DECIDE:
        raise UsageError(unknown_name("built-in model", name, BUILTIN_MODELS))
    return BuiltinModel(name, _DECIDE[name])


def make_builtin_models() -> dict[str, ChatModel]:
    """Create all built-in models, by name."""
    return {name: make_builtin(name) for name in BUILTIN_MODELS}
