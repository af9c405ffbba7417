"""The workload of agent turns, the same for all sides: how much text, and which.

Standard library only, because peers run where nothing else is installed. An episode has
`TURNS` turns. A turn is one request and one tool call with `ARGUMENTS` bytes of arguments,
answered by an observation of `OBSERVATION` bytes. A request holds the system prompt, the
opening message with the first observation, and the last `HISTORY` turns: 11 KB on average.
Observations of different turns and episodes differ.
"""

import json
from functools import lru_cache
from random import Random
from typing import Any, Final

__all__ = [
    "ARGUMENTS",
    "HISTORY",
    "OBSERVATION",
    "OPENING",
    "PROMPT_TOKENS",
    "REPLY_TOKENS",
    "SYSTEM",
    "TURNS",
    "arguments_of",
    "observation_of",
]

TURNS: Final = 100
HISTORY: Final = 8
OBSERVATION: Final = 800
ARGUMENTS: Final = 120
PROMPT_TOKENS: Final = 2200
REPLY_TOKENS: Final = 40

_ACTIONS: Final = ("move_left", "move_right", "move_up", "move_down", "do", "noop", "sleep")
_WORDS: Final = (
    *("grass", "sand", "stone", "tree", "water", "coal", "iron", "table", "furnace", "lava"),
    *("zombie", "skeleton", "cow", "plant", "sapling", "wood", "pickaxe", "sword", "arrow"),
    *("north", "south", "east", "west", "near", "far", "health", "food", "drink", "energy"),
)


def _prose(size: int, seed: int) -> str:
    # Random words: text that repeats itself would make every log look small.
    draw = Random(seed)
    words = " ".join(draw.choices(_WORDS, k=size // 3))
    return words[:size]


SYSTEM: Final = _prose(1500, 1)
OPENING: Final = _prose(59, 2) + "\n"


@lru_cache(maxsize=512)
def _body(number: int) -> str:
    return _prose(OBSERVATION - 20, 1000 + number)


def observation_of(episode: int, turn: int) -> str:
    """What an episode shows after a turn; turn 0 is its start."""
    place = f"world {episode} turn {turn}".ljust(19)
    return f"{place}\n{_body((131 * episode + turn) % 512)}"


def arguments_of(episode: int, turn: int) -> dict[str, Any]:
    """What the model calls its tool with: three actions, and words to fill the bytes."""
    number = 7919 * episode + 104729 * turn
    names = [_ACTIONS[number // 7**place % 7] for place in range(3)]
    empty = len(json.dumps({"actions": names, "reasoning": ""}))
    return {"actions": names, "reasoning": _body(number % 512)[: ARGUMENTS - empty]}
