"""Policies without a model. Each is a function of its seed and the views it received."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from assay.core.text import unknown_name
from assay.crafter.players.expert.policy import ExpertPolicy
from assay.crafter.rules import ACTIONS
from assay.crafter.view import View
from assay.errors import UsageError


class Policy(Protocol):
    """Chooses actions. It may remember views, so one instance plays one episode."""

    def act(self, view: View) -> int:
        """Return an index into `ACTIONS`."""
        ...


class NoopPolicy:
    """Always does nothing."""

    def act(self, view: View) -> int:
        """Return the index of `noop`."""
        return ACTIONS.index("noop")


class RandomPolicy:
    """Draws each action uniformly from all actions, with its own random generator."""

    def __init__(self, seed: int) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise UsageError(f"seed {seed!r} is not allowed; give an int from 0")
        self._random = np.random.Generator(np.random.PCG64(seed))

    def act(self, view: View) -> int:
        """Return a random action, independent of the view."""
        return int(self._random.integers(len(ACTIONS)))


POLICIES: Final[Mapping[str, Callable[[int], Policy]]] = MappingProxyType(
    {"noop": lambda seed: NoopPolicy(), "random": RandomPolicy, "expert": ExpertPolicy}
)
"""Built-in policies by name, as functions of a seed."""


def make_policy(name: str, seed: int) -> Policy:
    """Return a new policy for one episode."""
    if name not in POLICIES:
        raise UsageError(unknown_name("policy", name, POLICIES))
    return POLICIES[name](seed)
