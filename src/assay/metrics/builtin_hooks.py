"""The hooks every episode has: achievements by tier, wasted actions, and what was gained.

What is waste follows from the rules of the world (`NoEffect`), never from comparing states.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from assay.crafter.rules import VITALS, NoEffect
from assay.traces.records import HookRecord, PlayedRecord

from .hooks import BaseHook, Hook, StepSeen
from .tiers import TIERS, Tier

__all__ = [
    "DEFAULT_HOOKS",
    "UNKNOWN_ACTION",
    "EasyAchievement",
    "HardAchievement",
    "InvalidAction",
    "InventoryIncrease",
    "MediumAchievement",
]

UNKNOWN_ACTION: Final = "unknown_action"
"""The reason `invalid_action` gives for a name that is no action."""

_MAX_NAME = 200
_VITALS = frozenset(VITALS)


class _Achievement(BaseHook):
    tier: ClassVar[Tier]
    code: ClassVar[str]
    priority: ClassVar[int]

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """One result if the step unlocked anything of this tier."""
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
    """`easy_achievement`: something easy was unlocked."""

    tier, code, priority = Tier.EASY, "E", 3


class MediumAchievement(_Achievement):
    """`medium_achievement`: something of medium difficulty was unlocked."""

    tier, code, priority = Tier.MEDIUM, "M", 4


class HardAchievement(_Achievement):
    """`hard_achievement`: something hard was unlocked."""

    tier, code, priority = Tier.HARD, "H", 5


class InvalidAction(BaseHook):
    """`invalid_action`: an action that does not exist, or that changed nothing.

    What a sleeper did not carry out is not reported: it was no mistake about the world.
    """

    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        """One result if the action had no effect."""
        step = seen.step
        reason = step.no_effect
        if reason is None or reason == NoEffect.ASLEEP:
            return ()
        said = f"{step.action}: {reason.replace('_', ' ')}"
        return (_invalid(step.action, str(reason), said, step.index),)

    def on_turn(self, played: PlayedRecord) -> Iterable[HookRecord]:
        """One result for each action that does not exist."""
        # Names come from a model and may be of any length.
        return [
            _invalid(name[:_MAX_NAME], UNKNOWN_ACTION, f"no action {name[:_MAX_NAME]!r}", None)
            for name in played.unknown
        ]


def _invalid(action: str, reason: str, description: str, step: int | None) -> HookRecord:
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
        """One result for each item there is more of."""
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
"""The hooks of every episode, in the order they are asked."""
