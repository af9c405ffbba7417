"""What a model is told before it plays: the rules, how to answer, and its two tools.

A function of the options alone. Made once for all episodes that share them.
"""

from functools import lru_cache
from typing import Any, Final

from assay.crafter.rules import ACTIONS
from assay.types import Encoded, Message

from .game import CRAFTER, Game

__all__ = ["INTERACT", "TERMINATE", "default_instructions", "system_message", "tools", "up_to"]

INTERACT: Final = "interact"
"""The tool that plays."""
TERMINATE: Final = "terminate"
"""The tool that ends the episode."""


def default_instructions(game: Game, actions_per_turn: int, history: int) -> str:
    """How to play, in our words; a prompt file replaces this."""
    example = game.actions[min(1, len(game.actions) - 1)]
    foresee = (
        "- Give several actions where you can foresee what they do, and one where you "
        f"cannot{game.danger}.\n"
    )
    return f"""\
How you play:
- You play in turns. In each turn call the tool {INTERACT} with a list of \
{up_to(actions_per_turn)}. They are carried out in order, one in each step, while the world \
goes on; you then see what each of them did and what is around you.
{foresee if actions_per_turn > 1 else ""}\
- An action that does nothing is wasted. You are told why; do not repeat it unchanged.
- You see no more than your last {history} turns. Write what you must remember into notes: \
{game.memories}.
- Say in reasoning, in a sentence or two, what you see and why you act so.
- Call {TERMINATE} only if you want to give up the rest of the game.
If you cannot call tools, answer with nothing but JSON: \
{{"reasoning": "...", "notes": "...", "actions": ["{example}"]}}"""


def up_to(actions: int) -> str:
    """How many actions a turn may have, in words."""
    return "1 action" if actions == 1 else f"1 to {actions} actions"


@lru_cache(maxsize=64)
def system_message(
    instructions: str | None,
    *,
    short: bool,
    actions_per_turn: int,
    history: int,
    game: Game = CRAFTER,
) -> Message:
    """The rules and the instructions; without any of the caller's own, ours."""
    if instructions is None:
        instructions = default_instructions(game, actions_per_turn, history)
    content = f"{game.rules(short=short)}\n\n{instructions}"
    return Message({"role": "system", "content": content})


@lru_cache(maxsize=64)
def tools(actions_per_turn: int, actions: tuple[str, ...] = ACTIONS) -> Encoded:
    """The tools in the shape of the chat protocol."""
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
            _tool(INTERACT, "Play: carry out actions in the world.", interact, "actions"),
            _tool(TERMINATE, "End the game for good.", reason, "reason"),
        ]
    )


def _tool(name: str, description: str, properties: Any, required: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [required],
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}
