"""Training environments: their interface, many worlds observed as tokens, and their registry.

A token is a triple (attribute, place, value) of small integers: what is there, where, and how
much of it. An observation is a fixed number of tokens. Attribute 0 means no token, so
`tokens[..., 0] != 0` is the mask. An environment never resets by itself: the caller starts the
next episode in a world that has ended, with a task and a seed.

Registered environments are imported when first used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from assay.core.text import unknown_name
from assay.errors import UsageError


class Attribute(NamedTuple):
    """A property that a token describes."""

    name: str
    values: int = 1
    """Number of values; a value is an integer from 0 to one below this."""
    placed: bool = False
    """Whether it may be in any cell in view; if not, it describes the agent, at place 0."""


@dataclass(frozen=True)
class TokenSpace:
    """Format of the observations and actions of an environment."""

    attributes: tuple[Attribute, ...]
    """The attribute number of a token is 1 + its index here."""
    view: tuple[int, int]
    """Cells in view, across and down; a place is x * down + y."""
    tokens: int
    """Tokens in an observation, including empty ones."""
    actions: tuple[str, ...]

    @property
    def places(self) -> int:
        """Number of cells in view."""
        return self.view[0] * self.view[1]

    @cached_property
    def rows(self) -> int:
        """Number of different tokens, including the empty one."""
        return 1 + sum(self._count_rows(attribute) for attribute in self.attributes)

    def _count_rows(self, attribute: Attribute) -> int:
        return attribute.values * (self.places if attribute.placed else 1)

    @cached_property
    def row_table(self) -> NDArray[np.int64]:
        """First row and stride, (1 + attributes, 2): row = first + stride * place + value."""
        table, first = [(0, 0)], 1
        for attribute in self.attributes:
            table.append((first, attribute.values if attribute.placed else 0))
            first += self._count_rows(attribute)
        return np.array(table, np.int64)

    @cached_property
    def scales(self) -> NDArray[np.float32]:
        """(1 + attributes,): factors that scale values to the range from 0 to 1."""
        most = [1, *(max(1, attribute.values - 1) for attribute in self.attributes)]
        return (1 / np.array(most)).astype(np.float32)


class TrainingTask(NamedTuple):
    """One kind of world."""

    name: str
    settings: Mapping[str, float]
    """Parameters of the world; their meaning depends on the environment."""


class WorldStart(NamedTuple):
    """Task and seed, which determine a world."""

    task: TrainingTask
    seed: int


class EndedEpisode(NamedTuple):
    """Result of one episode."""

    world: int
    """Index of its world."""
    start: WorldStart
    reward: float
    """Sum of all rewards."""
    length: int
    """Number of steps."""
    reached: tuple[bool, ...]
    """Whether each goal of the environment was reached."""

    @property
    def success(self) -> float:
        """Share of goals that were reached."""
        return sum(self.reached) / len(self.reached)


class TokenEnvironment(Protocol):
    """N worlds that are stepped together."""

    space: TokenSpace
    goals: tuple[str, ...]
    """Names of the goals in an episode."""

    def __len__(self) -> int: ...

    def begin(self, which: Sequence[int], starts: Sequence[WorldStart]) -> None:
        """Start an episode in each of these worlds."""
        ...

    def observe(self) -> NDArray[np.uint8]:
        """Return the current observations, (N, tokens, 3)."""
        ...

    def step(self, actions: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Carry out an action in each world and return the rewards, (N,)."""
        ...

    def ended(self) -> list[EndedEpisode]:
        """Return the episodes that ended in the last step; their worlds wait for `begin`."""
        ...

    def snapshot(self) -> list[bytes]:
        """Return the state of all worlds, for `restore`."""
        ...

    def restore(self, worlds: Sequence[bytes]) -> None:
        """Restore the state of all worlds."""
        ...


def _make_crafter(worlds: int, length: int) -> TokenEnvironment:
    from assay.training.crafter_worlds import CrafterWorlds

    return CrafterWorlds(worlds, length)


def _load_crafter_space() -> TokenSpace:
    from assay.training.crafter_worlds import SPACE

    return SPACE


def _make_mettagrid(worlds: int, length: int) -> TokenEnvironment:
    from assay.training.metta_worlds import MettaWorlds

    return MettaWorlds(worlds, length)


def _load_mettagrid_space() -> TokenSpace:
    from assay.training.metta_worlds import SPACE

    return SPACE


class EnvironmentEntry(NamedTuple):
    """A registered environment."""

    make: Callable[[int, int], TokenEnvironment]
    """Creates a number of worlds, whose episodes end after a number of steps."""
    space: Callable[[], TokenSpace]
    """Returns the format of observations and actions, without heavy imports."""
    package: str | None = None
    """The package that implements the rules, if not assay; runs record its version."""


ENVIRONMENTS: Final = {
    "crafter": EnvironmentEntry(_make_crafter, _load_crafter_space),
    "mettagrid": EnvironmentEntry(_make_mettagrid, _load_mettagrid_space, "mettagrid"),
}
"""Registered environments by name; register yours before a configuration uses it."""


def _find_entry(name: str) -> EnvironmentEntry:
    if name not in ENVIRONMENTS:
        raise UsageError(unknown_name("environment", name, ENVIRONMENTS))
    return ENVIRONMENTS[name]


def make_environment(name: str, worlds: int, length: int) -> TokenEnvironment:
    """Create worlds of an environment, in which no episode has started.

    An episode ends after `length` steps.
    """
    return _find_entry(name).make(worlds, length)


def space_of(name: str) -> TokenSpace:
    """Return the format of an environment's observations, without loading a compiler."""
    return _find_entry(name).space()
