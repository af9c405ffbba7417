"""What the ReAct agent tells a model of the world it plays in: Crafter, or another one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, NoEffect
from assay.crafter.text import full_text, observe, rules_text, short_text

from .feedback import crafter_result

if TYPE_CHECKING:
    from assay.traces.records import StepRecord

__all__ = ["CRAFTER", "CrafterGame", "Game", "PlainGame"]


class Game(Protocol):
    """The words for one kind of world."""

    # What is made once for all episodes of a world is found by it.
    def __hash__(self) -> int: ...

    actions: tuple[str, ...]
    goal: str
    """What to play for, as a sentence."""
    danger: str
    """Where one cannot foresee what actions do; after the word "cannot"."""
    memories: str
    """What is worth a note."""

    def rules(self, *, short: bool) -> str:
        """What a model has to know."""
        ...

    def observation(self, view: Any, last: "StepRecord | None", *, short: bool) -> str:
        """What can be seen, after the last step if there was one."""
        ...

    def result(self, step: "StepRecord") -> str:
        """What came of one action, on one line."""
        ...

    def so_far(self, achieved: Sequence[str], reward: float) -> str:
        """What was reached since the beginning, on one line."""
        ...


class CrafterGame:
    """Crafter."""

    actions: tuple[str, ...] = ACTIONS
    goal = "Reach as many achievements as you can."
    danger = ": near a zombie, a skeleton or lava"
    memories = "where you saw water, trees, your table; what you have achieved; what comes next"

    def rules(self, *, short: bool) -> str:
        """Those of the game."""
        return rules_text(short=short)

    def observation(self, view: Any, last: "StepRecord | None", *, short: bool) -> str:
        """The cells around the player, and what it has."""
        write = short_text if short else full_text
        if last is None:
            return write(observe(view))
        from assay.crafter import StepResult

        result = StepResult(
            reward=last.reward,
            done=last.terminated or last.truncated,
            ended=None,
            unlocked=last.unlocked,
            no_effect=None if last.no_effect is None else NoEffect(last.no_effect),
        )
        return write(observe(view, action=ACTIONS.index(last.action), result=result))

    def result(self, step: "StepRecord") -> str:
        """Whether it had an effect, and if not, why."""
        return crafter_result(step)

    def so_far(self, achieved: Sequence[str], reward: float) -> str:
        """The achievements."""
        if not achieved:
            return f"Achieved so far: none of {len(ACHIEVEMENTS)}."
        names = ", ".join(achieved)
        return f"Achieved so far ({len(achieved)} of {len(ACHIEVEMENTS)}): {names}."


CRAFTER = CrafterGame()


class PlainGame:
    """A world that says in its own words what it shows."""

    goal = "Earn as much reward as you can."
    danger = ""
    memories = "what you have seen and found out; what comes next"

    def __init__(self, name: str, rules: str, actions: tuple[str, ...]) -> None:
        self.actions = actions
        self._rules = rules or f"You play {name}."

    def rules(self, *, short: bool) -> str:
        """The words of the world, and its actions."""
        return f"{self._rules}\n\nThe actions are: {', '.join(self.actions)}."

    def observation(self, view: Any, last: "StepRecord | None", *, short: bool) -> str:
        """What the world shows."""
        return str(view.text)

    def result(self, step: "StepRecord") -> str:
        """The reward of an action."""
        return f"- {step.action}: reward {step.reward:g}"

    def so_far(self, achieved: Sequence[str], reward: float) -> str:
        """The sum of rewards."""
        return f"Reward so far: {round(reward, 6):g}."
