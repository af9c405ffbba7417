"""The seams: what packages that do not know each other exchange.

Language models are asked by a `ChatRequest` and answer with a `ChatReply`, in the shapes of
the OpenAI chat protocol. Messages are encoded once, when they are made: what is sent, what is
hashed and what is stored are the same bytes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self

from assay.core.canonical_json import canonical_json, content_hash
from assay.core.values import Count


class TrialState(StrEnum):
    """How a trial ended. There is no fourth way."""

    RESULT = "result"
    """It earned its outcomes, good or bad."""
    FAILURE = "failure"
    """The subject is to blame: it refused, asked too much, or its code raised."""
    INFRASTRUCTURE = "infrastructure"
    """Neither the subject nor the task is to blame; never scored, tried again on resume."""


class Verdict(StrEnum):
    """What a comparison of a candidate with a baseline came to."""

    BETTER = "better"
    """It differs, in the direction that is good."""
    WORSE = "worse"
    """It differs, in the direction that is bad."""
    HIGHER = "higher"
    """It has more, of something that is neither good nor bad."""
    LOWER = "lower"
    """It has less of that."""
    NO_DIFFERENCE = "no_difference"
    """It differs by less than the smallest difference that matters, if at all."""
    UNDECIDED = "undecided"
    """The data cannot tell."""
    UNKNOWN = "unknown"
    """There is nothing to judge by: no interval, not the same task, or the same trials."""


class StopReason(StrEnum):
    """What ended a session that ran to its end.

    What is stored is a text: one of these, `died: ` and what of, `terminate: ` and the
    model's own reason, or the name of an error. An imported log may say anything else.
    """

    DIED = "died"
    """The player died; what of follows after a colon, where it is known."""
    LENGTH = "length"
    """The world came to the end of its length."""
    MAX_TURNS = "max_turns"
    """As many turns were taken as there may be."""
    STEP_LIMIT = "step_limit"
    """As many steps were made as there may be."""
    TOKEN_LIMIT = "token_limit"
    """The tokens of the session are used up."""
    TIME_LIMIT = "time_limit"
    """The time played is used up."""
    TERMINATE = "terminate"
    """The model asked for the end; its reason follows after a colon."""
    DONE = "done"
    """The loop that was traced came to its end, or another program's world did."""
    MAX_STEPS = "max_steps"
    """A policy, or another program's agent, made as many steps as it may."""
    FINISHED = "finished"
    """Another program says no more than that it ended."""
    PROCESS_DIED = "process died"
    """The process that recorded it was gone."""

    def with_words(self, words: str) -> str:
        """The text that is stored where somebody gave a reason of their own."""
        return f"{self}: {words}"


class Encoded:
    """A JSON value with its canonical bytes and their hash, both made once."""

    __slots__ = ("encoded", "hash", "value")

    def __init__(self, value: Any) -> None:
        self.encoded = canonical_json(value)
        """Canonical JSON in UTF-8."""
        self.hash = content_hash(self.encoded)
        # What cannot be encoded was replaced, and then the bytes are what counts.
        self.value: Any = json.loads(self.encoded) if b"\xef\xbf\xbd" in self.encoded else value

    @classmethod
    def stored(cls, body: str) -> Self:
        """One that was encoded before, from its bytes as text: they stay as they are."""
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
    """One message of a conversation, in the shape of the chat protocol.

    `value` has `role`, `content` and, where they apply, `tool_calls` or `tool_call_id`.
    """

    __slots__ = ()
    value: Mapping[str, Any]

    @property
    def role(self) -> str:
        """Who speaks: system, user, assistant or tool."""
        return str(self.value["role"])

    @property
    def text(self) -> str:
        """The content, or nothing where there are only tool calls."""
        content = self.value.get("content")
        return content if isinstance(content, str) else ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; those of `cached` are part of the prompt, `reasoning` of the rest."""

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
    """One question to a model."""

    model: str
    """The name the model is known by here."""
    messages: Sequence[Message]
    tools: Encoded
    """A list of tools in the shape of the chat protocol; empty where there are none."""
    temperature: float | None = None
    max_tokens: int = 1024
    """The most tokens a reply may have."""
    seed: int | None = None


class MessageType(StrEnum):
    """What a message of the conversation is."""

    SYSTEM = "system"
    """The rules and the instructions."""
    OBSERVATION = "observation"
    """What was done and what can be seen."""
    TOOL_CALL = "tool_call"
    """A reply that calls tools."""
    REPLY = "reply"
    """A reply that calls none."""
    FEEDBACK = "feedback"
    """An answer without an observation."""


class PreparedRequest(NamedTuple):
    """A request, and where its messages stand in the conversation."""

    request: ChatRequest
    positions: tuple[int, ...]
    reply: int
    """The position that the answer will have."""


class NewMessage(NamedTuple):
    """A message at its position in the conversation, counted from 0."""

    position: int
    message: Message
    message_type: str
    """A `MessageType`, or a word of whoever talks."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One answer of a model."""

    message: Message
    """The assistant's message, as it goes into the history."""
    finish_reason: str = "stop"
    """In the words of the chat protocol: stop, length, tool_calls, content_filter."""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    """What the call cost; None if the price is not known."""
    latency_s: float = 0.0
    """Of the attempt that succeeded, without waiting for a turn."""
    waited_s: float = 0.0
    """Time in the queue for a turn and between attempts: not the model's time."""
    retries: int = 0
    answered_as: str | None = None
    """What the provider calls the model that answered, where it says so."""


class ChatModel(Protocol):
    """Answers requests; many may be open at once.

    Raises ModelRefused, ModelUnavailable or ModelRejected, of `assay.errors`.
    """

    name: str
    """What users call it."""
    provider: str
    """Who answers: `builtin`, `openai` and so on."""

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Answer one request."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Agent(Protocol):
    """Chooses what to do from what it sees; made anew for each episode.

    A plain function `act(view)` will do. A class may take `model`, `seed` and `settings`, keep
    state, and have a coroutine for `act`; see `assay.agents.user_agents`.
    """

    def act(self, view: Any) -> Any:
        """One action or several: names of actions, or their indices."""
        ...


class Environment(Protocol):
    """A world to play in; made anew for each episode.

    Beside the two methods a class may have:

    - `actions`: the names of all actions. Without them, any value that JSON has is one.
    - `outcomes`: by name, "higher" or "lower", whichever is better. At the end of an episode
      the attributes of these names are what it earned, beside its reward and steps.
    - `text(observation)`: what a language model is told; not needed where observations are
      texts. `rules`, a text, says what it is about.
    - `deterministic = False`: where the same actions after the same `reset` may show another
      thing. Such episodes cannot be verified, nor resumed in the middle.
    """

    def reset(self, seed: int) -> Any:
        """Begin, and show the first observation."""
        ...

    def step(self, action: Any) -> tuple[Any, ...]:
        """Observation, reward and done; or those of gymnasium, with terminated, truncated."""
        ...
