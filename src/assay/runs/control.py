"""Control of trials: verdicts, classification of exceptions, limits, retries, stop requests.

A verdict contains only text and small values, so it keeps no objects of the trial alive.

A user may request a stop twice: the first request lets open trials finish their current work,
the second cancels them. `Stop.cancel_trials` cancels open trials, but not other work. Requests
may come from a signal handler or any thread; `Stop` itself only wakes its watchers.
"""

import asyncio
import errno
import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from assay.core.aio import backoff_seconds
from assay.core.canonical_json import derive_id
from assay.core.secrets import mask
from assay.core.user_code import read_exception_message
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
    UsageError,
)
from assay.types import TrialState

_INFRASTRUCTURE = (
    ConnectionError,  # includes ModelUnavailable and ServiceError
    TimeoutError,
    InstanceLimit,
    UnknownInstance,
    JournalError,
    StoreError,
    OutputError,
    TrainerFailed,
    MemoryError,
)
# The machine has run out of a resource. Other file errors come from code of the entry.
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
    """The trial stopped on request; it has no end and can be resumed."""


@dataclass(frozen=True, slots=True)
class TrialError:
    """Type, message and traceback of an exception, as text."""

    type: str
    """Class name of the exception."""
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """End state of a trial, with its reason."""

    state: TrialState
    reason: str
    """Stop reason; for an exception, its class name."""
    error: TrialError | None = None
    value: Any = None
    """Small data about the trial for observers; the engine does not use it."""
    retry_after: float | None = None
    """Seconds to wait if there was no room for the trial; None otherwise.

    Only for infrastructure errors. The attempt is not counted while an older trial is open,
    because that trial will make room, and no new trial starts in the place of this one.
    """


@dataclass(frozen=True, slots=True)
class GroupStop:
    """Reason why no trial of a group can succeed; the trial that raised it gets no end."""

    reason: str
    error: TrialError | None = None


def classify(error: Exception) -> TrialVerdict | GroupStop:
    """Classify an exception of a trial.

    Lost connections, timeouts, missing room, and errors of the database or the machine are
    infrastructure errors. A rejected model or denied access stops the group. Everything else,
    such as a refusal or a bug, is a failure.
    """
    kind = type(error).__name__
    if isinstance(error, ModelRejected | AccessDenied):
        description = describe_error(error)
        return GroupStop(description.message, description)
    is_infrastructure = isinstance(error, _INFRASTRUCTURE) or (
        isinstance(error, OSError) and error.errno in _EXHAUSTED
    )
    return TrialVerdict(
        TrialState.INFRASTRUCTURE if is_infrastructure else TrialState.FAILURE,
        kind,
        describe_error(error),
        retry_after=float(error.retry_after) if isinstance(error, InstanceLimit) else None,
    )


def describe_error(error: BaseException) -> TrialError:
    """Return type, message and traceback of an exception, as text without secrets."""
    return TrialError(
        type(error).__name__,
        mask(read_exception_message(error)),
        mask("".join(traceback.format_exception(error))),
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on concurrency."""

    max_open: int = 1000
    """Maximum number of open trials; open groups share them evenly."""
    max_groups: int = 1
    """Maximum number of open groups; 1 runs them one after another."""

    def __post_init__(self) -> None:
        _check_minimum("max_open", self.max_open, 1)
        _check_minimum("max_groups", self.max_groups, 1)


@dataclass(frozen=True, slots=True)
class Retries:
    """Rules for retries after an infrastructure error; other ends are final.

    The wait doubles with each attempt. It is shortened by a random share of up to one half, so
    that trials that failed together do not retry together. The share is determined by the
    seed, the trial and the attempt.
    """

    attempts: int = 5
    """Maximum number of attempts, including the first; 1 means no retry."""
    first_wait: float = 1.0
    """Seconds before the second attempt."""
    longest_wait: float = 60.0
    """Maximum wait in seconds."""
    seed: int = 0

    def __post_init__(self) -> None:
        _check_minimum("attempts", self.attempts, 1)
        _check_minimum("first_wait", self.first_wait, 0)
        _check_minimum("longest_wait", self.longest_wait, self.first_wait)

    def wait(self, trial_id: str, attempt: int) -> float:
        """Return the seconds between this attempt of a trial and the next one."""
        share = int(derive_id(self.seed, trial_id, attempt), 16) / 16**20
        return backoff_seconds(attempt - 1, self.first_wait, self.longest_wait) * (
            1 - share / 2
        )


def _check_minimum(name: str, value: float, minimum: float) -> None:
    if not (math.isfinite(value) and value >= minimum):
        raise UsageError(f"{name} is {value!r}; it must be a number of at least {minimum:g}")


class Stop:
    """A stop request with two levels, which cannot be withdrawn."""

    def __init__(self) -> None:
        # list.append is atomic, also with threads and signal handlers.
        self._requests: list[None] = []
        self._cancel_requested = False
        self._watchers: tuple[tuple[asyncio.AbstractEventLoop, Callable[[], None]], ...] = ()

    def request(self) -> None:
        """Request a stop. From the second request on, open trials are cancelled."""
        self._requests.append(None)
        self._wake()

    def cancel_trials(self) -> None:
        """Cancel open trials after a stop request, but no other work."""
        self._cancel_requested = True
        self._wake()

    def _wake(self) -> None:
        for loop, wake in self._watchers:
            # A closed loop has nothing left to stop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(wake)

    @property
    def is_requested(self) -> bool:
        """Whether nothing new may start, and open trials should stop."""
        return len(self._requests) > 0

    @property
    def should_cancel(self) -> bool:
        """Whether open trials are to be cancelled."""
        return self.is_requested and (self._cancel_requested or self.is_forced)

    @property
    def is_forced(self) -> bool:
        """Whether nothing is to be waited for any longer."""
        return len(self._requests) > 1

    @contextmanager
    def watch(self, wake: Callable[[], None]) -> Iterator[None]:
        """Within the context, call `wake` in the running loop on each stop request."""
        watcher = (asyncio.get_running_loop(), wake)
        # Replaced as a whole, so that a signal handler never sees a partial change.
        self._watchers = (*self._watchers, watcher)
        try:
            yield
        finally:
            self._watchers = tuple(
                registered for registered in self._watchers if registered is not watcher
            )
