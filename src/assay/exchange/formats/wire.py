"""The shape of `assay-trace/1`, for files that come from anywhere.

Every field has a type and a bound; what is not named here is not allowed. What the fields
mean together is checked by `trace_json`.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.types import TrialState

__all__ = [
    "FORMAT",
    "WireCall",
    "WireEnd",
    "WireError",
    "WireExperiment",
    "WireHook",
    "WireMessage",
    "WirePlayed",
    "WireRun",
    "WireSession",
    "WireStep",
    "WireTrace",
    "WireUsage",
]

FORMAT: Final = "assay-trace/1"
"""What the field `format` of every file says."""

# The bounds of the columns that will hold the values.
_Name = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Ordinal = Annotated[int, Field(ge=1, lt=2**31)]
_Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Time = Annotated[float, Field(ge=0, lt=253_402_300_800)]
_Duration = Annotated[float, Field(ge=0, lt=1e12)]
_Object = dict[str, Any]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class WireRun(_Wire):
    """A run."""

    id: _Name
    command: str
    configuration: _Object
    provenance: _Object
    status: Literal["running", "finished", "incomplete"]
    created_at: _Time
    finished_at: _Time | None = None


class WireExperiment(_Wire):
    """An experiment."""

    id: _Name
    name: _Name
    series: _Name
    version: _Name
    position: _Count = 0
    model: _Name
    fingerprint: _Name
    description: str | None = None
    created_at: _Time
    updated_at: _Time
    tags: _Object = {}
    note: str | None = None


class WireSession(_Wire):
    """What a session is about; its run and its experiment stand beside it."""

    id: _Name
    subject: _Name
    task: _Name
    seed: _Seed | None
    episode: _Count
    replicate: _Count = 0
    difficulty: str | None = None
    created_at: _Time
    tools: list[Any] | None = None
    metadata: _Object = {}


class WireMessage(_Wire):
    """A message at its position."""

    position: _Count
    turn: _Count
    type: _Name
    at: _Time
    message: _Object


class WireUsage(_Wire):
    """Tokens of one call."""

    prompt: _Count = 0
    completion: _Count = 0
    cached: _Count = 0
    reasoning: _Count = 0


class WireCall(_Wire):
    """One call of a model."""

    turn: _Ordinal
    at: _Time
    request: tuple[_Count, ...]
    reply: _Count
    model: _Name
    provider: _Name
    finish_reason: str
    usage: WireUsage
    cost_usd: float | None = None
    latency_s: _Duration
    waited_s: _Duration = 0.0
    retries: _Count = 0
    parameters: _Object = {}


class WireStep(_Wire):
    """One step of the environment."""

    index: _Ordinal
    action: str
    reward: float
    digest: str | None
    unlocked: tuple[str, ...] = ()
    no_effect: str | None = None
    terminated: bool = False
    truncated: bool = False


class WireHook(_Wire):
    """What a hook noticed."""

    name: _Name
    code: str
    priority: _Priority
    step: _Count | None
    description: str = ""
    data: _Object = {}


class WirePlayed(_Wire):
    """What was played of an answer."""

    turn: _Ordinal
    at: _Time
    asked: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    malformed: str | None = None
    skipped: _Count = 0
    steps: tuple[WireStep, ...] = ()
    hooks: tuple[WireHook, ...] = ()


class WireError(_Wire):
    """What went wrong."""

    type: str
    message: str
    traceback: str = ""


class WireEnd(_Wire):
    """How a session ended."""

    at: _Time
    state: TrialState
    stop_reason: str
    duration_s: _Duration
    outcomes: dict[_Name, float] = {}
    error: WireError | None = None
    attempts: _Count = 1


class WireTrace(_Wire):
    """A whole file."""

    format: Literal["assay-trace/1"]
    source: _Name = "assay"
    run: WireRun
    experiment: WireExperiment
    session: WireSession
    messages: tuple[WireMessage, ...]
    calls: tuple[WireCall, ...]
    played: tuple[WirePlayed, ...]
    end: WireEnd
