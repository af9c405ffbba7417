"""Hooks that are declared in a file: conditions over what was done and what the world was like.

A hook fires in the step in which its condition becomes true, or in every step in which it is
true (`"every": true`). The format is that of `hook_schema`; whatever departs from it is an
error that names the place.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay._util.names import unknown_name
from assay.analyses.hook_conditions import Condition, StepState, read_condition, read_whole
from assay.analyses.hook_schema import LANDMARK, MOST_HOOKS
from assay.errors import UsageError

__all__ = ["DeclaredHook", "DeclaredHooks", "read_hooks"]

_MAX_FILE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DeclaredHook:
    """One hook of a file."""

    name: str
    description: str
    condition: Condition
    every: bool

    @property
    def needs(self) -> frozenset[str]:
        """Of `world`, `view` and `text`, what it cannot do without."""
        return self.condition.needs

    def firings(self, states: Sequence[StepState]) -> tuple[int, ...]:
        """The steps in which it fires in one episode."""
        test = self.condition.for_episode()
        steps, was = [], False
        for state in states:
            now = test(state)
            if now and (self.every or not was):
                steps.append(state.step)
            was = now
        return tuple(steps)


@dataclass(frozen=True, slots=True)
class DeclaredHooks:
    """A file of hooks."""

    hooks: tuple[DeclaredHook, ...]
    landmark: int


def read_hooks(path: Path) -> DeclaredHooks:
    """The hooks of a file.

    Raises:
        UsageError: It cannot be read, or is none; names the place.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_FILE + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {str(path)!r}: {error.strerror}; 'assay analyze enhanced-hooks"
            " --schema' prints what such a file holds"
        ) from error
    if len(content) > _MAX_FILE:
        raise UsageError(
            f"{str(path)!r} is larger than 1 MB, the most a file of hooks may have"
        )
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(path)!r} is no JSON: {error}") from error
    try:
        return _file(found)
    except UsageError as error:
        raise UsageError(f"{str(path)!r}: {error}") from error


def _file(found: Any) -> DeclaredHooks:
    _check_keys("the file", found, ("hooks",), ("format", "landmark", "$schema"))
    hooks = found["hooks"]
    if not isinstance(hooks, list) or not 1 <= len(hooks) <= MOST_HOOKS:
        raise UsageError(f"hooks has to be a list of 1 to {MOST_HOOKS} hooks")
    made = tuple(_hook(f"hooks[{place}]", hook) for place, hook in enumerate(hooks))
    names = [hook.name for hook in made]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two hooks are called {name!r}; give each its own name")
    landmark = read_whole("landmark", found.get("landmark", LANDMARK), least=1)
    return DeclaredHooks(made, landmark)


def _hook(place: str, found: Any) -> DeclaredHook:
    _check_keys(place, found, ("name", "when"), ("description", "every"))
    name, description = found["name"], found.get("description", "")
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]{1,60}", name):
        raise UsageError(
            f"{place}.name is {name!r}; use letters, digits, '.', '_' and '-', at most 60"
        )
    if not isinstance(description, str) or not isinstance(found.get("every", False), bool):
        raise UsageError(f"{place}: description is a text, and every is true or false")
    condition = read_condition(f"{place}.when", found["when"])
    return DeclaredHook(name, description, condition, found.get("every", False))


def _check_keys(
    place: str, found: Any, needed: Sequence[str], more: Sequence[str] = ()
) -> None:
    if not isinstance(found, dict):
        raise UsageError(f"{place} is {found!r}; it has to be an object")
    for key in found:
        if key not in (*needed, *more):
            raise UsageError(f"{place}: {unknown_name('key', key, (*needed, *more))}")
    for key in needed:
        if key not in found:
            raise UsageError(f"{place} lacks {key!r}")
