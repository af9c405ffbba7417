"""Crafter as a Gymnasium environment, registered as `assay/Crafter-v1`.

    gymnasium.make("assay.crafter.gymnasium:assay/Crafter-v1")

The part before the colon names the module that registers the id; Gymnasium 1.0 and later do not
search for it. After that module is imported, the id alone is enough. `reset(seed=s)` starts
episode 1 of a seed, and `reset()` starts the next episode, as `World(s, episode=e)` numbers
them. Worlds have 2^31 seeds; a larger seed `s` gives the world of `s % 2**31`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from assay.crafter.batch import Batch, BatchStep
from assay.crafter.difficulty import Difficulty, resolve_difficulty
from assay.crafter.rules import (
    ACHIEVEMENTS,
    ACTIONS,
    ITEMS,
    MATERIALS,
    MAX_ITEM,
    OBJECTS,
    VIEW,
    WORLD_LENGTH,
    NoEffect,
)
from assay.crafter.world import World
from assay.errors import UsageError

Observation = Any
"""A dict of arrays, or an image (height, width, 3)."""
ObservationKind = Literal["symbolic", "pixels"]

_OBSERVATIONS: Final = ("symbolic", "pixels")
_SEEDS: Final = 2**31
"""Number of world seeds."""
_REASONS: Final = np.array([None, *NoEffect], dtype=object)
"""Reasons by their code in a `BatchStep`."""


def _world_seed(seed: int) -> int:
    """Map any seed to a world seed; a negative seed is kept, so that World rejects it."""
    return seed % _SEEDS if seed >= _SEEDS else seed


def _observation_space(observation: str, size: int) -> spaces.Space[Any]:
    if observation not in _OBSERVATIONS:
        choices = ", ".join(_OBSERVATIONS)
        raise UsageError(f"unknown observation {observation!r}; choose from: {choices}")
    if observation == "pixels":
        return spaces.Box(0, 255, (size, size, 3), np.uint8)
    cells = len(MATERIALS) + len(OBJECTS) - 1
    return spaces.Dict(
        {
            "materials": spaces.Box(0, len(MATERIALS) - 1, VIEW, np.uint8),
            "objects": spaces.Box(0, cells, VIEW, np.uint8),
            "details": spaces.Box(0, 4, VIEW, np.uint8),
            "inventory": spaces.Box(0, MAX_ITEM, (len(ITEMS),), np.uint8),
            "sleeping": spaces.Box(0, 1, (1,), np.uint8),
            "daylight": spaces.Box(0, 1, (1,), np.float32),
        }
    )


class CrafterEnv(gymnasium.Env[Observation, Any]):
    """One world. `terminated`: the player died; `truncated`: the world reached its length."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        difficulty: str | Difficulty | Mapping[str, Any] = "classic",
        length: int = WORLD_LENGTH,
        observation: ObservationKind = "symbolic",
        size: int = 64,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = _observation_space(observation, size)
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.render_mode = render_mode
        self._difficulty = resolve_difficulty(difficulty)
        self._length = length
        self._pixels = observation == "pixels"
        self._size = size
        self._world: World | None = None

    @property
    def world(self) -> World:
        """The current world."""
        if self._world is None:
            raise gymnasium.error.ResetNeeded("call reset() before anything else")
        return self._world

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start episode 1 of a seed, or the next episode of the current seed."""
        super().reset(seed=seed)
        if seed is None and self._world is not None:
            number, episode = self._world.seed, self._world.episode + 1
        else:
            drawn = int(self.np_random.integers(_SEEDS)) if seed is None else seed
            number, episode = _world_seed(drawn), 1
        self._world = World(number, self._difficulty, self._length, episode=episode)
        return self._observe(), {"seed": number, "episode": episode}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out an action; the info has `unlocked` and `no_effect` of `StepResult`."""
        result = self.world.step(action)
        info = {"unlocked": result.unlocked, "no_effect": result.no_effect}
        died, timed_out = result.ended == "died", result.ended == "length"
        return self._observe(), result.reward, died, timed_out, info

    def render(self) -> Any:
        """Return an image of the player's view if `render_mode` is `rgb_array`."""
        return self.world.render(self._size) if self.render_mode == "rgb_array" else None

    def _observe(self) -> Observation:
        if self._pixels:
            return self.world.render(self._size)
        view = self.world.view()
        return {
            "materials": view.materials,
            "objects": view.objects,
            "details": view.details,
            "inventory": np.array(list(view.inventory.values()), np.uint8),
            "sleeping": np.array([view.sleeping], np.uint8),
            "daylight": np.array([view.daylight], np.float32),
        }


