"""The PyPI package `crafter` behind the seam of training: the same games and tokens."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from crafter import objects
from numpy.typing import NDArray

from assay.crafter import ACHIEVEMENTS, MATERIALS
from assay.training.crafter_worlds import SPACE
from assay.training.environments import EndedEpisode, TokenSpace, WorldStart
from tests.crafter.reference import Reference

__all__ = ["PackageWorlds"]

_DIRECTIONS: Final = ((-1, 0), (1, 0), (0, -1), (0, 1))
_NAMES: Final = {attribute.name: at for at, attribute in enumerate(SPACE.attributes, start=1)}
_SEEN: Final = {objects.Cow: "cow", objects.Zombie: "zombie", objects.Skeleton: "skeleton"}
_ARROWS: Final = ("arrow left", "arrow right", "arrow up", "arrow down")
_FIRST_SEEN: Final = 1 + len(MATERIALS)
_ACROSS, _DOWN = SPACE.view
_CELLS: Final = SPACE.places


class PackageWorlds:
    """Worlds of `crafter.Env`, one after the other, without pictures."""

    space: TokenSpace = SPACE
    goals: tuple[str, ...] = ACHIEVEMENTS

    def __init__(self, worlds: int, length: int) -> None:
        self._length = length
        self._envs: list[Any] = [None] * worlds
        self._starts: list[WorldStart | None] = [None] * worlds
        self._rewards = np.zeros(worlds)
        self._ended: list[EndedEpisode] = []
        self._over = np.zeros(worlds, bool)

    def __len__(self) -> int:
        return len(self._envs)

    def begin(self, which: Sequence[int], starts: Sequence[WorldStart]) -> None:
        for index, start in zip(which, starts, strict=True):
            assert start.task.name == "classic", "the package knows no other"
            if self._envs[index] is None:
                self._envs[index] = Reference(start.seed, self._length)
            else:
                self._envs[index]._seed, self._envs[index]._episode = start.seed, 0
                self._envs[index].reset()
            self._starts[index] = start
            self._rewards[index] = 0
            self._over[index] = False

    def observe(self) -> NDArray[np.uint8]:
        tokens = np.zeros((len(self), SPACE.tokens, 3), np.uint8)
        tokens[:, :_CELLS, 1] = np.arange(_CELLS)
        tokens[:, _CELLS:, 0] = 1 + len(SPACE.attributes) - 19 + np.arange(19)
        for row, env in zip(tokens, self._envs, strict=True):
            _look(env, row)
        return tokens

    def step(self, actions: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        rewards = np.zeros(len(self), np.float32)
        self._ended = []
        for index, env in enumerate(self._envs):
            if self._over[index]:
                continue
            _, reward, done, info = env.step(int(actions[index]))
            rewards[index] = reward
            self._rewards[index] += reward
            if done:
                self._over[index] = True
                start = self._starts[index]
                assert start is not None
                reached = tuple(info["achievements"][name] > 0 for name in ACHIEVEMENTS)
                total = float(self._rewards[index])
                self._ended.append(EndedEpisode(index, start, total, env._step, reached))
        return rewards

    def ended(self) -> list[EndedEpisode]:
        return self._ended

    def snapshot(self) -> list[bytes]:
        return []

    def restore(self, worlds: Sequence[bytes]) -> None:
        raise TypeError("the package cannot save its worlds")


def _look(env: Any, row: NDArray[np.uint8]) -> None:
    """Write what a player sees, by whole slices of the package's maps where that can be."""
    world, player = env._world, env._player
    left, top = player.pos[0] - _ACROSS // 2, player.pos[1] - _DOWN // 2
    seen = np.ones((_ACROSS, _DOWN), np.uint8)
    x0, y0 = max(0, left), max(0, top)
    x1, y1 = min(64, left + _ACROSS), min(64, top + _DOWN)
    inside = (slice(x0 - left, x1 - left), slice(y0 - top, y1 - top))
    seen[inside] = 1 + world._mat_map[x0:x1, y0:y1]
    things = world._obj_map[x0:x1, y0:y1]
    for x, y in np.argwhere(things):
        thing = world._objects[things[x, y]]
        name = _SEEN.get(type(thing))
        if isinstance(thing, objects.Arrow):
            name = _ARROWS[_DIRECTIONS.index(tuple(int(d) for d in thing.facing))]
        elif isinstance(thing, objects.Plant):
            seen[x0 - left + x, y0 - top + y] = _FIRST_SEEN + 7 + int(thing.ripe)
        if name is not None:
            seen[x0 - left + x, y0 - top + y] = _NAMES[name]
    row[:_CELLS, 0] = seen.reshape(-1)
    row[_CELLS : _CELLS + 16, 2] = list(player.inventory.values())
    row[-3, 2] = _DIRECTIONS.index(tuple(int(d) for d in player.facing))
    row[-2, 2] = player.sleeping
    row[-1, 2] = min(7, int(world.daylight * 8))
