"""How a trial ended, and what an exception says about that.

A verdict holds text and light values only: nothing of the trial lives on in it.

How many trials may be open at once, and how often and when one is tried again.

The wish of a user to stop: once to leave in good order, twice to leave at once.

Who asked once and has waited long enough says so: what is open is then cancelled, and all
else still goes in good order.

May be asked from a signal handler and from any thread. Starts and ends nothing itself.
"""

import asyncio
import errno
import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from assay.core.aio import backoff
from assay.core.canonical_json import derived_id
from assay.core.secrets import mask
from assay.core.user_code import exception_text
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
        mask(exception_text(error)),
        mask("".join(traceback.format_exception(error))),
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """How much goes on at once."""

    max_open: int = 1000
    """Trials open at once, over all groups; the groups that are open share them evenly."""
    max_groups: int = 1
    """Groups open at once; 1 is one after the other."""

    def __post_init__(self) -> None:
        _at_least("max_open", self.max_open, 1)
        _at_least("max_groups", self.max_groups, 1)


@dataclass(frozen=True, slots=True)
class Retries:
    """How a trial is tried again after an infrastructure error; other ends are final.

    The wait doubles from attempt to attempt. A random part of up to half of it is left out,
    so that trials that failed together do not come back together; it follows from the seed,
    the trial and the attempt alone.
    """

    attempts: int = 5
    """In all, the first one included; 1 is no retry."""
    first_wait: float = 1.0
    """Seconds before the second attempt."""
    longest_wait: float = 60.0
    """Seconds that no wait exceeds."""
    seed: int = 0

    def __post_init__(self) -> None:
        _at_least("attempts", self.attempts, 1)
        _at_least("first_wait", self.first_wait, 0)
        _at_least("longest_wait", self.longest_wait, self.first_wait)

    def wait(self, trial_id: str, attempt: int) -> float:
        """Seconds between this attempt of a trial and the next one."""
        share = int(derived_id(self.seed, trial_id, attempt), 16) / 16**20
        return backoff(attempt - 1, self.first_wait, self.longest_wait) * (1 - share / 2)


def _at_least(name: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        raise UsageError(f"{name} is {value!r}; it must be a number of at least {least:g}")


class Stop:
    """A flag with two levels, which is never taken back."""

    def __init__(self) -> None:
        # Grown by one atomic call, which neither threads nor handlers can tear apart.
        self._asks: list[None] = []
        self._hurried = False
        self._watchers: tuple[tuple[asyncio.AbstractEventLoop, Callable[[], None]], ...] = ()

    def ask(self) -> None:
        """Ask once more. From the second time on, open trials are cancelled."""
        self._asks.append(None)
        self._wake()

    def hurry(self) -> None:
        """Have open trials cancelled, and nothing else cut short."""
        self._hurried = True
        self._wake()

    def _wake(self) -> None:
        for loop, wake in self._watchers:
            # A loop that has closed has nothing left to stop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(wake)

    @property
    def asked(self) -> bool:
        """Whether nothing new is to start, and what is open is to leave."""
        return len(self._asks) > 0

    @property
    def hurried(self) -> bool:
        """Whether what is open is to be cancelled."""
        return self.asked and (self._hurried or self.forced)

    @property
    def forced(self) -> bool:
        """Whether nothing is worth waiting for any longer."""
        return len(self._asks) > 1

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """While inside, call `wake` in the running loop each time somebody asks."""
        watcher = (asyncio.get_running_loop(), wake)
        # Replaced as a whole, so that a handler never sees it half changed.
        self._watchers = (*self._watchers, watcher)
        try:
            yield
        finally:
            self._watchers = tuple(one for one in self._watchers if one is not watcher)
