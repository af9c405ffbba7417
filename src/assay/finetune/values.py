"""What a service says of files, jobs and events, read from its answers with nothing believed.

A field of another type than it should have is left out; an answer without an id is an error.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from assay._util.redact import mask
from assay._util.text import cut, printable
from assay.errors import ServiceError

__all__ = ["ENDED", "METRICS", "JobEvent", "RemoteFile", "RemoteJob"]

SUCCEEDED: Final = "succeeded"
ENDED: Final = frozenset({SUCCEEDED, "failed", "cancelled"})
"""The states that a job does not leave."""
METRICS: Final = (
    *("train_loss", "train_mean_token_accuracy", "valid_loss", "valid_mean_token_accuracy"),
    *("full_valid_loss", "full_valid_mean_token_accuracy", "learning_rate"),
    *("malformed_calls_constrained", "malformed_calls_free"),
)
"""Numbers of a training step, or of its end, as events name them."""
_LONGEST: Final = 2000


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that a service holds."""

    id: str
    bytes: int | None

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "RemoteFile":
        """Read the answer of a service."""
        return cls(_id(value, "file"), _whole(value.get("bytes")))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteJob:
    """A job, as its service tells of it."""

    id: str
    status: str
    """validating_files, queued, running, succeeded, failed or cancelled; others are shown."""
    model: str | None = None
    training_file: str | None = None
    suffix: str | None = None
    fine_tuned_model: str | None = None
    """The result; None until it succeeded."""
    error: str | None = None
    trained_tokens: int | None = None
    created_at: int | None = None
    """Seconds since 1970, by the service's clock."""
    finished_at: int | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether its state is the last one."""
        return self.status in ENDED

    @property
    def succeeded(self) -> bool:
        """Whether it has made a model."""
        return self.status == SUCCEEDED

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "RemoteJob":
        """Read the answer of a service."""
        method = value.get("method")
        inner = method.get("supervised") if isinstance(method, Mapping) else None
        given = value.get("hyperparameters")
        if not given and isinstance(inner, Mapping):
            given = inner.get("hyperparameters")
        return cls(
            id=_id(value, "job"),
            status=_text(value.get("status"), 40) or "unknown",
            model=_text(value.get("model")),
            training_file=_text(value.get("training_file")),
            suffix=_text(value.get("user_provided_suffix") or value.get("suffix")),
            fine_tuned_model=_text(value.get("fine_tuned_model")),
            error=_error(value.get("error")),
            trained_tokens=_whole(value.get("trained_tokens")),
            created_at=_whole(value.get("created_at")),
            finished_at=_whole(value.get("finished_at")),
            hyperparameters=dict(given) if isinstance(given, Mapping) else {},
            metadata=_mapping(value.get("metadata")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something that happened to a job."""

    id: str
    at: int | None
    """Seconds since 1970, by the service's clock."""
    level: str
    message: str
    step: int | None = None
    total_steps: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Finite numbers of the step, by the names in `METRICS`."""

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "JobEvent":
        """Read the answer of a service."""
        data = _mapping(value.get("data"))
        numbers = {name: _number(data.get(name)) for name in METRICS}
        return cls(
            id=_id(value, "event"),
            at=_whole(value.get("created_at")),
            level=_text(value.get("level"), 20) or "info",
            message=_text(value.get("message")) or "",
            step=_whole(data.get("step")),
            total_steps=_whole(data.get("total_steps")),
            metrics={name: number for name, number in numbers.items() if number is not None},
        )


def _id(value: Mapping[str, Any], what: str) -> str:
    found = _text(value.get("id"), 200)
    if found is None:
        raise ServiceError(f"the service answered with a {what} that has no id")
    return found


def _text(value: Any, longest: int = _LONGEST) -> str | None:
    """A text of a service, without secrets and in one printable line."""
    return cut(printable(mask(value)), longest) if isinstance(value, str) and value else None


def _error(value: Any) -> str | None:
    if isinstance(value, Mapping):
        parts = [_text(value.get(name)) for name in ("message", "code")]
        return next((part for part in parts if part), None)
    return _text(value)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or not 0 <= number < 2**53 else int(number)
