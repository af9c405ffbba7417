"""Environments by name; each is loaded when it is first wanted."""

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
    """Return so many worlds of an environment, of which none has begun.

    An episode ends after `length` steps.
    """
    return _entry(name).make(worlds, length)


def space_of(name: str) -> TokenSpace:
    """What observations of an environment look like; loads no compiler."""
    return _entry(name).space()