class CrafterVectorEnv(VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """Many worlds stepped together by the compiled engine.

    A world that has ended is replaced in the next step, like in Gymnasium's own vector
    environments by default; its action in that step is ignored. Infos follow Gymnasium's
    convention: each name has one entry per world, and `_name` marks the worlds that have one.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": 10,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        difficulty: str | Difficulty | Mapping[str, Any] = "classic",
        length: int = WORLD_LENGTH,
        observation: ObservationKind = "symbolic",
        size: int = 64,
        render_mode: str | None = None,
        threads: int | None = None,
    ) -> None:
        if num_envs < 1:
            raise UsageError(f"num_envs {num_envs!r} is not allowed; give a number from 1")
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = _observation_space(observation, size)
        self.single_action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._difficulty = resolve_difficulty(difficulty)
        self._length = length
        self._threads = threads
        self._pixels = observation == "pixels"
        self._size = size
        self._batch: Batch | None = None
        self._ended = np.zeros(num_envs, bool)
        self._numbers = np.zeros(num_envs, int)
        self._unlocked = np.empty(num_envs, object)
        for place in range(num_envs):
            self._unlocked[place] = ()

    @property
    def batch(self) -> Batch:
        """The current worlds."""
        if self._batch is None:
            raise gymnasium.error.ResetNeeded("call reset() before anything else")
        return self._batch

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start episode 1 of `seed`, `seed` + 1, ..., or the next episode of each world."""
        if seed is None and self._batch is not None:
            self._batch.renew(np.arange(self.num_envs))
        else:
            seeds = self._world_seeds(seed)
            self._batch = Batch(seeds, self._difficulty, self._length, threads=self._threads)
            self._numbers = np.array(seeds)
        self._ended[:] = False
        return self._observe(), self._reset_infos(np.ones(self.num_envs, bool))

    def _world_seeds(self, seed: int | Sequence[int | None] | None) -> list[int]:
        super().reset(seed=seed if isinstance(seed, int) else None)
        if seed is None:
            return [int(n) for n in self.np_random.integers(_SEEDS, size=self.num_envs)]
        if isinstance(seed, int):
            return [_world_seed(seed + i) for i in range(self.num_envs)]
        if len(seed) != self.num_envs or None in seed:
            raise UsageError(f"give {self.num_envs} seeds, one per world, or one int")
        return [_world_seed(int(number)) for number in seed if number is not None]

    def _reset_infos(self, started: NDArray[np.bool_]) -> dict[str, Any]:
        """Return the infos of a reset for the worlds marked in `started`."""
        return {
            "seed": np.where(started, self._numbers, 0),
            "_seed": started,
            "episode": np.where(started, self.batch.episodes, 0),
            "_episode": started.copy(),
        }

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Carry out one action per world; restart the worlds that ended in the last step."""
        started = self._ended
        fresh = np.flatnonzero(started)
        result = self._step_batch(actions, fresh)
        died, timed_out = result.ended == 1, result.ended == 2
        for array in (result.rewards, died, timed_out, result.unlocked, result.no_effect):
            array[fresh] = 0
        self._ended = died | timed_out
        infos = self._step_infos(result, started, fresh)
        return self._observe(), result.rewards, died, timed_out, infos

    def _step_infos(
        self, result: BatchStep, started: NDArray[np.bool_], fresh: NDArray[np.int64]
    ) -> dict[str, Any]:
        """Return the infos of a step, by name."""
        infos = self._reset_infos(started) if len(fresh) else {}
        if len(fresh) == self.num_envs:
            return infos
        unlocked = self._unlocked.copy()
        for place in np.flatnonzero(result.unlocked):
            bits = int(result.unlocked[place])
            unlocked[place] = tuple(
                name for bit, name in enumerate(ACHIEVEMENTS) if bits >> bit & 1
            )
        unlocked[fresh] = None
        return infos | {
            "unlocked": unlocked,
            "_unlocked": ~started,
            "no_effect": _REASONS[result.no_effect],
            "_no_effect": ~started,
        }

    def _step_batch(self, actions: ArrayLike, fresh: NDArray[np.int64]) -> BatchStep:
        # Ended worlds do not change in a step. If all have ended, no step is possible.
        if len(fresh) == self.num_envs:
            nothing = np.zeros(self.num_envs)
            self.batch.renew(fresh)
            return BatchStep(
                nothing,
                nothing.astype(bool),
                nothing.astype(np.uint8),
                nothing.astype(np.uint32),
                nothing.astype(np.uint8),
            )
        result = self.batch.step(actions)
        self.batch.renew(fresh)
        return result

    def render(self) -> tuple[Any, ...] | None:
        """Return an image per world if `render_mode` is `rgb_array`, else None."""
        return tuple(self._render_worlds()) if self.render_mode == "rgb_array" else None

    def _render_worlds(self) -> list[NDArray[np.uint8]]:
        batch = self.batch
        return [batch.world(i).render(self._size) for i in range(self.num_envs)]

    def _observe(self) -> Observation:
        if self._pixels:
            return np.stack(self._render_worlds())
        view = self.batch.view()
        return {
            "materials": view.materials,
            "objects": view.objects,
            "details": view.details,
            "inventory": view.inventory,
            "sleeping": view.sleeping.astype(np.uint8)[:, None],
            "daylight": view.daylight.astype(np.float32)[:, None],
        }

    def close_extras(self, **kwargs: Any) -> None:
        """Shut down the threads."""
        if self._batch is not None:
            self._batch.close()


gymnasium.register(
    id="assay/Crafter-v1",
    entry_point=f"{__name__}:CrafterEnv",
    vector_entry_point=f"{__name__}:CrafterVectorEnv",
)
