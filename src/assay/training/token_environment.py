"""The interface of environments: many worlds at once, seen as tokens.

A token is a triple (attribute, place, value) of small whole numbers: what is there, where, and
how much of it. An observation is a fixed number of tokens; attribute 0 stands for no token, so
that `tokens[..., 0] != 0` is the mask. An environment never resets by itself: whoever steps it
begins the next episode of a world that has ended, by its task and seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


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
