"""MettaGrid as tokens: rooms in which the agent must discover a chain of resources.

Each world has a chain, nothing -> r1 -> ... -> rL -> heart, over L + 1 buildings drawn from
twelve. Sinks are further buildings that take any resource and give nothing. The function of
each building is drawn with the seed and not visible, so that it must be learned within the
episode. A heart is a reward of 1. Map, chain and game are determined by task and seed. Unlike
the original recipe, buildings have no cooldowns.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.training.environments import (
    Attribute,
    EndedEpisode,
    TokenSpace,
    TrainingTask,
    WorldStart,
)

_BUILDINGS: Final = (
    *("altar", "armory", "chest", "clinic", "factory", "forge"),
    *("lab", "lasery", "mill", "mine", "shrine", "temple"),
)
_RESOURCES: Final = (
    *("ore_red", "ore_blue", "ore_green", "battery_red", "battery_blue"),
    *("battery_green", "laser", "armor", "blueprint"),
)
_ACTIONS: Final = ("noop", "move_north", "move_south", "move_west", "move_east")
_MAX_HEARTS: Final = 15
_GOAL_COUNT: Final = 10
"""Hearts that count as goals; an episode has time for about this many."""
_VIEW_SIZE: Final = 11
_TIME_LEVELS: Final = 8

_CELL_CONTENTS: Final = ("wall", *_BUILDINGS)
_AGENT_ATTRIBUTES: Final = (
    *(Attribute(resource, 2) for resource in _RESOURCES),
    Attribute("heart", _MAX_HEARTS + 1),
    Attribute("last action", len(_ACTIONS)),
    Attribute("last reward", 2),
    Attribute("time", _TIME_LEVELS),
)
SPACE: Final = TokenSpace(
    attributes=(*(Attribute(name, placed=True) for name in _CELL_CONTENTS), *_AGENT_ATTRIBUTES),
    view=(_VIEW_SIZE, _VIEW_SIZE),
    tokens=64,
    actions=_ACTIONS,
)
_ATTRIBUTES: Final = {attribute.name: at for at, attribute in enumerate(SPACE.attributes, 1)}
_MAX_VALUES: Final = np.array([0, *(attribute.values - 1 for attribute in SPACE.attributes)])
_SIZES: Final = ((5, 10), (10, 20), (20, 30), (30, 40))
"""Room sizes: tiny, small, medium, large; upper bounds are exclusive."""
_WALL_SHARES: Final = (0.0, 0.03, 0.08, 0.15)
"""Share of inner cells with a wall, by density."""


class MettaWorlds:
    """MettaGrid worlds with one simulation each, because the package has no cheaper reset."""

    space = SPACE
    goals: tuple[str, ...] = tuple(f"heart_{n}" for n in range(1, _GOAL_COUNT + 1))

    def __init__(self, worlds: int, length: int) -> None:
        self._length = length
        self._games: list[Any] = [None] * worlds
        self._starts: list[WorldStart] = [WorldStart(TrainingTask("", {}), 0)] * worlds
        self._actions_taken: list[list[int]] = [[] for _ in range(worlds)]
        self._rewards = np.zeros(worlds)
        self._done = np.zeros(worlds, bool)
        self._just_ended: list[int] = []

    def __len__(self) -> int:
        return len(self._games)

    def begin(self, which: Sequence[int], starts: Sequence[WorldStart]) -> None:
        """Start an episode in each of these worlds."""
        for index, start in zip(which, starts, strict=True):
            self._games[index] = _start_game(start, self._length)
            self._starts[index] = start
            self._actions_taken[index] = []
            self._rewards[index] = 0
            self._done[index] = False
        self._just_ended = [index for index in self._just_ended if index not in which]

    def observe(self) -> NDArray[np.uint8]:
        """Return the observations, (N, 64, 3): the agent's own state, then its surroundings."""
        raw = np.stack([game.observations()[0, : SPACE.tokens] for game in self._games])
        place, feature, value = raw[..., 0], raw[..., 1], raw[..., 2]
        tag, by_feature, by_tag = _make_attribute_tables()
        is_tag = feature == tag
        attribute = np.where(is_tag, by_tag[value], by_feature[feature])
        is_time = attribute == _ATTRIBUTES["time"]
        value = np.where(is_time, value.astype(int) * _TIME_LEVELS // 256, value)
        tokens = np.zeros((*raw.shape[:2], 3), np.uint8)
        tokens[..., 0] = attribute
        cell = (place & 15) * _VIEW_SIZE + (place >> 4)
        tokens[..., 1] = np.where(is_tag & (attribute > 0), cell, 0)
        tokens[..., 2] = np.minimum(np.where(is_tag, 0, value), _MAX_VALUES[attribute])
        return tokens

    def step(self, actions: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Carry out an action in each world and return the rewards; a heart is worth 1."""
        rewards = np.zeros(len(self), np.float32)
        self._just_ended = []
        for index, game in enumerate(self._games):
            if self._done[index]:
                continue
            action = int(actions[index])
            self._actions_taken[index].append(action)
            game.actions()[0] = action
            game.step()
            rewards[index] = game.rewards()[0]
            if game.terminals()[0] or game.truncations()[0]:
                self._done[index] = True
                self._just_ended.append(index)
        self._rewards += rewards
        return rewards

    def ended(self) -> list[EndedEpisode]:
        """Return the episodes that ended in the last step."""
        return [
            EndedEpisode(
                world=index,
                start=self._starts[index],
                reward=float(self._rewards[index]),
                length=len(self._actions_taken[index]),
                reached=tuple(
                    bool(self._rewards[index] >= n) for n in range(1, _GOAL_COUNT + 1)
                ),
            )
            for index in self._just_ended
        ]

    def snapshot(self) -> list[bytes]:
        """Return the actions taken in each world; replaying them gives the same state."""
        return [
            json.dumps(
                {
                    "task": start.task._asdict(),
                    "seed": start.seed,
                    "actions": base64.b64encode(bytes(taken)).decode(),
                }
            ).encode()
            for start, taken in zip(self._starts, self._actions_taken, strict=True)
        ]

    def restore(self, worlds: Sequence[bytes]) -> None:
        """Restore all worlds by replaying their actions."""
        for index, snapshot in enumerate(worlds):
            state = json.loads(snapshot)
            start = WorldStart(TrainingTask(**state["task"]), state["seed"])
            self.begin([index], [start])
            game = self._games[index]
            for action in base64.b64decode(state["actions"]):
                self._actions_taken[index].append(action)
                game.actions()[0] = action
                game.step()
                self._rewards[index] += game.rewards()[0]
            self._done[index] = game.terminals()[0] or game.truncations()[0]


def _translate_feature(feature: str) -> str:
    """Return our name for a feature of the package."""
    names = {"episode_completion_pct": "time", "last_action": "last action"}
    return names.get(
        feature, feature.removeprefix("inv:").replace("last_reward", "last reward")
    )


@cache
def _make_attribute_tables() -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """Return the tag feature's id, and our attributes by feature and by tag; 0 for none."""
    plan = _plan_room(WorldStart(TrainingTask("", {"chain": 2, "sinks": 1}), 0))
    ids = _make_game_config(plan, 10).game.id_map()
    by_feature, by_tag, tag = np.zeros(256, np.int64), np.zeros(256, np.int64), 0
    for feature in ids.features():
        by_feature[feature.id] = _ATTRIBUTES.get(_translate_feature(feature.name), 0)
        if feature.name == "tag":
            tag = feature.id
    for number, name in enumerate(ids.tag_names()):
        by_tag[number] = _ATTRIBUTES.get(name.removeprefix("type:"), 0)
    return tag, by_feature, by_tag


@dataclass(frozen=True, slots=True)
class _RoomPlan:
    """A map, and the function of its buildings."""

    rows: list[str]
    buildings: Mapping[str, str]
    """Building names by their letters on the map."""
    uses: Mapping[str, list[tuple[str | None, str | None]]]
    """Pairs of the resource taken and the resource given, for each building."""
    steps: int
    """Step limit; enough for about ten hearts."""


def _plan_room(start: WorldStart) -> _RoomPlan:
    """Create the room for a task and a seed."""
    settings = start.task.settings
    chain, sinks = int(settings["chain"]), int(settings["sinks"])
    low, high = _SIZES[int(settings.get("size", 0))]
    rng = np.random.default_rng([start.seed, 0x6D65747461])
    width, height = (int(side) for side in rng.integers(low, high, 2))
    buildings = [_BUILDINGS[i] for i in rng.permutation(len(_BUILDINGS))[: chain + 1 + sinks]]
    resources = [_RESOURCES[i] for i in rng.permutation(len(_RESOURCES))[:chain]]
    uses: dict[str, list[tuple[str | None, str | None]]] = {}
    products = [*resources, "heart"]
    for index, building in enumerate(buildings[: chain + 1]):
        uses[building] = [(resources[index - 1] if index else None, products[index])]
    for building in buildings[chain + 1 :]:
        uses[building] = [(resource, None) for resource in resources]
    letters = dict(zip(buildings, "ABCDEFGHIJKL", strict=False))
    grid = _draw_grid(
        rng, width, height, list(letters.values()), int(settings.get("density", 0))
    )
    by_letter = {letter: name for name, letter in letters.items()}
    return _RoomPlan(grid, by_letter, uses, 2 * (width + height) * (sinks + 10 * chain))


def _draw_grid(
    rng: np.random.Generator, width: int, height: int, letters: list[str], density: int
) -> list[str]:
    """Create a walled room with buildings along the walls, all reachable from the centre."""
    while True:
        cells = np.full((height + 2, width + 2), "#")
        inner = cells[1:-1, 1:-1]
        inner[:] = np.where(rng.random((height, width)) < _WALL_SHARES[density], "#", ".")
        edge = [(y, x) for x in range(1, width - 1) for y in (0, height - 1)]
        edge += [(y, x) for y in range(1, height - 1) for x in (0, width - 1)]
        for letter, index in zip(letters, rng.permutation(len(edge)), strict=False):
            inner[edge[index]] = letter
        inner[height // 2, width // 2] = "@"
        if _all_reachable(inner, len(letters)):
            return ["".join(row) for row in cells]


def _all_reachable(inner: NDArray[np.str_], count: int) -> bool:
    height, width = inner.shape
    visited, queue, reached = {(height // 2, width // 2)}, [(height // 2, width // 2)], 0
    while queue:
        y, x = queue.pop()
        for neighbour in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
            inside = 0 <= neighbour[0] < height and 0 <= neighbour[1] < width
            if inside and neighbour not in visited and inner[neighbour] != "#":
                visited.add(neighbour)
                if inner[neighbour] == ".":
                    queue.append(neighbour)
                else:
                    reached += 1
    return reached == count


def _start_game(start: WorldStart, length: int) -> Any:
    from mettagrid.simulator import Simulation

    plan = _plan_room(start)
    simulation = Simulation(_make_game_config(plan, min(length, plan.steps)), seed=start.seed)
    return simulation._c_sim


def _make_game_config(plan: _RoomPlan, steps: int) -> Any:
    """Build the game configuration; it declares all buildings, so that ids are constant."""
    from mettagrid.builder import building
    from mettagrid.config import mettagrid_config as mg
    from mettagrid.config.game_value import InventoryValue
    from mettagrid.config.handler_config import FirstMatch
    from mettagrid.config.reward_config import reward
    from mettagrid.map_builder.ascii import AsciiMapBuilder

    objects: dict[str, Any] = {"wall": building.wall}
    for name in _BUILDINGS:
        handlers = [_make_handler(*use) for use in plan.uses.get(name, ())]
        use = FirstMatch(handlers=handlers) if handlers else None
        objects[name] = mg.GridObjectConfig(name=name, on_use_handler=use)
    limits = {"heart": mg.ResourceLimitsConfig(base=_MAX_HEARTS, resources=["heart"])}
    return mg.MettaGridConfig(
        game=mg.GameConfig(
            max_steps=steps,
            num_agents=1,
            resource_names=[*_RESOURCES, "heart"],
            objects=objects,
            obs=mg.ObsConfig(width=_VIEW_SIZE, height=_VIEW_SIZE),
            map_builder=AsciiMapBuilder.Config(
                map_data=plan.rows, char_to_map_name=dict(plan.buildings)
            ),
            actions=mg.ActionsConfig(
                noop=mg.NoopActionConfig(),
                move=mg.MoveActionConfig(),
                change_vibe=mg.ChangeVibeActionConfig(enabled=False),
            ),
            agent=mg.AgentConfig(
                rewards={"heart": reward(InventoryValue(item="heart"))},
                inventory=mg.InventoryConfig(default_limit=1, limits=limits),
            ),
        )
    )


def _make_handler(takes: str | None, gives: str | None) -> Any:
    from mettagrid.config.filter import actorHas
    from mettagrid.config.handler_config import Handler
    from mettagrid.config.mutation import updateActor

    change = {} if takes is None else {takes: -1}
    change |= {} if gives is None else {gives: 1}
    needs = [] if takes is None else [actorHas({takes: 1})]
    return Handler(filters=needs, mutations=[updateActor(change)])
