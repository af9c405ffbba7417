"""How a trial ended, and what an exception says about that.

A verdict holds text and light values only: nothing of the trial lives on in it.
"""

import errno
import traceback
from dataclasses import dataclass
from typing import Any

from assay._util.redact import mask
from assay.errors import (
    AccessDenied,
    AssayError,
    InstanceLimit,
    JournalError,
    ModelRejected,
    OutputError,
    StoreError,
    TrainerFailed,
    UnknownInstance,
)
from assay.types import TrialState

__all__ = ["GroupStop", "Interrupted", "TrialError", "TrialVerdict", "classify", "trial_error"]

_INFRASTRUCTURE = (
    ConnectionError,  # ModelUnavailable and ServiceError among them
    TimeoutError,
    InstanceLimit,
    UnknownInstance,
    JournalError,
    StoreError,
    OutputError,
    TrainerFailed,
    MemoryError,
)
# The machine is out of something. Other errors of files come from code of the subject.
_EXHAUSTED = {
    errno.EDQUOT,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EROFS,
}


class Interrupted(AssayError):
    """A trial left because it was asked to stop; it has no end, and can be resumed."""


@dataclass(frozen=True, slots=True)
class TrialError:
    """What went wrong."""

    type: str
    """The name of the exception's class."""
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """How a trial ended."""

    state: TrialState
    reason: str
    """Why it ended there; for an exception, the name of its class."""
    error: TrialError | None = None
    value: Any = None
    """What listeners may want to know of the trial; light, and unknown to the engine."""
    retry_after: float | None = None
    """Seconds to wait where there was no room for the trial, None where there was.

    For an infrastructure error only. It costs no attempt as long as a trial is open that
    started earlier, which will make room; and no new trial starts in the place of this one.
    """


@dataclass(frozen=True, slots=True)
class GroupStop:
    """Why no trial of a group can succeed; the one that found out is left without an end."""

    reason: str
    error: TrialError | None = None


def classify(error: Exception) -> TrialVerdict | GroupStop:
    """Say whose fault an exception is.

    Lost connections, timeouts, no room, and what the store or the machine lacks are
    infrastructure. A rejected model or a denied access stops the group. All else, a refusal
    or a bug, is a failure.
    """
    kind = type(error).__name__
    if isinstance(error, ModelRejected | AccessDenied):
        said = trial_error(error)
        return GroupStop(said.message, said)
    blameless = isinstance(error, _INFRASTRUCTURE) or (
        isinstance(error, OSError) and error.errno in _EXHAUSTED
    )
    return TrialVerdict(
        TrialState.INFRASTRUCTURE if blameless else TrialState.FAILURE,
        kind,
        trial_error(error),
        retry_after=float(error.retry_after) if isinstance(error, InstanceLimit) else None,
    )


def trial_error(error: BaseException) -> TrialError:
    """The type, message and traceback of an exception, as text without secrets."""
    return TrialError(
        type(error).__name__,
        mask(_message(error)),
        mask("".join(traceback.format_exception(error))),
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the class may be anybody's
        return "(its message could not be made)"
