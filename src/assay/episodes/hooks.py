"""Hooks: the interface, the decorator, and the hooks that every episode has.

A hook watches one episode and reports results. It is a class that is instantiated for every
episode, so its state belongs to that episode. It cannot change the game.

The built-in hooks report achievements by tier, wasted actions, and gained items. Waste is
determined by the rules of the world (`NoEffect`), never by comparing states. The tiers of
achievements are those of the original hooks.
"""

import inspect
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from assay.crafter.rules import VITALS, NoEffect
from assay.errors import UsageError
from assay.store.records import HookRecord, PlayedRecord, StepRecord

_MARK = "__assay_hook__"
_METHODS = {"on_step": "seen", "on_turn": "played"}


class StepSeen(NamedTuple):
    """One step, as a hook receives it."""

    turn: int
    """Counted from 1."""
    step: StepRecord
    inventory: Mapping[str, int]
    """Number of each item after the step, including vitals; empty outside Crafter."""
    inventory_before: Mapping[str, int]


@runtime_checkable
class Hook(Protocol):
    """Watches one episode; called after each step, then once for the whole turn."""

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """Return the results for a step; usually none."""
        ...

    def on_turn(self, played: PlayedRecord) -> Iterable[HookRecord]:
        """Return the results for a turn, after all its steps."""
        ...


class BaseHook:
    """A hook without results: a base class for hooks that need only one of the methods."""

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """Return no results."""
        return ()

    def on_turn(self, played: PlayedRecord) -> Iterable[HookRecord]:
        """Return no results."""
        return ()


_C = TypeVar("_C", bound=type)


def hook(kind: _C) -> _C:
    """Mark a class as a hook, so that `load_hooks` takes it from its file.

        from assay.metrics import BaseHook, HookRecord, hook

        @hook
        class Hungry(BaseHook):
            def on_step(self, seen):
                if seen.inventory["food"] == 0:
                    yield HookRecord(
                        name="hungry", code="F", priority=1, step=seen.step.index
                    )

    A class that cannot be a hook raises UsageError.
    """
    problem = find_hook_problem(kind)
    if problem:
        raise UsageError(problem)
    setattr(kind, _MARK, True)
    return kind


def is_marked(value: object) -> bool:
    """Return whether `value` is a marked class; subclasses of a marked class are not."""
    return isinstance(value, type) and _MARK in vars(value)


def find_hook_problem(kind: object) -> str | None:
    """Return the reason why `kind` cannot be a hook, or None."""
    if not isinstance(kind, type):
        return (
            f"{kind!r} is not a class; a hook is a class that is instantiated for each episode"
        )
    name = f"hook {kind.__name__!r}"
    for method, argument in _METHODS.items():
        function = getattr(kind, method, None)
        if not callable(function):
            return f"{name} has no {method}(self, {argument}); subclass BaseHook to have both"
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return f"{name}: {method} is async; a hook method must be a plain function"
        if not _accepts(function, 2):
            return f"{name}: {method} must take (self, {argument})"
    if not _accepts(kind, 0):
        return f"{name} must be instantiable without arguments: {kind.__name__}()"
    return None


def _accepts(function: object, count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)  # type: ignore[arg-type]
    except TypeError:
        return False
    except ValueError:  # some classes implemented in C have no signature
        return True
    return True


class Tier(StrEnum):
    """Difficulty of an achievement."""

    EASY = "easy"
    """Reached by walking around."""
    MEDIUM = "medium"
    """Needs a tool, a table or a hunt."""
    HARD = "hard"
    """Needs a plan or a fight."""


_NAMES = {
    Tier.EASY: (
        *("collect_wood", "collect_stone", "collect_sapling", "collect_drink"),
        *("place_stone", "place_table", "wake_up", "eat_plant"),
    ),
    Tier.MEDIUM: (
        *("make_wood_pickaxe", "make_wood_sword", "place_furnace", "place_plant"),
        *("collect_coal", "collect_iron", "eat_cow"),
    ),
    Tier.HARD: (
        *("make_stone_pickaxe", "make_stone_sword", "make_iron_pickaxe", "make_iron_sword"),
        *("collect_diamond", "defeat_skeleton", "defeat_zombie"),
    ),
}

TIERS: Final = MappingProxyType(
    {name: tier for tier, names in _NAMES.items() for name in names}
)
"""Tier of each achievement."""

UNKNOWN_ACTION: Final = "unknown_action"
"""Reason in `invalid_action` for a name that does not exist."""

_MAX_NAME = 200
_VITALS = frozenset(VITALS)


class _Achievement(BaseHook):
    tier: ClassVar[Tier]
    code: ClassVar[str]
    priority: ClassVar[int]

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """Return one result if the step unlocked an achievement of this tier."""
        if not seen.step.unlocked:
            return ()
        names = [name for name in seen.step.unlocked if TIERS.get(name) is self.tier]
        if not names:
            return ()
        return (
            HookRecord(
                name=f"{self.tier}_achievement",
                code=self.code,
                priority=self.priority,
                step=seen.step.index,
                description=f"unlocked {', '.join(names)}",
                data={"achievements": names, "difficulty": str(self.tier)},
            ),
        )


class EasyAchievement(_Achievement):
    """`easy_achievement`: an easy achievement was unlocked."""

    tier, code, priority = Tier.EASY, "E", 3


class MediumAchievement(_Achievement):
    """`medium_achievement`: an achievement of medium difficulty was unlocked."""

    tier, code, priority = Tier.MEDIUM, "M", 4


class HardAchievement(_Achievement):
    """`hard_achievement`: a hard achievement was unlocked."""

    tier, code, priority = Tier.HARD, "H", 5


class InvalidAction(BaseHook):
    """`invalid_action`: an action that does not exist, or that changed nothing.

    Actions ignored while asleep are not reported, because they are not a mistake about the
    world.
    """

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """Return one result if the action had no effect."""
        step = seen.step
        reason = step.no_effect
        if reason is None or reason == NoEffect.ASLEEP:
            return ()
        description = f"{step.action}: {reason.replace('_', ' ')}"
        return (_make_invalid_record(step.action, str(reason), description, step.index),)

    def on_turn(self, played: PlayedRecord) -> Iterable[HookRecord]:
        """Return one result for each action that does not exist."""
        # Names come from a model and may have any length.
        return [
            _make_invalid_record(
                name[:_MAX_NAME], UNKNOWN_ACTION, f"no action {name[:_MAX_NAME]!r}", None
            )
            for name in played.unknown
        ]


def _make_invalid_record(
    action: str, reason: str, description: str, step: int | None
) -> HookRecord:
    return HookRecord(
        name="invalid_action",
        code="X",
        priority=2,
        step=step,
        description=description,
        data={"action": action, "reason": reason},
    )


class InventoryIncrease(BaseHook):
    """`inventory_increase`: the player has more of an item; vitals do not count."""

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """Return one result for each item that increased."""
        after, before = seen.inventory, seen.inventory_before
        if after == before:
            return ()
        return [
            HookRecord(
                name="inventory_increase",
                code="I",
                priority=1,
                step=seen.step.index,
                description=f"{item} {before.get(item, 0)} -> {count}",
                data={"item": item, "from": before.get(item, 0), "to": count},
            )
            for item, count in after.items()
            if count > before.get(item, 0) and item not in _VITALS
        ]


DEFAULT_HOOKS: Final[tuple[type[Hook], ...]] = (
    EasyAchievement,
    MediumAchievement,
    HardAchievement,
    InvalidAction,
    InventoryIncrease,
)
"""Hooks of every episode, in the order they are called."""
