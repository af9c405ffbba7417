"""Hooks declared in a file: conditions on actions and on the state of the world.

A hook fires in the step in which its condition becomes true, or in every step in which it is
true (`"every": true`). `SCHEMA` is the JSON schema of the file. Any deviation from it is an
error that names the place in the file.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.analyses.hook_conditions import (
    KINDS,
    NEAR,
    Condition,
    StepState,
    read_condition,
    read_whole,
)
from assay.core.text import unknown_name
from assay.crafter.rules import ACHIEVEMENTS, ITEMS, NoEffect
from assay.errors import UsageError

LANDMARK: Final = 100
"""Default step at which episodes are divided."""
MOST_HOOKS: Final = 100


def _object(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _one_or_more(names: Sequence[str]) -> dict[str, Any]:
    one: dict[str, Any] = {"enum": list(names)} if names else {"type": "string"}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


_NUMBERS: Final = {"at_least": {"type": "number"}, "at_most": {"type": "number"}}
_WHOLE: Final = {"type": "integer", "minimum": 1}
_SOME: Final = {"type": "array", "items": {"$ref": "#/$defs/condition"}, "minItems": 1}
_PER_KIND: Final[Mapping[str, Any]] = {
    "action": _one_or_more(()),
    "no_effect": {"anyOf": [{"type": "boolean"}, _one_or_more([str(r) for r in NoEffect])]},
    "item": {"enum": list(ITEMS)},
    "achievement": _one_or_more(ACHIEVEMENTS),
    "reached": _one_or_more(ACHIEVEMENTS),
    **{
        kind: {**_object(_NUMBERS, ()), "minProperties": 1}
        for kind in ("step", "turn", "reward")
    },
    "sleeping": {"type": "boolean"},
    "night": {"type": "boolean"},
    "near": _one_or_more(NEAR),
    "text": {"type": "string"},
    "all": _SOME,
    "any": _SOME,
    "not": {"$ref": "#/$defs/condition"},
    "sequence": _SOME,
}

SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Hooks for 'assay analyze enhanced-hooks'",
    **_object(
        {
            "$schema": {"type": "string"},
            "format": {"type": "string"},
            "landmark": {**_WHOLE, "default": LANDMARK},
            "hooks": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_HOOKS,
                "items": _object(
                    {
                        "name": {"type": "string", "pattern": r"^[\w.-]{1,60}$"},
                        "description": {"type": "string"},
                        "every": {"type": "boolean", "default": False},
                        "when": {"$ref": "#/$defs/condition"},
                    },
                    ("name", "when"),
                ),
            },
        },
        ("hooks",),
    ),
    "$defs": {
        "condition": {
            "oneOf": [
                _object(
                    {
                        kind: schema,
                        **{
                            key: _WHOLE if key == "within" else {"type": "number"}
                            for key in KINDS[kind]
                        },
                    },
                    (kind,),
                )
                for kind, schema in _PER_KIND.items()
            ]
        }
    },
}
"""JSON schema of a file of hooks (draft 2020-12)."""

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
        """Required inputs, out of `world`, `view` and `text`."""
        return self.condition.needs

    def firings(self, states: Sequence[StepState]) -> tuple[int, ...]:
        """Return the steps of one episode in which the hook fires."""
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
    """Content of a file of hooks."""

    hooks: tuple[DeclaredHook, ...]
    landmark: int


def read_hooks(path: Path) -> DeclaredHooks:
    """Read the hooks in a file.

    Raises:
        UsageError: The file cannot be read or is invalid; the message names the place.
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
