"""Events of a run, and the callbacks that receive them in order.

Each trial that is not skipped has a `TrialStarted` for each attempt, `TrialRetried` between
two of them, and then exactly one of `TrialEnded` and `TrialInterrupted`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.runs.control import GroupStop, TrialVerdict
from assay.runs.plan import GroupCounts, Trial


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run starts."""

    planned: Mapping[str, int]
    """Number of trials of each group, in the order of the plan."""


@dataclass(frozen=True, slots=True)
class GroupStarted:
    """Trials of a group may start now."""

    group: str
    planned: int


@dataclass(frozen=True, slots=True)
class TrialSkipped:
    """A trial was completed before this run."""

    trial: Trial[Any]


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """An attempt of a trial starts; from here on the trial is open."""

    trial: Trial[Any]
    attempt: int
    """Counted from 1."""


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """Progress of an open trial."""

    trial: Trial[Any]
    payload: Any
    """Data passed by the trial."""


@dataclass(frozen=True, slots=True)
class CallRetried:
    """A model call of a trial failed and will be retried."""

    model: str
    """Model name."""
    reason: str
    """Untrusted text."""
    attempt: int
    """Number of times this call was made so far."""
    wait: float
    """Seconds until the next attempt, including those of a Retry-After header."""


@dataclass(frozen=True, slots=True)
class TrialRetried:
    """An attempt ended with an infrastructure error; the trial waits to be retried."""

    trial: Trial[Any]
    attempt: int
    """Number of the attempt that ended."""
    wait: float
    """Seconds until the trial may start again."""
    verdict: TrialVerdict
    """Verdict of the attempt; its `error` has the details."""


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial ended; this run does not retry it."""

    trial: Trial[Any]
    attempt: int
    verdict: TrialVerdict


@dataclass(frozen=True, slots=True)
class TrialInterrupted:
    """A started trial stopped without an end; it can be resumed."""

    trial: Trial[Any]


@dataclass(frozen=True, slots=True)
class GroupStopped:
    """A trial showed that no trial of its group can succeed; no more of them start."""

    group: str
    stop: GroupStop


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """No trial of a group is open or waiting."""

    group: str
    tally: GroupCounts


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run ended; groups that never started are counted as well."""

    tallies: Mapping[str, GroupCounts]


Event = (
    RunStarted
    | GroupStarted
    | TrialSkipped
    | TrialStarted
    | TrialProgress
    | CallRetried
    | TrialRetried
    | TrialEnded
    | TrialInterrupted
    | GroupStopped
    | GroupEnded
    | RunEnded
)
"""Any event of a run."""


class RunObserver:
    """Callbacks of a run; those that are not overridden do nothing."""

    def on_locked(self) -> None:
        """Handle the lock: called once, after this process locked the run, before any trial."""

    def on_event(self, event: Event) -> None:
        """Handle an event; called in the thread and event loop of the trials."""

    def on_message(self, message: str) -> None:
        """Handle a message for the user; called from any thread."""


SILENT = RunObserver()


@dataclass(frozen=True, slots=True)
class CallbackObserver(RunObserver):
    """Passes events and messages to functions."""

    listen: Callable[[Event], None] | None = None
    notice: Callable[[str], None] | None = None

    def on_event(self, event: Event) -> None:
        """Call `listen`, if given."""
        if self.listen is not None:
            self.listen(event)

    def on_message(self, message: str) -> None:
        """Call `notice`, if given."""
        if self.notice is not None:
            self.notice(message)


class RetryLog:
    """Reports retried calls as events, and keeps the latest reason."""

    def __init__(self, observer: RunObserver) -> None:
        self.last: str | None = None
        self._observer = observer

    def __call__(self, model: str, reason: str, attempt: int, wait: float) -> None:
        """Keep the reason, and report the retry."""
        self.last = reason
        self._observer.on_event(CallRetried(model, reason, attempt, wait))
