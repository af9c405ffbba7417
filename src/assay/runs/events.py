"""What happens in a run of trials, in order, and the callbacks that receive it.

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
    """Work on the plan begins."""

    planned: Mapping[str, int]
    """The number of trials of each group, in the order of the plan."""


@dataclass(frozen=True, slots=True)
class GroupStarted:
    """The first trials of a group may start."""

    group: str
    planned: int


@dataclass(frozen=True, slots=True)
class TrialSkipped:
    """A trial was done before this run."""

    trial: Trial[Any]


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """An attempt of a trial begins; from here on the trial is open."""

    trial: Trial[Any]
    attempt: int
    """Counted from 1."""


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """A trial that is open says how it goes."""

    trial: Trial[Any]
    payload: Any
    """Whatever the body passed on."""


@dataclass(frozen=True, slots=True)
class CallRetried:
    """A call that a trial waits for failed, and will be made again; told by who makes calls."""

    model: str
    """Who was asked."""
    reason: str
    """Untrusted text."""
    attempt: int
    """How often this call was made so far."""
    wait: float
    """Seconds until it may be made again, what a Retry-After asks for included."""


@dataclass(frozen=True, slots=True)
class TrialRetried:
    """An attempt ended as an infrastructure error; the trial waits, not open, for the next."""

    trial: Trial[Any]
    attempt: int
    """The number of the attempt that ended."""
    wait: float
    """Seconds until the trial may start again."""
    verdict: TrialVerdict
    """What ended it; its `error` says more."""


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial ended, for good as far as this run goes."""

    trial: Trial[Any]
    attempt: int
    verdict: TrialVerdict


@dataclass(frozen=True, slots=True)
class TrialInterrupted:
    """A trial that had started was left without an end, to be resumed."""

    trial: Trial[Any]


@dataclass(frozen=True, slots=True)
class GroupStopped:
    """A trial found that none of its group can succeed; no more of them start."""

    group: str
    stop: GroupStop


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """No trial of a group is open or waits."""

    group: str
    tally: GroupCounts


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Nothing is open; groups that never started are counted too."""

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
"""Anything that happens in a run."""


class RunObserver:
    """Callbacks of a run; those that are not overridden do nothing."""

    def on_locked(self) -> None:
        """Called once, after this process has locked the run and before the first trial."""

    def on_event(self, event: Event) -> None:
        """Called for every event, in the thread and event loop of the trials."""

    def on_message(self, message: str) -> None:
        """Called with a sentence for the user, from any thread."""


SILENT = RunObserver()


@dataclass(frozen=True, slots=True)
class CallbackObserver(RunObserver):
    """Passes events and messages to functions."""

    listen: Callable[[Event], None] | None = None
    notice: Callable[[str], None] | None = None

    def on_event(self, event: Event) -> None:
        """Call `listen`, if there is one."""
        if self.listen is not None:
            self.listen(event)

    def on_message(self, message: str) -> None:
        """Call `notice`, if there is one."""
        if self.notice is not None:
            self.notice(message)


class RetryLog:
    """Reports calls that are made again as events, and keeps the last reason."""

    def __init__(self, observer: RunObserver) -> None:
        self.last: str | None = None
        self._observer = observer

    def __call__(self, model: str, reason: str, attempt: int, wait: float) -> None:
        """Keep the reason, and report the call."""
        self.last = reason
        self._observer.on_event(CallRetried(model, reason, attempt, wait))
