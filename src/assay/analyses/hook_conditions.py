"""Conditions of declared hooks: tests of a step, and their combinations.

A condition is an object with one key for its kind; `all`, `any`, `not` and `sequence` combine
other conditions. Anything else is an error that names the place in the file.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from assay.core.text import unknown_name
from assay.crafter.rules import ACHIEVEMENTS, ITEMS, MATERIALS, OBJECTS, NoEffect
from assay.errors import UsageError

NEAR: Final = (*MATERIALS[1:], *OBJECTS[1:])
"""Materials and objects that can be in sight."""
_DEEPEST: Final = 20


class StepState(NamedTuple):
    """One step as conditions see it; fields about the world are empty if it is unknown."""

    step: int
    turn: int
    action: str
    no_effect: str | None
    reward: float
    unlocked: frozenset[str]
    """Achievements unlocked in this step."""
    reached: frozenset[str]
    """Achievements unlocked in this step or before."""
    inventory: Mapping[str, int]
    """Items after the step, including vitals."""
    sleeping: bool
    night: bool
    near: Mapping[str, int]
    """Things in sight, each with the distance to the nearest one."""
    text: str
    """Text of the model in this turn."""


_Test = Callable[[StepState], bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of each step in an episode."""

    test: _Test
    needs: frozenset[str]
    """Required inputs, out of `world`, `view` and `text`."""
    fresh: Callable[[], _Test] | None = None
    """Creates a stateful test for one episode; None if the test has no state."""

    def for_episode(self) -> _Test:
        """Return the test for one episode; call it on all steps in order."""
        return self.test if self.fresh is None else self.fresh()


def read_condition(place: str, found: Any, depth: int = 0) -> Condition:
    """Parse a condition.

    Raises:
        UsageError: The condition is invalid; the message names the place.
    """
    if depth > _DEEPEST:
        raise UsageError(f"{place}: conditions may be {_DEEPEST} deep, not more")
    if not isinstance(found, dict) or not found:
        raise UsageError(f"{place} is {found!r}; a condition is an object such as {_EXAMPLE}")
    kinds = [kind for kind in found if kind in KINDS]
    if len(kinds) != 1:
        strange = next((key for key in found if key not in _OPTIONS), "")
        if not kinds:
            raise UsageError(f"{place}: {unknown_name('condition', strange, KINDS)}")
        raise UsageError(
            f"{place} has {' and '.join(kinds)}; a condition has one of them, and"
            ' {"all": [...]} combines several'
        )
    (kind,) = kinds
    allowed = KINDS[kind]
    for key in found:
        if key != kind and key not in allowed:
            raise UsageError(f"{place}: {unknown_name('key', key, (kind, *allowed))}")
    return _MAKERS[kind](place, found, depth)


_EXAMPLE: Final = '{"item": "drink", "at_most": 3}'
_RANGE: Final = ("at_least", "at_most")
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
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
"""Kinds of conditions, each with the additional keys it may have."""
_OPTIONS: Final = frozenset(key for keys in KINDS.values() for key in keys)
_WORLD: Final = frozenset({"world"})


def read_whole(place: str, found: Any, *, least: int = 0) -> int:
    """Return the value if it is an integer of at least `least`.

    Raises:
        UsageError: The value is invalid; the message names the place.
    """
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
    """Parse one name or a list of names; if `allowed` is empty, any name is allowed."""
    names = [found] if isinstance(found, str) else found
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise UsageError(f"{place} is {found!r}; give a name, or a list of names")
    for name in names:
        if allowed and name not in allowed:
            raise UsageError(f"{place}: {unknown_name(kind, name, allowed)}")
    return frozenset(names)


