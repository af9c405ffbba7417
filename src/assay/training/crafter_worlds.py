"""Crafter as tokens: the view of `crafter.Batch`, converted for all worlds at once.

Each of the 63 cells in view has a token: the creature, plant or arrow there, or the material if
there is none. The player's own cell has the material under it. The other tokens describe the
player: 16 inventory counts, its direction, whether it sleeps, and the daylight.
"""

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.crafter.difficulty import resolve_difficulty
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, ITEMS, MATERIALS, MAX_ITEM, OBJECTS, VIEW
from assay.crafter.view import View
from assay.training.environments import (
    Attribute,
    EndedEpisode,
    TokenSpace,
    TrainingTask,
    WorldStart,
)

if TYPE_CHECKING:
    from assay.crafter.batch import BatchView

_DIRECTIONS: Final = ("left", "right", "up", "down")
_DAYLIGHT_LEVELS: Final = 8
"""Number of daylight levels."""

_CELL_CONTENTS: Final = (
    *MATERIALS,
    *("cow", "zombie", "skeleton"),
    *(f"arrow {direction}" for direction in _DIRECTIONS),
    *("sapling", "ripe plant"),
)
_PLAYER_ATTRIBUTES: Final = (
    *(Attribute(item, MAX_ITEM + 1) for item in ITEMS),
    Attribute("facing", len(_DIRECTIONS)),
    Attribute("sleeping", 2),
    Attribute("daylight", _DAYLIGHT_LEVELS),
)
_CELLS: Final = VIEW[0] * VIEW[1]

SPACE: Final = TokenSpace(
    attributes=(
        *(Attribute(name, placed=True) for name in _CELL_CONTENTS),
        *_PLAYER_ATTRIBUTES,
    ),
    view=VIEW,
    tokens=_CELLS + len(_PLAYER_ATTRIBUTES),
    actions=ACTIONS,
)


def _make_object_attributes() -> NDArray[np.uint8]:
    """Return the attributes of objects by id (offset from the player's) and detail."""
    first = 1 + len(MATERIALS)
    table = np.zeros((len(OBJECTS), 5), np.uint8)
    for name, column in (("cow", 0), ("zombie", 1), ("skeleton", 2)):
        table[OBJECTS.index(name)] = first + column
    table[OBJECTS.index("arrow"), 1:] = first + 3 + np.arange(4)
    table[OBJECTS.index("plant"), :2] = first + 7, first + 8
    return table


_OBJECT_ATTRIBUTES: Final = _make_object_attributes()
_PLAYER_ID: Final = len(MATERIALS)


def _make_blank_tokens(worlds: int) -> NDArray[np.uint8]:
    """Return tokens (N, tokens, 3) with the parts that are equal in all observations."""
    tokens = np.zeros((worlds, SPACE.tokens, 3), np.uint8)
    tokens[:, :_CELLS, 1] = np.arange(_CELLS)
    tokens[:, _CELLS:, 0] = 1 + len(_CELL_CONTENTS) + np.arange(len(_PLAYER_ATTRIBUTES))
    return tokens


def _write_views(tokens: NDArray[np.uint8], view: "BatchView") -> None:
    """Write views into blank tokens."""
    worlds = len(tokens)
    objects = view.objects.reshape(worlds, _CELLS)
    attributes = tokens[:, :_CELLS, 0]
    attributes[:] = 1 + view.materials.reshape(worlds, _CELLS)
    occupied = np.nonzero(objects > _PLAYER_ID)  # the player's own cell keeps its material
    details = view.details.reshape(worlds, _CELLS)
    attributes[occupied] = _OBJECT_ATTRIBUTES[objects[occupied] - _PLAYER_ID, details[occupied]]
    tokens[:, _CELLS : _CELLS + len(ITEMS), 2] = view.inventory
    tokens[:, -3, 2] = view.facing
    tokens[:, -2, 2] = view.sleeping
    tokens[:, -1, 2] = np.minimum(view.daylight * _DAYLIGHT_LEVELS, _DAYLIGHT_LEVELS - 1)


