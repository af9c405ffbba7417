"""Records of a trace, shared by journals, tables, exports and imports.

A session is a header, then turns, then an end. A turn is one decision: its model calls in
order (none, one or several) and the actions played. Row ids are computed from the session and
the position in it, so that the same trace always has the same rows.

A field is declared here and, if it is stored, as a column in `schema`; journals, exports,
imports, rows and loading are derived from the two. A new field comes last in its record and
has a default, so that journals and exports without it can still be read.

A log of another program may count tokens or invalid actions only for the whole session. Such
totals are in the metadata of the session, where exports keep them, and replace the sums over
its turns. The metadata also has the reason why the session cannot be replayed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from assay.core.canonical_json import canonical_json
from assay.core.values import Count, Flag, Moment, Name, Ordinal, Priority, Real, Seconds, Seed
from assay.types import Encoded, Message, TrialState, Usage

IMPORTED: Final = "imported"
"""Key in the metadata of an imported session."""

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
    """Facts about an imported session as a whole."""

    unverifiable: str | None
    """Why the session cannot be replayed; None if it can."""
    totals: Mapping[str, float | None] = field(default_factory=dict)
    """Totals by column of `session_traces`; None if unknown."""

    @property
    def metadata(self) -> dict[str, Any]:
        """These facts in the form used in the metadata of a session."""
        about = {"unverifiable": self.unverifiable, "totals": dict(self.totals)}
        return {IMPORTED: {name: value for name, value in about.items() if value}}


def imported_columns(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of `session_traces` that the metadata of an imported session sets.

    Metadata may be untrusted: unknown columns and invalid totals are ignored.
    """
    about = metadata.get(IMPORTED)
    if not isinstance(about, Mapping):
        return {}
    totals = about.get("totals")
    columns: dict[str, Any] = {
        name: value
        for name, value in (totals.items() if isinstance(totals, Mapping) else ())
        if _is_valid_total(name, value)
    }
    if unverifiable_reason(metadata) is not None:
        columns["verifiable"] = False
    return columns


def unverifiable_reason(metadata: Mapping[str, Any]) -> str | None:
    """Return why an imported session cannot be replayed; None if it can."""
    about = metadata.get(IMPORTED)
    reason = about.get("unverifiable") if isinstance(about, Mapping) else None
    return reason if isinstance(reason, str) and reason else None


def _is_valid_total(name: str, value: object) -> bool:
    if name in _COUNTS:
        return type(value) is int and 0 <= value < _COUNTS[name]
    if name not in _NUMBERS or isinstance(value, bool):
        return False
    least = 0 if name == "cost_usd" else -_LARGE
    return value is None or (isinstance(value, int | float) and least <= value < _LARGE)


class _FromJson:
    """Annotation of a field that `make` creates from JSON of type `shape`, checking it."""

    def __init__(self, shape: type, make: Callable[[Any], Any]) -> None:
        self._shape, self._make = shape, make

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        shape = handler.generate_schema(self._shape)
        return core_schema.no_info_after_validator_function(self._make, shape)


def _check_json(value: Mapping[str, Any]) -> Mapping[str, Any]:
    # Most have a few numbers and texts, which are checked faster than encoded.
    for part in value.values():
        if part.__class__ not in _SCALARS and not (part.__class__ is float and isfinite(part)):
            canonical_json(value)
            break
    return value


_SCALARS: Final = frozenset((str, int, bool, type(None)))


Object: TypeAlias = Annotated[Mapping[str, Any], _FromJson(dict, _check_json)]
"""A JSON object."""


ADDED: Mapping[str, Any] = {"added": True}
"""Metadata of a field added in a later version: its default is not written to journals and
exports, so that they equal those of earlier versions."""


