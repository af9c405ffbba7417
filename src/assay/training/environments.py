"""Registry of training environments; each is imported when first used."""

from collections.abc import Callable
from typing import Final, NamedTuple

from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.training.token_environment import TokenEnvironment, TokenSpace


def _crafter(worlds: int, length: int) -> TokenEnvironment:
    from assay.training.crafter_worlds import CrafterWorlds

    return CrafterWorlds(worlds, length)


def _crafter_space() -> TokenSpace:
    from assay.training.crafter_worlds import SPACE

    return SPACE


def _mettagrid(worlds: int, length: int) -> TokenEnvironment:
    from assay.training.metta_worlds import MettaWorlds

    return MettaWorlds(worlds, length)


def _mettagrid_space() -> TokenSpace:
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
    "crafter": EnvironmentEntry(_crafter, _crafter_space),
    "mettagrid": EnvironmentEntry(_mettagrid, _mettagrid_space, "mettagrid"),
}
"""Registered environments by name; register yours before a configuration uses it."""


def _entry(name: str) -> EnvironmentEntry:
    if name not in ENVIRONMENTS:
        raise UsageError(unknown_name("environment", name, ENVIRONMENTS))
    return ENVIRONMENTS[name]


def environment_named(name: str, worlds: int, length: int) -> TokenEnvironment:
    """Create worlds of an environment, in which no episode has started.

    An episode ends after `length` steps.
    """
    return _entry(name).make(worlds, length)


def space_of(name: str) -> TokenSpace:
    """Return the format of an environment's observations, without loading a compiler."""
    return _entry(name).space()
