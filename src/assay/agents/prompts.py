"""Prompts of the ReAct agent: rules, instructions and two tools.

They depend only on the options and the kind of world (`Game`), and are made once for all
episodes that share these.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from assay.agents.feedback import format_crafter_result
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, NoEffect
from assay.crafter.text.forms import full_text, short_text
from assay.crafter.text.guide import rules_text
from assay.crafter.text.observation import observe
from assay.types import Encoded, Message

if TYPE_CHECKING:
    from assay.store.records import StepRecord


class Game(Protocol):
    """Texts for one kind of world."""

    # Games are cache keys of `make_system_message`.
    def __hash__(self) -> int: ...

    actions: tuple[str, ...]
    goal: str
    """Goal, as a sentence."""
    danger: str
    """Situations with unforeseeable effects; follows the word "cannot"."""
    memories: str
    """Examples of what to write into notes."""

    def format_rules(self, *, short: bool) -> str:
        """Return the rules of the world."""
        ...

    def format_observation(self, view: Any, last: "StepRecord | None", *, short: bool) -> str:
        """Describe the view, and the last step if there was one."""
        ...

    def format_result(self, step: "StepRecord") -> str:
        """Describe the result of one action, on one line."""
        ...

    def format_progress(self, achieved: Sequence[str], reward: float) -> str:
        """Describe the results since the start, on one line."""
        ...


class CrafterGame:
    """Texts for Crafter."""

    actions: tuple[str, ...] = ACTIONS
    goal = "Reach as many achievements as you can."
    danger = ": near a zombie, a skeleton or lava"
    memories = "where you saw water, trees, your table; what you have achieved; what comes next"

    def format_rules(self, *, short: bool) -> str:
        """Return the rules of Crafter."""
        return rules_text(short=short)

    def format_observation(self, view: Any, last: "StepRecord | None", *, short: bool) -> str:
        """Describe the cells around the player, and its inventory."""
        write = short_text if short else full_text
        if last is None:
            return write(observe(view))
        from assay.crafter.world import StepResult

        result = StepResult(
            reward=last.reward,
            done=last.terminated or last.truncated,
            ended=None,
            unlocked=last.unlocked,
            no_effect=None if last.no_effect is None else NoEffect(last.no_effect),
        )
        return write(observe(view, action=ACTIONS.index(last.action), result=result))

    def format_result(self, step: "StepRecord") -> str:
        """Report whether the action had an effect, and if not, why."""
        return format_crafter_result(step)

    def format_progress(self, achieved: Sequence[str], reward: float) -> str:
        """List the achievements."""
        if not achieved:
            return f"Achieved so far: none of {len(ACHIEVEMENTS)}."
        names = ", ".join(achieved)
        return f"Achieved so far ({len(achieved)} of {len(ACHIEVEMENTS)}): {names}."


CRAFTER = CrafterGame()


class PlainGame:
    """Texts for a world that describes itself."""

    goal = "Earn as much reward as you can."
    danger = ""
    memories = "what you have seen and found out; what comes next"

    def __init__(self, name: str, rules: str, actions: tuple[str, ...]) -> None:
        self.actions = actions
        self._rules = rules or f"You play {name}."

    def format_rules(self, *, short: bool) -> str:
        """Return the world's own rules, and its actions."""
        return f"{self._rules}\n\nThe actions are: {', '.join(self.actions)}."

    def format_observation(self, view: Any, last: "StepRecord | None", *, short: bool) -> str:
        """Return the text of the view."""
        return str(view.text)

    def format_result(self, step: "StepRecord") -> str:
        """Report the reward of the action."""
        return f"- {step.action}: reward {step.reward:g}"

    def format_progress(self, achieved: Sequence[str], reward: float) -> str:
        """Report the sum of rewards."""
        return f"Reward so far: {round(reward, 6):g}."


INTERACT: Final = "interact"
"""The tool that plays."""
TERMINATE: Final = "terminate"
"""The tool that ends the episode."""


def make_instructions(game: Game, actions_per_turn: int, history: int) -> str:
    """Return the default instructions; a prompt file replaces them."""
    example = game.actions[min(1, len(game.actions) - 1)]
    actions = format_action_count(actions_per_turn)
    advice = (
        "- Give several actions where you can foresee what they do, and one where you "
        f"cannot{game.danger}.\n"
    )
    return f"""\
How you play:
- You play in turns. In each turn call the tool {INTERACT} with a list of \
{actions}. They are carried out in order, one in each step, while the world \
goes on; you then see what each of them did and what is around you.
{advice if actions_per_turn > 1 else ""}\
- An action that does nothing is wasted. You are told why; do not repeat it unchanged.
- You see no more than your last {history} turns. Write what you must remember into notes: \
{game.memories}.
- Say in reasoning, in a sentence or two, what you see and why you act so.
- Call {TERMINATE} only if you want to give up the rest of the game.
If you cannot call tools, answer with nothing but JSON: \
{{"reasoning": "...", "notes": "...", "actions": ["{example}"]}}"""


def format_action_count(actions: int) -> str:
    """Format the number of actions in a turn."""
    return "1 action" if actions == 1 else f"1 to {actions} actions"


@lru_cache(maxsize=64)
def make_system_message(
    instructions: str | None,
    *,
    short: bool,
    actions_per_turn: int,
    history: int,
    game: Game = CRAFTER,
) -> Message:
    """Build the message with the rules and the instructions (default: ours)."""
    if instructions is None:
        instructions = make_instructions(game, actions_per_turn, history)
    content = f"{game.format_rules(short=short)}\n\n{instructions}"
    return Message({"role": "system", "content": content})


@lru_cache(maxsize=64)
def make_tools(actions_per_turn: int, actions: tuple[str, ...] = ACTIONS) -> Encoded:
    """Build the tools in the format of the chat protocol."""
    text = {"type": "string"}
    interact = {
        "reasoning": {**text, "description": "What you see and why you act so, in short."},
        "actions": {
            "type": "array",
            "items": {**text, "enum": list(actions)},
            "minItems": 1,
            "maxItems": actions_per_turn,
            "description": "What to do, in order, one action in each step.",
        },
        "notes": {**text, "description": "What you must remember in later turns."},
    }
    reason = {"reason": {**text, "description": "Why you give up the rest of the game."}}
    return Encoded(
        [
            _make_tool(INTERACT, "Play: carry out actions in the world.", interact, "actions"),
            _make_tool(TERMINATE, "End the game for good.", reason, "reason"),
        ]
    )


def _make_tool(name: str, description: str, properties: Any, required: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [required],
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}
