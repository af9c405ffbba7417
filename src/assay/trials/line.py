"""One group while it is worked off: what waits, what is open, what has been counted.

Holds one trial that has not started, whatever the size of the group.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from assay.types import TrialState

from .plan import Admission, Group, Trial
from .tally import GroupCounts
from .verdict import GroupStop

__all__ = ["Attempt", "Line"]

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
