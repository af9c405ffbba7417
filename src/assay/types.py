"""Shared types and interfaces, for packages that do not import each other.

Language models receive a `ChatRequest` and return a `ChatReply`, in the format of the OpenAI
chat protocol. A message is encoded once, when it is created: the same bytes are sent, hashed
and stored.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self

from assay.core.canonical_json import canonical_json, content_hash
from assay.core.values import Count


class TrialState(StrEnum):
    """End state of a trial."""

    RESULT = "result"
    """Completed, with outcomes."""
    FAILURE = "failure"
    """The entry is at fault: it refused, sent too long a request, or its code raised."""
    INFRASTRUCTURE = "infrastructure"
    """Neither the entry nor the task is at fault; never scored, retried on resume."""


class Verdict(StrEnum):
    """Result of the comparison of a candidate with a baseline."""

    BETTER = "better"
    """It differs in the desired direction."""
    WORSE = "worse"
    """It differs in the undesired direction."""
    HIGHER = "higher"
    """It has a higher value of a metric without a direction."""
    LOWER = "lower"
    """It has a lower value of a metric without a direction."""
    NO_DIFFERENCE = "no_difference"
    """Any difference is smaller than the smallest difference that matters."""
    UNDECIDED = "undecided"
    """The data is not sufficient to decide."""
    UNKNOWN = "unknown"
    """No comparison is possible: no interval, different tasks, or identical trials."""


class StopReason(StrEnum):
    """Reason why a session ended.

    The stored value is a text: one of these, `died: ` with the cause, `terminate: ` with the
    reason given by the model, or the name of an error. Imported logs may have other texts.
    """

    DIED = "died"
    """The player died; the cause follows after a colon, if known."""
    LENGTH = "length"
    """The world reached its maximum length."""
    MAX_TURNS = "max_turns"
    """The maximum number of turns was reached."""
    STEP_LIMIT = "step_limit"
    """The maximum number of steps was reached."""
    TOKEN_LIMIT = "token_limit"
    """The token limit of the session was reached."""
    TIME_LIMIT = "time_limit"
    """The time limit was reached."""
    TERMINATE = "terminate"
    """The model ended the session; its reason follows after a colon."""
    DONE = "done"
    """The traced loop ended, or the world of another program did."""
    MAX_STEPS = "max_steps"
    """A policy, or the agent of another program, reached its maximum number of steps."""
    FINISHED = "finished"
    """Another program reports only that it ended."""
    PROCESS_DIED = "process died"
    """The process that recorded it died."""

    def with_reason(self, reason: str) -> str:
        """Return the stored text with an additional reason."""
        return f"{self}: {reason}"


class Encoded:
    """A JSON value with its canonical bytes and their hash, both computed once."""

    __slots__ = ("encoded", "hash", "value")

    def __init__(self, value: Any) -> None:
        self.encoded = canonical_json(value)
        """Canonical JSON in UTF-8."""
        self.hash = content_hash(self.encoded)
        # Characters that cannot be encoded were replaced, so the value follows the bytes.
        self.value: Any = json.loads(self.encoded) if b"\xef\xbf\xbd" in self.encoded else value

    @classmethod
    def stored(cls, body: str) -> Self:
        """Make an object from stored canonical JSON; the bytes are kept unchanged."""
        kept = cls.__new__(cls)
        kept.encoded = body.encode()
        kept.hash = content_hash(kept.encoded)
        kept.value = json.loads(body)
        return kept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Message(Encoded):
    """One message of a conversation, in the format of the chat protocol.

    `value` has `role`, `content` and, if they apply, `tool_calls` or `tool_call_id`.
    """

    __slots__ = ()
    value: Mapping[str, Any]

    @property
    def role(self) -> str:
        """Role of the sender: system, user, assistant or tool."""
        return str(self.value["role"])

    @property
    def text(self) -> str:
        """Text content; empty if there are only tool calls."""
        content = self.value.get("content")
        return content if isinstance(content, str) else ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; `cached` is part of the prompt, `reasoning` of the completion."""

    prompt: Count = 0
    completion: Count = 0
    cached: Count = 0
    reasoning: Count = 0

    @property
    def total(self) -> int:
        """All tokens, each counted once."""
        return self.prompt + self.completion

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model."""

    model: str
    """Name of the model in assay."""
    messages: Sequence[Message]
    tools: Encoded
    """List of tools in the format of the chat protocol; empty if there are none."""
    temperature: float | None = None
    max_tokens: int = 1024
    """Maximum number of tokens in the reply."""
    seed: int | None = None


class MessageType(StrEnum):
    """Kind of a message in a conversation."""

    SYSTEM = "system"
    """Rules and instructions."""
    OBSERVATION = "observation"
    """Results of actions, and the current view."""
    TOOL_CALL = "tool_call"
    """A reply with tool calls."""
    REPLY = "reply"
    """A reply without tool calls."""
    FEEDBACK = "feedback"
    """A response to the model without an observation."""


class PreparedRequest(NamedTuple):
    """A request, and the positions of its messages in the conversation."""

    request: ChatRequest
    positions: tuple[int, ...]
    reply: int
    """Position of the reply."""


class NewMessage(NamedTuple):
    """A message at its position in the conversation, counted from 0."""

    position: int
    message: Message
    message_type: str
    """A `MessageType`, or another text chosen by the caller."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One response of a model."""

    message: Message
    """Message of the assistant, as it is added to the history."""
    finish_reason: str = "stop"
    """As in the chat protocol: stop, length, tool_calls, content_filter."""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    """Cost of the call; None if the price is unknown."""
    latency_s: float = 0.0
    """Duration of the successful attempt, without waiting in the queue."""
    waited_s: float = 0.0
    """Time in the queue and between attempts, which is not spent by the model."""
    retries: int = 0
    answered_as: str | None = None
    """Name that the provider reports for the model that responded, if any."""


class ChatModel(Protocol):
    """Responds to requests; many may be open at the same time.

    Raises ModelRefused, ModelUnavailable or ModelRejected from `assay.errors`.
    """

    name: str
    """Name used by users."""
    provider: str
    """Name of the provider: `builtin`, `openai` and so on."""

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Respond to one request."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class Agent(Protocol):
    """Chooses actions from observations; created for each episode.

    A plain function `act(view)` works as well. A class may take `model`, `seed` and `settings`,
    keep state, and have a coroutine for `act`; see `assay.agents.user_agents`.
    """

    def act(self, view: Any) -> Any:
        """Return one action or several, by names or indices."""
        ...


class Environment(Protocol):
    """A world to play in; created for each episode.

    Besides the two methods, a class may have:

    - `actions`: the names of all actions. Without it, any JSON value is an action.
    - `outcomes`: a dictionary of outcome names with "higher" or "lower", whichever is better.
      The attributes with these names are stored as outcomes at the end of an episode.
    - `text(observation)`: the text for a language model; not needed if observations are texts.
      `rules` is a text that describes the environment.
    - `deterministic = False`: if equal actions after an equal `reset` may have different
      results. Such episodes cannot be verified, and restart on resume.
    """

    def reset(self, seed: int) -> Any:
        """Start an episode, and return the first observation."""
        ...

    def step(self, action: Any) -> tuple[Any, ...]:
        """Return observation, reward and done, or the five values of Gymnasium."""
        ...
