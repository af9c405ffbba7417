"""The seam of hooks: what a hook is shown, and what it must be.

A hook watches one episode and reports what it notices. It is a class, made anew for every
episode, so that what it remembers belongs to one episode alone. It cannot change the game.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from assay.errors import UsageError
from assay.traces.records import HookRecord, PlayedRecord, StepRecord

__all__ = ["BaseHook", "Hook", "StepSeen", "hook", "hook_problem", "is_marked"]

_MARK = "__assay_hook__"
_METHODS = {"on_step": "seen", "on_turn": "played"}


class StepSeen(NamedTuple):
    """One step, as a hook sees it."""

    turn: int
    """Counted from 1."""
    step: StepRecord
    inventory: Mapping[str, int]
    """How much the player has of each item after the step, vitals included; empty in other
    environments than Crafter."""
    inventory_before: Mapping[str, int]


@runtime_checkable
class Hook(Protocol):
    """Watches one episode; called after each step, then once for the turn as a whole."""

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """What is worth noting about a step; usually nothing."""
        ...

    def on_turn(self, played: PlayedRecord) -> Iterable[HookRecord]:
        """What is worth noting about a turn, once all its steps were made."""
        ...


class BaseHook:
    """A hook that notices nothing: a base for those that care about one of the two."""

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """Nothing."""
        return ()

    def on_turn(self, played: PlayedRecord) -> Iterable[HookRecord]:
        """Nothing."""
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

    A class that cannot be a hook is a UsageError.
    """
    problem = hook_problem(kind)
    if problem:
        raise UsageError(problem)
    setattr(kind, _MARK, True)
    return kind


def is_marked(value: object) -> bool:
    """Whether `value` is a class that was itself marked; heirs of one are not."""
    return isinstance(value, type) and _MARK in vars(value)


def hook_problem(kind: object) -> str | None:
    """What keeps `kind` from being a hook, if anything does."""
    if not isinstance(kind, type):
        return f"{kind!r} is not a class; a hook is a class, made anew for each episode"
    name = f"hook {kind.__name__!r}"
    for method, argument in _METHODS.items():
        function = getattr(kind, method, None)
        if not callable(function):
            return f"{name} has no {method}(self, {argument}); subclass BaseHook to have both"
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return f"{name}: {method} is async; a hook is called as a plain function"
        if not _takes(function, 2):
            return f"{name}: {method} must take (self, {argument})"
    if not _takes(kind, 0):
        return f"{name} must be made without arguments: {kind.__name__}()"
    return None


def _takes(function: object, count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)  # type: ignore[arg-type]
    except TypeError:
        return False
    except ValueError:  # some classes made in C do not tell
        return True
    return True
