"""Plan of a run: an ordered list of groups, whose trials are created lazily.

A plan stores a function that makes trials, not the trials, so its memory use does not depend
on its size. A `GroupQueue` tracks one group during the run: waiting, open and counted trials.
It keeps at most one trial that has not started, regardless of the size of the group.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from assay.errors import UsageError
from assay.runs.control import GroupStop
from assay.types import TrialState

P_co = TypeVar("P_co", covariant=True)


class Admission(StrEnum):
    """Whether the next trial may start."""

    NOW = "now"
    LATER = "later"
    """Not before another trial has ended; checked again then."""
    NEVER = "never"
    """The trial is no longer needed."""


@dataclass(frozen=True, slots=True)
class Trial(Generic[P_co]):
    """One subject on one task with one seed."""

    id: str
    """Identical in every process that makes the same plan; resume matches trials by it."""
    group: str
    """Name of its group."""
    index: int
    """Position in the group, counted from 0."""
    payload: P_co
    """Data needed to execute the trial; small, because waiting trials keep it in memory."""


@dataclass(frozen=True, slots=True)
class Group(Generic[P_co]):
    """Trials that belong together, such as all episodes of one model."""

    name: str
    size: int
    """Number of trials."""
    make: Callable[[int], Trial[P_co]]
    """Makes the trial at an index when it is next; always returns an equal trial."""

    def __post_init__(self) -> None:
        if self.size < 0:
            raise UsageError(
                f"group {self.name!r} has {self.size} trials; it must have at least 0"
            )

    @classmethod
    def of(cls, name: str, trials: Sequence[Trial[P_co]]) -> "Group[P_co]":
        """Make a group from existing trials."""
        return cls(name, len(trials), trials.__getitem__)

    def __iter__(self) -> Iterator[Trial[P_co]]:
        return map(self.make, range(self.size))


@dataclass(frozen=True, slots=True)
class Plan(Generic[P_co]):
    """All trials to run, in order; group names are unique."""

    groups: tuple[Group[P_co], ...]

    def __post_init__(self) -> None:
        names: set[str] = set()
        for group in self.groups:
            if group.name in names:
                raise UsageError(f"two groups are named {group.name!r}; names must be unique")
            names.add(group.name)

    @property
    def size(self) -> int:
        """Total number of trials."""
        return sum(group.size for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Numbers of trials of one group, by how they ended.

    planned = skipped + started + not_started + unneeded, and
    started = results + failures + infrastructure + interrupted after the run.
    """

    planned: int
    skipped: int = 0
    """Completed before this run."""
    started: int = 0
    not_started: int = 0
    """Not started because the run or the group was stopped."""
    unneeded: int = 0
    """Never admitted, because the result was decided without them."""
    results: int = 0
    failures: int = 0
    infrastructure: int = 0
    """Ended with an infrastructure error after all attempts."""
    interrupted: int = 0
    """Without an end; continued on resume."""
    retries: int = 0
    """Number of times a trial was scheduled for another attempt."""
    stop: GroupStop | None = None
    """Reason the group was stopped, if one of its trials required that."""


P = TypeVar("P")

_FIELDS = {
    TrialState.RESULT: "results",
    TrialState.FAILURE: "failures",
    TrialState.INFRASTRUCTURE: "infrastructure",
}


@dataclass(slots=True)
class TrialAttempt(Generic[P]):
    """One attempt at a trial."""

    trial: Trial[P]
    number: int = 1
    """Counted from 1."""
    spent: int = 0
    """Number of earlier attempts that count against the attempt limit."""
    started: int = 0
    """Position among all starts of the run, counted from 1; 0 before it starts."""


class GroupQueue(Generic[P]):
    """A group and its progress."""

    def __init__(
        self,
        group: Group[P],
        is_done: Callable[[str], bool],
        on_skipped: Callable[[Trial[P]], None],
        admit: Callable[[Trial[P]], Admission],
    ) -> None:
        self.name = group.name
        self.open = 0
        """Number of running attempts."""
        self.started = 0
        """Position of the latest start in this group among all starts of the run."""
        self.closed = False
        """Whether no more trials may start."""
        self.stop: GroupStop | None = None
        self.waits: dict[asyncio.Task[None], None] = {}
        """Tasks that wait before another attempt."""
        self.due: deque[TrialAttempt[P]] = deque()
        """Attempts whose wait is over."""
        self._group = group
        self._is_done = is_done
        self._on_skipped = on_skipped
        self._admit = admit
        self._index = 0
        self._next: Trial[P] | None = None
        self._counts: Counter[str] = Counter()

    @property
    def unfinished(self) -> int:
        """Number of started trials without an end, including those that wait for a retry."""
        return self.open + len(self.waits)

    @property
    def is_ready(self) -> bool:
        """Whether an attempt can start now."""
        if self.due:
            return True
        trial = self._peek()
        return trial is not None and self._admit(trial) is Admission.NOW

    @property
    def is_over(self) -> bool:
        """Whether nothing is open, waiting or still to start."""
        return not (self.open or self.waits or self.due) and self._peek() is None

    def take_next(self) -> TrialAttempt[P]:
        """Return the next attempt to start: retries come before first attempts."""
        if self.due:
            return self.due.popleft()
        trial = self._peek()
        assert trial is not None, "nothing is ready"
        self._next = None
        self.count("started")
        return TrialAttempt(trial)

    def close(self) -> None:
        """Prevent further starts, and count the remaining trials."""
        self.closed = True
        if self._next is not None:
            self._next = None
            self.count("not_started")
        for index in range(self._index, self._group.size):
            is_done = self._is_done(self._group.make(index).id)
            self.count("skipped" if is_done else "not_started")
        self._index = self._group.size

    def count(self, category: str | TrialState) -> None:
        """Count a trial by its end state, or by the name of a `GroupCounts` field."""
        self._counts[_FIELDS[category] if isinstance(category, TrialState) else category] += 1

    def tally(self) -> GroupCounts:
        """Return the current counts."""
        return GroupCounts(planned=self._group.size, stop=self.stop, **self._counts)

    def _peek(self) -> Trial[P] | None:
        """Return the next trial that is not done and may be needed; keep it until taken."""
        if self._next is not None and self._admit(self._next) is Admission.NEVER:
            self._next = None
            self.count("unneeded")
        while self._next is None and self._index < self._group.size:
            trial = self._group.make(self._index)
            self._index += 1
            if self._is_done(trial.id):
                self.count("skipped")
                self._on_skipped(trial)
            elif self._admit(trial) is Admission.NEVER:
                self.count("unneeded")
            else:
                self._next = trial
        return self._next