def tokenize_view(view: View) -> NDArray[np.uint8]:
    """Return the tokens of one view, (tokens, 3)."""
    from assay.crafter.batch import BatchView

    tokens = _make_blank_tokens(1)
    inventory = np.array([[view.inventory[item] for item in ITEMS]], np.uint8)
    facing = view.details[VIEW[0] // 2, VIEW[1] // 2] - 1
    _write_views(
        tokens,
        BatchView(
            materials=view.materials[None],
            objects=view.objects[None],
            details=view.details[None],
            inventory=inventory,
            facing=np.array([facing], np.uint8),
            sleeping=np.array([view.sleeping]),
            daylight=np.array([view.daylight]),
        ),
    )
    return tokens[0]


class CrafterWorlds:
    """Worlds of the batch engine, on one thread."""

    space = SPACE
    goals: tuple[str, ...] = ACHIEVEMENTS

    def __init__(self, worlds: int, length: int) -> None:
        from assay.crafter.batch import Batch

        self._batch = Batch(range(worlds), length=length, threads=1)
        self._starts = [WorldStart(TrainingTask("classic", {}), seed) for seed in range(worlds)]
        self._rewards = np.zeros(worlds)
        self._reached = np.zeros(worlds, np.uint32)
        self._done = np.zeros(worlds, bool)
        self._just_ended = np.zeros(worlds, bool)
        self._blank_tokens = _make_blank_tokens(worlds)

    def __len__(self) -> int:
        return len(self._batch)

    def begin(self, which: Sequence[int], starts: Sequence[WorldStart]) -> None:
        """Start an episode in each of these worlds; task settings are difficulty settings."""
        difficulties = [resolve_difficulty(start.task.settings) for start in starts]
        self._batch.begin(which, [start.seed for start in starts], difficulties)
        for index, start in zip(which, starts, strict=True):
            self._starts[index] = start
        chosen = list(which)
        self._rewards[chosen] = 0
        self._reached[chosen] = 0
        self._done[chosen] = self._just_ended[chosen] = False

    def observe(self) -> NDArray[np.uint8]:
        """Return the observations, (N, 82, 3)."""
        tokens = self._blank_tokens.copy()
        _write_views(tokens, self._batch.view())
        return tokens

    def step(self, actions: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Carry out an action in each world and return the rewards of the game."""
        result = self._batch.step(actions)
        self._rewards += result.rewards
        self._reached |= result.unlocked
        self._just_ended = result.done & ~self._done
        self._done = result.done
        return result.rewards.astype(np.float32)

    def ended(self) -> list[EndedEpisode]:
        """Return the episodes that ended in the last step."""
        if not self._just_ended.any():
            return []
        lengths = self._batch.steps
        return [
            EndedEpisode(
                world=world,
                start=self._starts[world],
                reward=float(self._rewards[world]),
                length=int(lengths[world]),
                reached=tuple(
                    bool(self._reached[world] >> goal & 1) for goal in range(len(ACHIEVEMENTS))
                ),
            )
            for world in np.flatnonzero(self._just_ended).tolist()
        ]

    def snapshot(self) -> list[bytes]:
        """Return the state of all worlds, with their rewards and achievements so far."""
        return [
            json.dumps(
                {
                    "world": base64.b64encode(self._batch.world(index).snapshot()).decode(),
                    "task": start.task._asdict(),
                    "seed": start.seed,
                    "reward": float(self._rewards[index]),
                    "reached": int(self._reached[index]),
                }
            ).encode()
            for index, start in enumerate(self._starts)
        ]

    def restore(self, worlds: Sequence[bytes]) -> None:
        """Restore the state of all worlds."""
        from assay.crafter.world import World

        for index, snapshot in enumerate(worlds):
            state = json.loads(snapshot)
            world = World.restore(base64.b64decode(state["world"]))
            self._batch.put(index, world)
            self._done[index] = world.done
            self._starts[index] = WorldStart(TrainingTask(**state["task"]), state["seed"])
            self._rewards[index] = state["reward"]
            self._reached[index] = state["reached"]
        self._just_ended[:] = False
