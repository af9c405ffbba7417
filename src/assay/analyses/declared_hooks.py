"""Hooks that are declared in a file: conditions over what was done and what the world was like.

A condition is an object with one key that says its kind; `all`, `any`, `not` and `sequence`
combine others. A hook fires in the step in which its condition becomes true, or in every step
in which it is true (`"every": true`). The format is `SCHEMA`; whatever departs from it is an
error that names the place.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay._util.names import unknown_name
from assay.crafter.rules import ACHIEVEMENTS, ITEMS, MATERIALS, OBJECTS, NoEffect
from assay.errors import UsageError

__all__ = ["LANDMARK", "SCHEMA", "DeclaredHook", "DeclaredHooks", "StepState", "read_hooks"]

LANDMARK: Final = 100
"""The step at which episodes are parted if nobody says another."""
_MAX_FILE: Final = 1 << 20
_MOST_HOOKS: Final = 100
_DEEPEST: Final = 20
_NEAR: Final = (*MATERIALS[1:], *OBJECTS[1:])


class StepState(NamedTuple):
    """One step, as conditions see it; what needs the world is empty where it is not known."""

    step: int
    turn: int
    action: str
    no_effect: str | None
    reward: float
    unlocked: frozenset[str]
    """In this step."""
    reached: frozenset[str]
    """In this step or before."""
    inventory: Mapping[str, int]
    """After the step, vitals included."""
    sleeping: bool
    night: bool
    near: Mapping[str, int]
    """What is in sight, with the steps to the nearest of each."""
    text: str
    """What the model said in this turn."""


_Test = Callable[[StepState], bool]


@dataclass(frozen=True, slots=True)
class _Condition:
    test: _Test
    needs: frozenset[str]
    """Of `world`, `view` and `text`, what it cannot do without."""
    fresh: Callable[[], _Test] | None = None
    """Makes a test that remembers, for one episode; None where nothing is to be remembered."""

    def for_episode(self) -> _Test:
        return self.test if self.fresh is None else self.fresh()


@dataclass(frozen=True, slots=True)
class DeclaredHook:
    """One hook of a file."""

    name: str
    description: str
    condition: _Condition
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
    if not isinstance(hooks, list) or not 1 <= len(hooks) <= _MOST_HOOKS:
        raise UsageError(f"hooks has to be a list of 1 to {_MOST_HOOKS} hooks")
    made = tuple(_hook(f"hooks[{place}]", hook) for place, hook in enumerate(hooks))
    names = [hook.name for hook in made]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two hooks are called {name!r}; give each its own name")
    landmark = _whole("landmark", found.get("landmark", LANDMARK), least=1)
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
    condition = _condition(f"{place}.when", found["when"], 0)
    return DeclaredHook(name, description, condition, found.get("every", False))


def _condition(place: str, found: Any, depth: int) -> _Condition:
    if depth > _DEEPEST:
        raise UsageError(f"{place}: conditions may be {_DEEPEST} deep, not more")
    if not isinstance(found, dict) or not found:
        raise UsageError(f"{place} is {found!r}; a condition is an object such as {_EXAMPLE}")
    kinds = [kind for kind in found if kind in _KINDS]
    if len(kinds) != 1:
        strange = next((key for key in found if key not in _OPTIONS), "")
        if not kinds:
            raise UsageError(f"{place}: {unknown_name('condition', strange, _KINDS)}")
        raise UsageError(
            f"{place} has {' and '.join(kinds)}; a condition has one of them, and"
            ' {"all": [...]} combines several'
        )
    (kind,) = kinds
    allowed = _KINDS[kind]
    for key in found:
        if key != kind and key not in allowed:
            raise UsageError(f"{place}: {unknown_name('key', key, (kind, *allowed))}")
    return _MAKERS[kind](place, found, depth)


_EXAMPLE: Final = '{"item": "drink", "at_most": 3}'
_RANGE: Final = ("at_least", "at_most")
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "action": (),
    "no_effect": (),
    "item": _RANGE,
    "achievement": (),
    "reached": (),
    "step": (),
    "turn": (),
    "reward": (),
    "sleeping": (),
    "night": (),
    "near": ("within",),
    "text": (),
    "all": (),
    "any": (),
    "not": (),
    "sequence": ("within",),
}
"""The kinds of conditions, each with the further keys it may have."""
_OPTIONS: Final = frozenset(key for keys in _KINDS.values() for key in keys)
_WORLD: Final = frozenset({"world"})


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


def _whole(place: str, found: Any, *, least: int = 0) -> int:
    if type(found) is not int or not least <= found <= 1_000_000:
        raise UsageError(f"{place} is {found!r}; give a whole number from {least} on")
    return found


def _range(place: str, found: Mapping[str, Any]) -> tuple[float, float]:
    for key in found:
        if key not in _RANGE:
            raise UsageError(f"{place}: {unknown_name('key', key, _RANGE)}")
        if isinstance(found[key], bool) or not isinstance(found[key], int | float):
            raise UsageError(f"{place}.{key} is {found[key]!r}; give a number")
    if not found:
        raise UsageError(f"{place} needs at_least, at_most or both")
    return found.get("at_least", -float("inf")), found.get("at_most", float("inf"))


def _names(place: str, found: Any, kind: str, allowed: Sequence[str]) -> frozenset[str]:
    """One name or a list of them; `allowed` is empty where any name may be."""
    names = [found] if isinstance(found, str) else found
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise UsageError(f"{place} is {found!r}; give a name, or a list of names")
    for name in names:
        if allowed and name not in allowed:
            raise UsageError(f"{place}: {unknown_name(kind, name, allowed)}")
    return frozenset(names)


def _action(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    names = _names(f"{place}.action", found["action"], "action", ())
    return _Condition(lambda state: state.action in names, frozenset())


def _no_effect(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    given = found["no_effect"]
    if isinstance(given, bool):
        return _Condition(lambda state: (state.no_effect is not None) == given, frozenset())
    reasons = _names(f"{place}.no_effect", given, "reason", [str(one) for one in NoEffect])
    return _Condition(lambda state: state.no_effect in reasons, frozenset())


def _item(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    (item,) = _names(f"{place}.item", found["item"], "item", ITEMS)
    low, high = _range(place, {key: found[key] for key in found if key != "item"})
    return _Condition(lambda state: low <= state.inventory.get(item, 0) <= high, _WORLD)


def _achievement(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    names = _names(f"{place}.achievement", found["achievement"], "achievement", ACHIEVEMENTS)
    return _Condition(lambda state: not names.isdisjoint(state.unlocked), frozenset())


def _reached(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    names = _names(f"{place}.reached", found["reached"], "achievement", ACHIEVEMENTS)
    return _Condition(lambda state: not names.isdisjoint(state.reached), frozenset())


def _number(kind: str) -> Callable[[str, Mapping[str, Any], int], _Condition]:
    def made(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
        if not isinstance(found[kind], dict):
            raise UsageError(f'{place}.{kind} is {found[kind]!r}; give {{"at_least": 10}}')
        low, high = _range(f"{place}.{kind}", found[kind])
        return _Condition(lambda state: low <= getattr(state, kind) <= high, frozenset())

    return made


def _truth(kind: str) -> Callable[[str, Mapping[str, Any], int], _Condition]:
    def made(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
        given = found[kind]
        if not isinstance(given, bool):
            raise UsageError(f"{place}.{kind} is {given!r}; give true or false")
        return _Condition(lambda state: getattr(state, kind) == given, _WORLD)

    return made


def _near(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    names = _names(f"{place}.near", found["near"], "thing", _NEAR)
    within = _whole(f"{place}.within", found.get("within", 9), least=1)
    return _Condition(
        lambda state: any(state.near.get(name, 1_000) <= within for name in names),
        frozenset({"world", "view"}),
    )


def _text(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    try:
        if not isinstance(found["text"], str):
            raise UsageError(f"{place}.text is {found['text']!r}; give a regular expression")
        pattern = re.compile(found["text"], re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"{place}.text is no regular expression: {error}") from error
    return _Condition(lambda state: pattern.search(state.text) is not None, frozenset({"text"}))


def _parts(place: str, kind: str, found: Mapping[str, Any], depth: int) -> list[_Condition]:
    given = found[kind]
    if not isinstance(given, list) or not given:
        raise UsageError(f"{place}.{kind} is {given!r}; give a list of conditions")
    return [
        _condition(f"{place}.{kind}[{index}]", part, depth + 1)
        for index, part in enumerate(given)
    ]


def _combined(
    parts: Sequence[_Condition], join: Callable[[Sequence[_Test]], _Test]
) -> _Condition:
    needs = frozenset[str]().union(*(part.needs for part in parts))
    fresh = None
    if any(part.fresh for part in parts):

        def fresh() -> _Test:
            return join([part.for_episode() for part in parts])

    return _Condition(join([part.test for part in parts]), needs, fresh)


def _asked(tests: Sequence[_Test], state: StepState) -> list[bool]:
    """What all of them say; one that remembers has to see every step."""
    return [test(state) for test in tests]


def _all(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    parts = _parts(place, "all", found, depth)
    return _combined(parts, lambda tests: lambda state: all(_asked(tests, state)))


def _any(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    parts = _parts(place, "any", found, depth)
    return _combined(parts, lambda tests: lambda state: any(_asked(tests, state)))


def _not(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    part = _condition(f"{place}.not", found["not"], depth + 1)
    return _combined([part], lambda tests: lambda state: not tests[0](state))


def _sequence(place: str, found: Mapping[str, Any], depth: int) -> _Condition:
    parts = _parts(place, "sequence", found, depth)
    within = found.get("within")
    if within is not None:
        within = _whole(f"{place}.within", within, least=1)
    needs = frozenset[str]().union(*(part.needs for part in parts))

    def fresh() -> _Test:
        tests = [part.for_episode() for part in parts]
        # Of each part, the latest step at which a chain began that has come that far.
        began: list[int | None] = [None] * len(tests)

        def test(state: StepState) -> bool:
            true, before = _asked(tests, state), list(began)
            # A chain goes on from an earlier step: one step is not two parts of it.
            starts = [state.step, *before[:-1]]
            for index, start in enumerate(starts):
                if true[index] and start is not None:
                    began[index] = start
            start = starts[-1]
            if not true[-1] or start is None:
                return False
            return within is None or state.step - start <= within

        return test

    return _Condition(lambda state: False, needs, fresh)


_MAKERS: Final[Mapping[str, Callable[[str, Mapping[str, Any], int], _Condition]]] = {
    "action": _action,
    "no_effect": _no_effect,
    "item": _item,
    "achievement": _achievement,
    "reached": _reached,
    "step": _number("step"),
    "turn": _number("turn"),
    "reward": _number("reward"),
    "sleeping": _truth("sleeping"),
    "night": _truth("night"),
    "near": _near,
    "text": _text,
    "all": _all,
    "any": _any,
    "not": _not,
    "sequence": _sequence,
}


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
    "near": _one_or_more(_NEAR),
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
                "maxItems": _MOST_HOOKS,
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
                            for key in _KINDS[kind]
                        },
                    },
                    (kind,),
                )
                for kind, schema in _PER_KIND.items()
            ]
        }
    },
}
"""The JSON schema of a file of hooks (draft 2020-12)."""
