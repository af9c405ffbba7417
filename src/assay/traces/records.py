"""What a trace holds, as values: the journal, the tables and the export all say these.

A session is a header, then turns, then an end. A turn is one call of a model and what was
played of its answer. Row ids follow from the session and the position in it, so that the
same trace always gives the same rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.types import Encoded, Message, TrialState, Usage

__all__ = [
    "CallRecord",
    "EndRecord",
    "ErrorRecord",
    "ExperimentRecord",
    "HookRecord",
    "LimitRecord",
    "MessageRecord",
    "PlayedRecord",
    "RunRecord",
    "SessionHeader",
    "SessionRecord",
    "StepRecord",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRecord:
    """One subject in one run. Its name and version are given by the store."""

    id: str
    series: str
    """What one follows over time."""
    model: str
    fingerprint: str
    """A hash of all that makes a version: model, prompt, data, configuration."""
    tags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, as it was asked for."""

    id: str
    command: str
    configuration: Mapping[str, Any]
    provenance: Mapping[str, Any]
    created_at: float
    """Seconds since 1970, as all times here."""
    experiments: tuple[ExperimentRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeader:
    """What a session is about, known before it starts."""

    session_id: str
    run_id: str
    experiment_id: str
    subject: str
    """Who plays: the name of a model, an agent, a policy."""
    task: str
    """For episodes `crafter/<difficulty>`."""
    seed: int | None
    episode: int
    """Counted from 0 within the experiment."""
    replicate: int = 0
    created_at: float
    difficulty: str | None = None
    tools: Encoded | None = None
    """What every request of the session offered."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """All else that is needed to play it again: the whole difficulty, length, limits."""


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message, at its position in the session; written once, however often it is sent."""

    position: int
    turn: int
    message: Message
    message_type: str
    """system, observation, tool_call, feedback; the words of whoever recorded it."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call of a model, which is one turn."""

    turn: int
    """Counted from 1."""
    at: float
    """When the answer came."""
    request: tuple[int, ...]
    """The positions of the messages that were sent, in their order."""
    reply: int
    """The position of the answer."""
    model: str
    provider: str
    finish_reason: str
    usage: Usage
    cost_usd: float | None
    latency_s: float
    waited_s: float = 0.0
    """Time in the queue for a turn and between attempts; no time of the model."""
    retries: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """temperature, max_tokens and seed of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step of the environment."""

    index: int
    """Counted from 1, so that it is the number of steps made."""
    action: str
    reward: float
    digest: str | None
    """The state after the step, in hexadecimal; None where nobody can tell."""
    unlocked: tuple[str, ...] = ()
    """Achievements reached for the first time."""
    no_effect: str | None = None
    """Why the action changed nothing, if it did not."""
    terminated: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRecord:
    """Something a hook noticed."""

    name: str
    code: str
    """One letter for displays."""
    priority: int
    step: int | None
    """The index of the step; None for what concerns the turn as a whole."""
    description: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRecord:
    """What was played of an answer."""

    turn: int
    at: float
    asked: tuple[str, ...] = ()
    """The actions the answer asked for, unknown ones included."""
    unknown: tuple[str, ...] = ()
    """Those among them that do not exist."""
    malformed: str | None = None
    """What was wrong with the answer, if it could not be read."""
    skipped: int = 0
    """Known actions that were not played, because the episode had ended."""
    steps: tuple[StepRecord, ...] = ()
    hooks: tuple[HookRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """What went wrong."""

    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRecord:
    """How a session ended."""

    at: float
    state: TrialState
    stop_reason: str
    """died, length, max_turns, steps, tokens, time, terminate: …, or the kind of error."""
    duration_s: float
    """Time played, summed over attempts; waiting for a turn is not in it."""
    outcomes: Mapping[str, float] = field(default_factory=dict)
    """What it earned; empty unless it ended as a result."""
    error: ErrorRecord | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord:
    """How many calls a provider was given at once, from some moment on."""

    provider: str
    at: float
    connections: int
    per_second: float | None
    """Calls that may start; None for no limit."""
    pause_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A whole session; `end` is missing while it goes on."""

    header: SessionHeader
    messages: Sequence[MessageRecord]
    calls: Sequence[CallRecord]
    played: Sequence[PlayedRecord]
    end: EndRecord | None
