"""What is to be tried: groups in order, each with trials that are made when their turn comes.

A plan of any length costs the same memory: it holds how to make a trial, not the trials.

One group while it is worked off: what waits, what is open, what has been counted.

Holds one trial that has not started, whatever the size of the group.

How many trials of a group ended in which way.
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
    """Whether a trial whose turn has come may start."""

    NOW = "now"
    LATER = "later"
    """Once some other trial has ended; asked again then."""
    NEVER = "never"
    """It is not needed any more."""


@dataclass(frozen=True, slots=True)
class Trial(Generic[P_co]):
    """One subject on one task with one seed."""

    id: str
    """The same in every process that makes the same plan; resume goes by it."""
    group: str
    """The name of its group."""
    index: int
    """Its place in the group, counted from 0."""
    payload: P_co
    """What the body needs to know; light, since trials wait with it."""


@dataclass(frozen=True, slots=True)
class Group(Generic[P_co]):
    """Trials that belong together, as all episodes of one model."""

    name: str
    size: int
    """How many trials there are."""
    make: Callable[[int], Trial[P_co]]
    """Makes the trial at an index, the same one each time; asked when its turn comes."""

    def __post_init__(self) -> None:
        if self.size < 0:
            raise UsageError(
                f"group {self.name!r} has {self.size} trials; it must have at least 0"
            )

    @classmethod
    def of(cls, name: str, trials: Sequence[Trial[P_co]]) -> "Group[P_co]":
        """A group of trials that are there already."""
        return cls(name, len(trials), trials.__getitem__)

    def __iter__(self) -> Iterator[Trial[P_co]]:
        return map(self.make, range(self.size))


@dataclass(frozen=True, slots=True)
class Plan(Generic[P_co]):
    """All that is to be tried, in order; no two groups have the same name."""

    groups: tuple[Group[P_co], ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for group in self.groups:
            if group.name in seen:
                raise UsageError(
                    f"two groups are named {group.name!r}; give each a name of its own"
                )
            seen.add(group.name)

    @property
    def size(self) -> int:
        """How many trials there are in all."""
        return sum(group.size for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """The trials of one group, counted.

    planned = skipped + started + not_started + unneeded, and
    started = results + failures + infrastructure + interrupted once the run is over.
    """

    planned: int
    skipped: int = 0
    """Done before this run."""
    started: int = 0
    not_started: int = 0
    """Because the run or the group was stopped."""
    unneeded: int = 0
    """Never admitted: what they would have told was known without them."""
    results: int = 0
    failures: int = 0
    infrastructure: int = 0
    """After all attempts."""
    interrupted: int = 0
    """Left without an end, to be resumed."""
    retries: int = 0
    """Times that a trial was sent to wait for another attempt."""
    stop: GroupStop | None = None
    """Why the group was stopped, if one of its trials found that it had to be."""


P = TypeVar("P")

_FIELDS = {
    TrialState.RESULT: "results",
    TrialState.FAILURE: "failures",
    TrialState.INFRASTRUCTURE: "infrastructure",
}


@dataclass(slots=True)
class Attempt(Generic[P]):
    """One attempt of a trial."""

    trial: Trial[P]
    number: int = 1
    """Counted from 1."""
    spent: int = 0
    """How many of those before it count against the limit of attempts."""
    started: int = 0
    """Which start of the whole run this was, counted from 1; 0 before it."""


class Line(Generic[P]):
    """A group, and how far it has come."""

    def __init__(
        self,
        group: Group[P],
        done: Callable[[str], bool],
        skipped: Callable[[Trial[P]], None],
        admit: Callable[[Trial[P]], Admission],
    ) -> None:
        self.name = group.name
        self.open = 0
        """Attempts that are running."""
        self.started = 0
        """Which start of the whole run was the last one here."""
        self.closed = False
        """Whether nothing more starts."""
        self.stop: GroupStop | None = None
        self.rests: dict[asyncio.Task[None], None] = {}
        """Waits for another attempt."""
        self.due: deque[Attempt[P]] = deque()
        """Attempts whose wait is over."""
        self._group = group
        self._done = done
        self._skipped = skipped
        self._admit = admit
        self._index = 0
        self._next: Trial[P] | None = None
        self._counts: Counter[str] = Counter()

    @property
    def begun(self) -> int:
        """Trials that are begun and have not ended, those that wait for another attempt too."""
        return self.open + len(self.rests)

    @property
    def ready(self) -> bool:
        """Whether there is something to start."""
        if self.due:
            return True
        trial = self._peek()
        return trial is not None and self._admit(trial) is Admission.NOW

    @property
    def over(self) -> bool:
        """Whether nothing is open, waits or will start."""
        return not (self.open or self.rests or self.due) and self._peek() is None

    def take(self) -> Attempt[P]:
        """What starts next: another attempt before a first one."""
        if self.due:
            return self.due.popleft()
        trial = self._peek()
        assert trial is not None, "nothing is ready"
        self._next = None
        self.count("started")
        return Attempt(trial)

    def close(self) -> None:
        """Start nothing more, and count what is left over."""
        self.closed = True
        if self._next is not None:
            self._next = None
            self.count("not_started")
        for index in range(self._index, self._group.size):
            known = self._done(self._group.make(index).id)
            self.count("skipped" if known else "not_started")
        self._index = self._group.size

    def count(self, what: str | TrialState) -> None:
        """Count a trial that ended in a state, or under a name that the tally has."""
        self._counts[_FIELDS[what] if isinstance(what, TrialState) else what] += 1

    def tally(self) -> GroupCounts:
        """The counts so far."""
        return GroupCounts(planned=self._group.size, stop=self.stop, **self._counts)

    def _peek(self) -> Trial[P] | None:
        """The next trial that is not done and may be needed; kept until it is taken."""
        if self._next is not None and self._admit(self._next) is Admission.NEVER:
            self._next = None
            self.count("unneeded")
        while self._next is None and self._index < self._group.size:
            trial = self._group.make(self._index)
            self._index += 1
            if self._done(trial.id):
                self.count("skipped")
                self._skipped(trial)
            elif self._admit(trial) is Admission.NEVER:
                self.count("unneeded")
            else:
                self._next = trial
        return self._next
