"""What a trace holds, as values: the journal, the tables and the export all say these.

A session is a header, then turns, then an end. A turn is one decision: the calls of a model
it took, in their order, none or several, and what was played of it. Row ids follow from the
session and the position in it, so that the same trace always gives the same rows.

A field is declared here and, if it is stored, as a column in `schema`; journals, exports,
imports, rows and what is loaded follow from the two. A new field comes last in its record
and has a default, so that journals and exports that lack it can still be read.

A log of another program may count tokens or invalid actions without saying in which turn they
fell. Such totals stand in the metadata of the session, where an export keeps them, and take the
place of the sums over its turns. Beside them stands why the session cannot be played again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from assay.core.canonical_json import canonical_json
from assay.core.values import Count, Flag, Moment, Name, Ordinal, Priority, Real, Seconds, Seed
from assay.types import Encoded, Message, TrialState, Usage

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
        """Return it as metadata of a session."""
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


class _Json:
    """A field that is made of JSON of a shape, once that is known to have a JSON form."""

    def __init__(self, shape: type, make: Callable[[Any], Any]) -> None:
        self._shape, self._make = shape, make

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        shape = handler.generate_schema(self._shape)
        return core_schema.no_info_after_validator_function(self._make, shape)


def _plain(value: Mapping[str, Any]) -> Mapping[str, Any]:
    # A few numbers and texts are what most hold, and looked at more quickly than encoded.
    for part in value.values():
        if part.__class__ not in _SCALARS and not (part.__class__ is float and isfinite(part)):
            canonical_json(value)
            break
    return value


_SCALARS: Final = frozenset((str, int, bool, type(None)))


Object: TypeAlias = Annotated[Mapping[str, Any], _Json(dict, _plain)]
"""What JSON can hold, by name."""


ADDED: Mapping[str, Any] = {"added": True}
"""The metadata of a field that was not there from the start: it is left out of a journal and
an export where it has its default, so that those of earlier programs stay what they were."""


class Record:
    """What all records share: whoever reads one allows the fields it declares and no others."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRecord(Record):
    """One subject in one run. Its name and version are given by the store."""

    id: str
    series: str
    """What one follows over time."""
    model: str
    fingerprint: str
    """A hash of all that makes a version: model, prompt, data, configuration."""
    tags: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(Record):
    """One run, as it was asked for."""

    id: str
    command: str
    configuration: Object
    provenance: Object
    created_at: Moment
    experiments: tuple[ExperimentRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeader(Record):
    """What a session is about, known before it starts."""

    session_id: Name
    run_id: Name
    experiment_id: Name
    subject: Name
    """Who plays: the name of a model, an agent, a policy."""
    task: Name
    """For episodes `crafter/<difficulty>`."""
    seed: Seed | None
    episode: Count
    """Counted from 0 within the experiment."""
    replicate: Count = 0
    created_at: Moment
    difficulty: str | None = None
    tools: Annotated[Encoded, _Json(list, Encoded)] | None = None
    """What every request of the session offered."""
    metadata: Object = field(default_factory=dict)
    """All else that is needed to play it again: the whole difficulty, length, limits."""
    trial_kind: Name = field(default="episode", metadata=ADDED)
    """What sort of trial it is; see `StoredKind` for those of assay itself."""
    parent: Name | None = field(default=None, metadata=ADDED)
    """The session it was forked from."""
    forked_at: Count | None = field(default=None, metadata=ADDED)
    """How many steps it has in common with its parent."""


@dataclass(frozen=True, slots=True)
class MessageRecord(Record):
    """A message, at its position in the session; written once, however often it is sent."""

    position: Count
    turn: Count
    message: Annotated[Message, _Json(dict, Message)]
    message_type: Name
    """system, observation, tool_call, feedback; the words of whoever recorded it."""
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(Record):
    """One call of a model; a turn has none, one or several, in the order they were made."""

    turn: Ordinal
    """Its turn, counted from 1."""
    at: Moment
    """When the answer came."""
    request: tuple[Count, ...]
    """The positions of the messages that were sent, in their order."""
    reply: Count
    """The position of the answer."""
    model: Name
    provider: Name
    finish_reason: str
    usage: Usage
    cost_usd: Real | None = None
    latency_s: Seconds
    waited_s: Seconds = 0.0
    """Time in the queue for a turn and between attempts; no time of the model."""
    retries: Count = 0
    parameters: Object = field(default_factory=dict)
    """temperature, max_tokens and seed of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(Record):
    """One step of the environment."""

    index: Ordinal
    """Counted from 1, so that it is the number of steps made."""
    action: str
    reward: Real
    digest: str | None
    """The state after the step, in hexadecimal; None where nobody can tell."""
    unlocked: tuple[str, ...] = ()
    """Achievements reached for the first time."""
    no_effect: str | None = None
    """Why the action changed nothing, if it did not."""
    terminated: Flag = False
    truncated: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRecord(Record):
    """Something a hook noticed."""

    name: Name
    code: str
    """One letter for displays."""
    priority: Priority
    step: Count | None
    """The index of the step; None for what concerns the turn as a whole."""
    description: str = ""
    data: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRecord(Record):
    """What was played in a turn."""

    turn: Ordinal
    at: Moment
    asked: tuple[str, ...] = ()
    """The actions the answer asked for, unknown ones included."""
    unknown: tuple[str, ...] = ()
    """Those among them that do not exist."""
    malformed: str | None = None
    """What was wrong with the answer, if it could not be read."""
    skipped: Count = 0
    """Known actions that were not played, because the episode had ended."""
    steps: tuple[StepRecord, ...] = ()
    hooks: tuple[HookRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord(Record):
    """What went wrong."""

    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRecord(Record):
    """How a session ended."""

    at: Moment
    state: TrialState
    stop_reason: str
    """A `StopReason`, with more after a colon, or the name of an error; imported, any text."""
    duration_s: Seconds
    """Time played, summed over attempts; waiting for a turn is not in it."""
    outcomes: Mapping[Name, Real] = field(default_factory=dict)
    """What it earned; empty unless it completed."""
    error: ErrorRecord | None = None
    attempts: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord(Record):
    """How many calls a provider was given at once, from some moment on."""

    provider: str
    at: Moment
    connections: Count
    per_second: Real | None
    """Calls that may start; None for no limit."""
    pause_s: Seconds
    reason: str


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A whole session; `end` is missing while it goes on."""

    header: SessionHeader
    messages: Sequence[MessageRecord]
    calls: Sequence[CallRecord]
    played: Sequence[PlayedRecord]
    end: EndRecord | None

    @property
    def imported_totals(self) -> dict[str, Any]:
        """What another program's log counted as a whole, by column of `session_traces`."""
        return imported_columns(self.header.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun(Record):
    """A row of `runs`."""

    id: Name
    command: str
    configuration: Object
    provenance: Object
    status: Literal["running", "finished", "incomplete"]
    created_at: Moment
    finished_at: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment(Record):
    """A row of `experiments`, with the name the store gave it."""

    id: Name
    name: Name
    series: Name
    version: Name
    position: Count = 0
    """Its place among the experiments of its run."""
    model: Name
    fingerprint: Name
    description: str | None = None
    created_at: Moment
    updated_at: Moment
    tags: Object = field(default_factory=dict)
    note: str | None = None
    """What the user said of this version."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A session, its run and its experiment."""

    run: StoredRun
    experiment: StoredExperiment
    session: SessionRecord
    source: str = "assay"
    """`assay`, or the format it once came from."""