class Record:
    """Base class of records: reading one rejects undeclared fields."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRecord(Record):
    """One entry in one run. Its name and version are assigned when it is stored."""

    id: str
    series: str
    """Name that is common to all versions of the experiment."""
    model: str
    fingerprint: str
    """Hash of everything that determines a version: model, prompt, data, configuration."""
    tags: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(Record):
    """One run, as it was started."""

    id: str
    command: str
    configuration: Object
    provenance: Object
    created_at: Moment
    experiments: tuple[ExperimentRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeader(Record):
    """Facts about a session that are known before it starts."""

    session_id: Name
    run_id: Name
    experiment_id: Name
    subject: Name
    """Name of the model, agent or policy."""
    task: Name
    """`crafter/<difficulty>` for Crafter episodes."""
    seed: Seed | None
    episode: Count
    """Counted from 0 within the experiment."""
    replicate: Count = 0
    created_at: Moment
    difficulty: str | None = None
    tools: Annotated[Encoded, _FromJson(list, Encoded)] | None = None
    """Tools offered in every request of the session."""
    metadata: Object = field(default_factory=dict)
    """Other facts needed for a replay: all numbers of the difficulty, length, limits."""
    trial_kind: Name = field(default="episode", metadata=ADDED)
    """Kind of trial; see `StoredKind` for the built-in ones."""
    parent: Name | None = field(default=None, metadata=ADDED)
    """Session from which it was forked."""
    forked_at: Count | None = field(default=None, metadata=ADDED)
    """Number of steps shared with the parent."""


@dataclass(frozen=True, slots=True)
class MessageRecord(Record):
    """A message at its position in the session; stored once even if it is sent many times."""

    position: Count
    turn: Count
    message: Annotated[Message, _FromJson(dict, Message)]
    message_type: Name
    """Such as system, observation, tool_call, feedback; chosen by the recording program."""
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(Record):
    """One model call; a turn has none, one or several."""

    turn: Ordinal
    """Its turn, counted from 1."""
    at: Moment
    """Time of the reply."""
    request: tuple[Count, ...]
    """Positions of the messages in the request, in order."""
    reply: Count
    """Position of the reply."""
    model: Name
    provider: Name
    finish_reason: str
    usage: Usage
    cost_usd: Real | None = None
    latency_s: Seconds
    waited_s: Seconds = 0.0
    """Time in the queue and between attempts, which is not time of the model."""
    retries: Count = 0
    parameters: Object = field(default_factory=dict)
    """temperature, max_tokens and seed of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(Record):
    """One step of the environment."""

    index: Ordinal
    """Counted from 1, so it is the number of steps so far."""
    action: str
    reward: Real
    digest: str | None
    """Hexadecimal digest of the state after the step; None if unknown."""
    unlocked: tuple[str, ...] = ()
    """Achievements unlocked for the first time."""
    no_effect: str | None = None
    """Why the action had no effect; None if it had one."""
    terminated: Flag = False
    truncated: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRecord(Record):
    """Result of a hook."""

    name: Name
    code: str
    """One letter for displays."""
    priority: Priority
    step: Count | None
    """Index of the step; None if the result is about the whole turn."""
    description: str = ""
    data: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRecord(Record):
    """Actions played in a turn."""

    turn: Ordinal
    at: Moment
    asked: tuple[str, ...] = ()
    """Actions in the reply, including unknown ones."""
    unknown: tuple[str, ...] = ()
    """Actions in the reply that do not exist."""
    malformed: str | None = None
    """Why the reply could not be parsed; None if it could."""
    skipped: Count = 0
    """Known actions that were not played because the episode had ended."""
    steps: tuple[StepRecord, ...] = ()
    hooks: tuple[HookRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord(Record):
    """The error that ended a session."""

    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRecord(Record):
    """End of a session."""

    at: Moment
    state: TrialState
    stop_reason: str
    """A `StopReason` with optional details after a colon, an error name, or imported text."""
    duration_s: Seconds
    """Time played, summed over attempts, without time in queues."""
    outcomes: Mapping[Name, Real] = field(default_factory=dict)
    """Values by metric; empty unless it completed."""
    error: ErrorRecord | None = None
    attempts: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord(Record):
    """Limit of concurrent calls to a provider, from some moment on."""

    provider: str
    at: Moment
    connections: Count
    per_second: Real | None
    """Calls that may start per second; None for no limit."""
    pause_s: Seconds
    reason: str


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session; `end` is None while it is in progress."""

    header: SessionHeader
    messages: Sequence[MessageRecord]
    calls: Sequence[CallRecord]
    played: Sequence[PlayedRecord]
    end: EndRecord | None

    @property
    def imported_totals(self) -> dict[str, Any]:
        """Totals from another program's log, by column of `session_traces`."""
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
    """A row of `experiments`, with its assigned name and version."""

    id: Name
    name: Name
    series: Name
    version: Name
    position: Count = 0
    """Its index among the experiments of its run."""
    model: Name
    fingerprint: Name
    description: str | None = None
    created_at: Moment
    updated_at: Moment
    tags: Object = field(default_factory=dict)
    note: str | None = None
    """The user's note on this version."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A session with its run and its experiment, as in an export."""

    run: StoredRun
    experiment: StoredExperiment
    session: SessionRecord
    source: str = "assay"
    """`assay`, or the format it was imported from."""
