"""The seam of environments: many worlds at once, seen as tokens.

A token is a triple (attribute, place, value) of small whole numbers: what is there, where, and
how much of it. An observation is a fixed number of tokens; attribute 0 stands for no token, so
that `tokens[..., 0] != 0` is the mask. An environment never resets by itself: whoever steps it
begins the next episode of a world that has ended, by its task and seed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from assay._util.names import unknown_name
from assay.errors import UsageError

__all__ = [
    "ENVIRONMENTS",
    "Attribute",
    "EndedEpisode",
    "EnvironmentEntry",
    "TokenEnvironment",
    "TokenSpace",
    "TrainingTask",
    "WorldStart",
    "environment_named",
    "space_of",
]


class Attribute(NamedTuple):
    """Something that a token can tell of."""

    name: str
    values: int = 1
    """A value is a whole number from 0 up to this, which is not reached."""
    placed: bool = False
    """Whether it may be anywhere in view; else it is about the agent itself, at place 0."""


@dataclass(frozen=True)
class TokenSpace:
    """What observations and actions of an environment look like."""

    attributes: tuple[Attribute, ...]
    """A token's attribute is 1 + an index into these."""
    view: tuple[int, int]
    """Cells in view, across and down; a place is x * down + y."""
    tokens: int
    """Tokens of an observation, those that are not there included."""
    actions: tuple[str, ...]

    @property
    def places(self) -> int:
        """Cells in view."""
        return self.view[0] * self.view[1]

    @cached_property
    def rows(self) -> int:
        """How many different tokens there are, with the one that is not there."""
        return 1 + sum(self._rows_of(attribute) for attribute in self.attributes)

    def _rows_of(self, attribute: Attribute) -> int:
        return attribute.values * (self.places if attribute.placed else 1)

    @cached_property
    def row_table(self) -> NDArray[np.int64]:
        """(1 + attributes, 2): a token is row `first + stride * place + value`."""
        table, first = [(0, 0)], 1
        for attribute in self.attributes:
            table.append((first, attribute.values if attribute.placed else 0))
            first += self._rows_of(attribute)
        return np.array(table, np.int64)

    @cached_property
    def scales(self) -> NDArray[np.float32]:
        """(1 + attributes,): what a value is multiplied by to lie between 0 and 1."""
        most = [1, *(max(1, attribute.values - 1) for attribute in self.attributes)]
        return (1 / np.array(most)).astype(np.float32)


class TrainingTask(NamedTuple):
    """One kind of world."""

    name: str
    settings: Mapping[str, float]
    """What makes it; its environment knows what they mean."""


class WorldStart(NamedTuple):
    """What a world is made from."""

    task: TrainingTask
    seed: int


class EndedEpisode(NamedTuple):
    """What one episode came to."""

    world: int
    """The index of its world."""
    start: WorldStart
    reward: float
    """The sum of all rewards."""
    length: int
    """Its steps."""
    reached: tuple[bool, ...]
    """For each goal of the environment, whether it was reached."""

    @property
    def success(self) -> float:
        """The share of goals that were reached."""
        return sum(self.reached) / len(self.reached)


class TokenEnvironment(Protocol):
    """N worlds that are stepped together."""

    space: TokenSpace
    goals: tuple[str, ...]
    """What can be reached in an episode."""

    def __len__(self) -> int: ...

    def begin(self, which: Sequence[int], starts: Sequence[WorldStart]) -> None:
        """Begin an episode in each of these worlds."""
        ...

    def observe(self) -> NDArray[np.uint8]:
        """What is seen now, (N, tokens, 3)."""
        ...

    def step(self, actions: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Carry out an action in each world; the rewards, (N,)."""
        ...

    def ended(self) -> list[EndedEpisode]:
        """The episodes that ended in the last step; their worlds wait for `begin`."""
        ...

    def snapshot(self) -> list[bytes]:
        """All worlds, for `restore`."""
        ...

    def restore(self, worlds: Sequence[bytes]) -> None:
        """Put all worlds back."""
        ...


def _crafter(worlds: int, length: int) -> TokenEnvironment:
    from .crafter_worlds import CrafterWorlds

    return CrafterWorlds(worlds, length)


def _crafter_space() -> TokenSpace:
    from .crafter_worlds import SPACE

    return SPACE


def _mettagrid(worlds: int, length: int) -> TokenEnvironment:
    from .metta_worlds import MettaWorlds

    return MettaWorlds(worlds, length)


def _mettagrid_space() -> TokenSpace:
    from .metta_worlds import SPACE

    return SPACE


class EnvironmentEntry(NamedTuple):
    """An environment that is known by its name."""

    make: Callable[[int, int], TokenEnvironment]
    """Makes so many worlds, whose episodes end after so many steps."""
    space: Callable[[], TokenSpace]
    """Says what they look like, and loads nothing heavy."""
    package: str | None = None
    """Whose rules they have, if not assay's own; runs record its version."""


ENVIRONMENTS: Final = {
    "crafter": EnvironmentEntry(_crafter, _crafter_space),
    "mettagrid": EnvironmentEntry(_mettagrid, _mettagrid_space, "mettagrid"),
}
"""All that are known; add yours before a configuration names it."""


def _entry(name: str) -> EnvironmentEntry:
    if name not in ENVIRONMENTS:
        raise UsageError(unknown_name("environment", name, ENVIRONMENTS))
    return ENVIRONMENTS[name]


def environment_named(name: str, worlds: int, length: int) -> TokenEnvironment:
    """So many worlds of an environment; none has begun.

    Args:
        name: That of the environment.
        worlds: How many.
        length: After so many steps an episode ends.
    """
    return _entry(name).make(worlds, length)


def space_of(name: str) -> TokenSpace:
    """What observations of an environment look like; loads no compiler."""
    return _entry(name).space()
