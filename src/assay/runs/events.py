"""What a run of trials tells whoever listens, in the order it happens.

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
"""Anything a listener hears."""


class Troubles:
    """Tells of calls that are made again, and keeps the last reason."""

    def __init__(self, listen: Callable[[Event], None]) -> None:
        self.last: str | None = None
        self._listen = listen

    def __call__(self, model: str, reason: str, attempt: int, wait: float) -> None:
        """Keep the reason, and tell of the call."""
        self.last = reason
        self._listen(CallRetried(model, reason, attempt, wait))