def _action(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    names = _names(f"{place}.action", found["action"], "action", ())
    return Condition(lambda state: state.action in names, frozenset())


def _no_effect(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    given = found["no_effect"]
    if isinstance(given, bool):
        return Condition(lambda state: (state.no_effect is not None) == given, frozenset())
    reasons = _names(f"{place}.no_effect", given, "reason", [str(one) for one in NoEffect])
    return Condition(lambda state: state.no_effect in reasons, frozenset())


def _item(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    (item,) = _names(f"{place}.item", found["item"], "item", ITEMS)
    low, high = _range(place, {key: found[key] for key in found if key != "item"})
    return Condition(lambda state: low <= state.inventory.get(item, 0) <= high, _WORLD)


def _achievement(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    names = _names(f"{place}.achievement", found["achievement"], "achievement", ACHIEVEMENTS)
    return Condition(lambda state: not names.isdisjoint(state.unlocked), frozenset())


def _reached(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    names = _names(f"{place}.reached", found["reached"], "achievement", ACHIEVEMENTS)
    return Condition(lambda state: not names.isdisjoint(state.reached), frozenset())


def _number(kind: str) -> Callable[[str, Mapping[str, Any], int], Condition]:
    def made(place: str, found: Mapping[str, Any], depth: int) -> Condition:
        if not isinstance(found[kind], dict):
            raise UsageError(f'{place}.{kind} is {found[kind]!r}; give {{"at_least": 10}}')
        low, high = _range(f"{place}.{kind}", found[kind])
        return Condition(lambda state: low <= getattr(state, kind) <= high, frozenset())

    return made


def _truth(kind: str) -> Callable[[str, Mapping[str, Any], int], Condition]:
    def made(place: str, found: Mapping[str, Any], depth: int) -> Condition:
        given = found[kind]
        if not isinstance(given, bool):
            raise UsageError(f"{place}.{kind} is {given!r}; give true or false")
        return Condition(lambda state: getattr(state, kind) == given, _WORLD)

    return made


def _near(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    names = _names(f"{place}.near", found["near"], "thing", NEAR)
    within = read_whole(f"{place}.within", found.get("within", 9), least=1)
    return Condition(
        lambda state: any(state.near.get(name, 1_000) <= within for name in names),
        frozenset({"world", "view"}),
    )


def _text(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    try:
        if not isinstance(found["text"], str):
            raise UsageError(f"{place}.text is {found['text']!r}; give a regular expression")
        pattern = re.compile(found["text"], re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"{place}.text is no regular expression: {error}") from error
    return Condition(lambda state: pattern.search(state.text) is not None, frozenset({"text"}))


def _parts(place: str, kind: str, found: Mapping[str, Any], depth: int) -> list[Condition]:
    given = found[kind]
    if not isinstance(given, list) or not given:
        raise UsageError(f"{place}.{kind} is {given!r}; give a list of conditions")
    return [
        read_condition(f"{place}.{kind}[{index}]", part, depth + 1)
        for index, part in enumerate(given)
    ]


def _combined(
    parts: Sequence[Condition], join: Callable[[Sequence[_Test]], _Test]
) -> Condition:
    needs = frozenset[str]().union(*(part.needs for part in parts))
    fresh = None
    if any(part.fresh for part in parts):

        def fresh() -> _Test:
            return join([part.for_episode() for part in parts])

    return Condition(join([part.test for part in parts]), needs, fresh)


def _asked(tests: Sequence[_Test], state: StepState) -> list[bool]:
    """Run all tests without short-circuiting, because stateful tests must see every step."""
    return [test(state) for test in tests]


def _all(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    parts = _parts(place, "all", found, depth)
    return _combined(parts, lambda tests: lambda state: all(_asked(tests, state)))


def _any(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    parts = _parts(place, "any", found, depth)
    return _combined(parts, lambda tests: lambda state: any(_asked(tests, state)))


def _not(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    part = read_condition(f"{place}.not", found["not"], depth + 1)
    return _combined([part], lambda tests: lambda state: not tests[0](state))


def _sequence(place: str, found: Mapping[str, Any], depth: int) -> Condition:
    parts = _parts(place, "sequence", found, depth)
    within = found.get("within")
    if within is not None:
        within = read_whole(f"{place}.within", within, least=1)
    needs = frozenset[str]().union(*(part.needs for part in parts))

    def fresh() -> _Test:
        tests = [part.for_episode() for part in parts]
        # For each part, the latest first step of a chain that has got that far.
        began: list[int | None] = [None] * len(tests)

        def test(state: StepState) -> bool:
            true, before = _asked(tests, state), list(began)
            # A chain continues from an earlier step; one step cannot match two parts.
            starts = [state.step, *before[:-1]]
            for index, start in enumerate(starts):
                if true[index] and start is not None:
                    began[index] = start
            start = starts[-1]
            if not true[-1] or start is None:
                return False
            return within is None or state.step - start <= within

        return test

    return Condition(lambda state: False, needs, fresh)


_MAKERS: Final[Mapping[str, Callable[[str, Mapping[str, Any], int], Condition]]] = {
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
