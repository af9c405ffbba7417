"""Curricula: the tasks to train and evaluate on, and the choice among them during training.

Training worlds have seeds from 2^30 on. Evaluation worlds have seeds from 500,000,000 on, below
that, and are the same for every run of a curriculum. `assay run` counts from small seeds, so
its worlds are not used in training either.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.core.text import unknown_name
from assay.crafter.difficulty import DIFFICULTIES
from assay.errors import UsageError
from assay.training.environments import TrainingTask, WorldStart

_FIRST_TRAINING_SEED: Final = 2**30
_MAX_SEED: Final = 2**31 - 1
FIRST_HELD_OUT_SEED: Final = 500_000_000
"""Seed of the first evaluation world."""

_Settings = Mapping[str, float]

_RESOURCES: Final[Mapping[str, _Settings]] = {
    "rich": {
        "tree_chance": 0.3,
        "coal_chance": 0.25,
        "iron_chance": 0.4,
        "diamond_chance": 0.02,
        "cow_chance": 0.03,
        "cow_spawn_chance": 0.03,
    },
    "usual": {},
    "poor": {
        "tree_chance": 0.12,
        "coal_chance": 0.1,
        "iron_chance": 0.15,
        "diamond_chance": 0.003,
        "cow_chance": 0.008,
        "cow_spawn_chance": 0.005,
    },
    "barren": {
        "tree_chance": 0.06,
        "coal_chance": 0.05,
        "iron_chance": 0.08,
        "diamond_chance": 0.0015,
        "cow_chance": 0.004,
        "cow_spawn_chance": 0.0025,
    },
}
_HOSTILITY: Final[Mapping[str, _Settings]] = {
    "calm": {
        "lava_level": 0.5,
        "zombie_chance": 0.002,
        "zombie_spawn_chance": 0.1,
        "zombies_by_night": 2.5,
        "zombies_by_day": 0.0,
        "skeleton_chance": 0.02,
        "skeleton_spawn_chance": 0.05,
        "skeletons_at_most": 1.0,
    },
    "usual": {},
    "hostile": {
        "lava_level": 0.3,
        "zombie_chance": 0.014,
        "zombie_spawn_chance": 0.5,
        "zombies_by_night": 5.5,
        "zombies_by_day": 1.5,
        "skeleton_chance": 0.1,
        "skeleton_spawn_chance": 0.2,
        "skeletons_at_most": 4.0,
    },
    "grim": {
        "lava_level": 0.25,
        "zombie_chance": 0.028,
        "zombie_spawn_chance": 0.8,
        "zombies_by_night": 8.5,
        "zombies_by_day": 3.5,
        "skeleton_chance": 0.2,
        "skeleton_spawn_chance": 0.4,
        "skeletons_at_most": 6.0,
    },
}
_START_AREAS: Final[Mapping[str, _Settings]] = {
    "open": {"start_radius": 6.0, "zombie_clear_radius": 16.0, "zombie_spawn_distance": 8.0},
    "usual": {},
    "tight": {"start_radius": 3.0, "zombie_clear_radius": 6.0, "zombie_spawn_distance": 5.0},
}


def _combine_terrain(
    resources: str, hostility: str, start_areas: str
) -> tuple[TrainingTask, ...]:
    """Combine each of the named resources with each hostility and each start."""
    return tuple(
        TrainingTask(
            f"{resource}/{hostility_level}/{start}",
            {**_RESOURCES[resource], **_HOSTILITY[hostility_level], **_START_AREAS[start]},
        )
        for resource, hostility_level, start in product(
            resources.split(), hostility.split(), start_areas.split()
        )
    )


def _make_difficulty_task(difficulty: str) -> tuple[TrainingTask, ...]:
    return (TrainingTask(difficulty, asdict(DIFFICULTIES[difficulty])),)


_SIZES: Final = {"tiny": 0.0, "small": 1.0, "medium": 2.0, "large": 3.0}
_DENSITY: Final = {"bare": 0.0, "sparse": 1.0, "balanced": 2.0, "dense": 3.0}


def _combine_chains(
    chains: str, sinks: str, sizes: str, terrains: str
) -> tuple[TrainingTask, ...]:
    """Combine each chain length with each number of sinks, each room size and each terrain."""
    return tuple(
        TrainingTask(
            f"{chain} steps/{sink} sinks/{size}/{terrain}",
            {
                "chain": float(chain),
                "sinks": float(sink),
                "size": _SIZES[size],
                "density": _DENSITY[terrain],
            },
        )
        for chain, sink, size, terrain in product(
            chains.split(), sinks.split(), sizes.split(), terrains.split()
        )
    )


_ALL_TERRAINS: Final = "bare sparse balanced dense"

_CRAFTER: Final[Mapping[str, tuple[TrainingTask, ...]]] = {
    **{name: _make_difficulty_task(name) for name in DIFFICULTIES},
    "terrain_1": _combine_terrain("rich usual", "calm usual", "open usual"),
    "terrain_2": _combine_terrain("rich usual poor", "calm usual hostile", "open usual"),
    "terrain_3": _combine_terrain("rich usual poor", "calm usual hostile", "open usual tight"),
    "terrain_4": _combine_terrain(
        "rich usual poor barren", "calm usual hostile grim", "usual tight"
    ),
}
"""A difficulty name is a curriculum of one task."""

_METTAGRID: Final = {
    "terrain_1": _combine_chains("2 3", "0 1", "tiny small", _ALL_TERRAINS),
    "terrain_2": _combine_chains("2 3 4", "0 1 2", "tiny small", _ALL_TERRAINS),
    "terrain_3": _combine_chains("2 3 4 5", "0 1 2", "tiny small medium", _ALL_TERRAINS),
    "terrain_4": _combine_chains("2 3 4 5", "0 1 2", "small medium large", _ALL_TERRAINS),
}

CURRICULA: Final[Mapping[str, Mapping[str, tuple[TrainingTask, ...]]]] = {
    "crafter": _CRAFTER,
    "mettagrid": _METTAGRID,
}
"""Tasks of each curriculum, by environment and name."""


def find_curriculum(name: str, environment: str = "crafter") -> tuple[TrainingTask, ...]:
    """Return the tasks of a curriculum; unlisted environments use the ones of Crafter."""
    known = CURRICULA.get(environment, _CRAFTER)
    if name not in known:
        raise UsageError(f"{unknown_name('curriculum', name, known)} (in {environment})")
    return known[name]


def list_held_out_worlds(tasks: tuple[TrainingTask, ...], worlds: int) -> list[WorldStart]:
    """Return the evaluation worlds: tasks in rotation, each world with its own seed."""
    return [WorldStart(tasks[i % len(tasks)], FIRST_HELD_OUT_SEED + i) for i in range(worlds)]


_UNIFORM_SHARE: Final = 0.25
"""Share of draws that is uniform over all tasks."""
_BASE_WEIGHT: Final = 0.1
"""Weight of a task without progress; the task with the most progress has 1 more."""
_UPDATE_RATE: Final = 0.05
"""Update rate of the moving averages, per episode."""
_HALF_POINT: Final = 0.05
"""Success rate that is mapped to one half."""


@dataclass
class LearningProgress:
    """Sampler of training worlds that prefers tasks whose success rate changes, up or down.

    Bidirectional learning progress (Kanitscheider et al., 2021): the distance between a fast
    and a slow moving average of success, after a mapping that magnifies rare success. A quarter
    of the draws is uniform over all tasks. Departures from the paper: success is the share of
    goals reached instead of 0 or 1, and the averages move faster, because runs are shorter.
    """

    tasks: tuple[TrainingTask, ...]
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self._fast = np.zeros(len(self.tasks))
        self._slow = np.zeros(len(self.tasks))
        self._episode_counts = np.zeros(len(self.tasks), np.int64)
        self._index = {task.name: i for i, task in enumerate(self.tasks)}

    def draw(self, count: int) -> Iterator[WorldStart]:
        """Yield this number of worlds to train on."""
        probabilities = self.compute_probabilities()
        for _ in range(count):
            task = self.tasks[self.rng.choice(len(self.tasks), p=probabilities)]
            yield WorldStart(task, int(self.rng.integers(_FIRST_TRAINING_SEED, _MAX_SEED)))

    def update_averages(self, task: TrainingTask, success: float) -> None:
        """Update the averages of a task with the success of an episode, between 0 and 1."""
        index = self._index[task.name]
        if self._episode_counts[index] == 0:
            self._fast[index] = self._slow[index] = success
        self._episode_counts[index] += 1
        self._fast[index] += _UPDATE_RATE * (success - self._fast[index])
        self._slow[index] += _UPDATE_RATE * (self._fast[index] - self._slow[index])

    def compute_probabilities(self) -> NDArray[np.float64]:
        """Return the probability of each task."""
        progress = np.abs(
            self._magnify_rare_success(self._fast) - self._magnify_rare_success(self._slow)
        )
        largest = progress.max()
        weights = _BASE_WEIGHT + (progress / largest if largest > 0 else progress)
        weights[self._episode_counts == 0] = (
            1 + _BASE_WEIGHT
        )  # progress is unknown before the first episode
        return _UNIFORM_SHARE / len(weights) + (1 - _UNIFORM_SHARE) * weights / weights.sum()

    def _magnify_rare_success(self, success: NDArray[np.float64]) -> NDArray[np.float64]:
        rare = _HALF_POINT
        return success * (1 - rare) / (success + rare * (1 - 2 * success))

    def export_state(self) -> dict[str, Any]:
        """Return the state that determines the next draws, for JSON."""
        return {
            "fast": self._fast.tolist(),
            "slow": self._slow.tolist(),
            "seen": self._episode_counts.tolist(),
            "rng": self.rng.bit_generator.state,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `export_state`."""
        self._fast = np.array(state["fast"])
        self._slow = np.array(state["slow"])
        self._episode_counts = np.array(state["seen"], np.int64)
        self.rng.bit_generator.state = state["rng"]
