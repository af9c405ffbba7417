"""What is to be tried: groups in order, each with trials that are made when their turn comes.

A plan of any length costs the same memory: it holds how to make a trial, not the trials.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from assay.errors import UsageError

__all__ = ["Admission", "Group", "Plan", "Trial"]

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
