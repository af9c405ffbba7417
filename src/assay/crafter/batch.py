"""Many worlds stepped by one call on several threads, for training and for search."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.crafter.difficulty import Difficulty, resolve_difficulty
from assay.crafter.engine import jit
from assay.crafter.engine.entries import renew_many, step_many
from assay.crafter.engine.layout import (
    BLOCK,
    BROKEN,
    EPISODE,
    FACING,
    INVENTORY,
    LENGTH,
    SEED,
    SLEEPING,
    STATUS,
    STEP,
    new_blocks,
    section,
)
from assay.crafter.engine.look import look_many
from assay.crafter.engine.noise import geometry_address
from assay.crafter.engine.numerics import MAX_LENGTH, daylights
from assay.crafter.rules import ACTIONS, ITEMS, VIEW, WORLD_LENGTH
from assay.crafter.world import World, check_int, write_parameters
from assay.errors import EpisodeOver, UsageError, WorldFull

_WORLDS_PER_THREAD = 32
"""Number of worlds whose stepping takes about as long as handing work to a thread."""


class BatchStep(NamedTuple):
    """Result of one step, with one entry per world."""

    rewards: NDArray[np.float64]
    """Like `StepResult.reward`; 0 for a world that had already ended."""
    done: NDArray[np.bool_]
    """Whether the episode has ended, in this step or earlier."""
    ended: NDArray[np.uint8]
    """0: running, 1: died, 2: length reached, 3: no room for more creatures and plants."""
    unlocked: NDArray[np.uint32]
    """Achievements unlocked for the first time: one bit each, in the order of ACHIEVEMENTS."""
    no_effect: NDArray[np.uint8]
    """Reason why the action had no effect: 1 + its index in NoEffect, or 0."""


class BatchView(NamedTuple):
    """What the players see, with one entry per world; see `View`."""

    materials: NDArray[np.uint8]
    """(N, 9, 7)"""
    objects: NDArray[np.uint8]
    """(N, 9, 7)"""
    details: NDArray[np.uint8]
    """(N, 9, 7)"""
    inventory: NDArray[np.uint8]
    """(N, 16), in the order of ITEMS."""
    facing: NDArray[np.uint8]
    """(N,): 0 left, 1 right, 2 up, 3 down."""
    sleeping: NDArray[np.bool_]
    daylight: NDArray[np.float64]


class Batch:
    """N worlds in one block of memory.

    With `auto_reset`, a world whose episode ends is replaced at once by the next episode of its
    seed, `World(seed, episode=e)`. Without it, a world that has ended does not change until
    `renew` or `begin` replaces it.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        difficulty: str | Difficulty | Mapping[str, Any] = "classic",
        length: int = WORLD_LENGTH,
        *,
        auto_reset: bool = False,
        threads: int | None = None,
    ) -> None:
        checked = [check_int("seed", seed, 0, 2**31 - 1) for seed in seeds]
        if not checked:
            raise UsageError("a batch requires at least one seed")
        length = check_int("length", length, 1, MAX_LENGTH)
        cores = os.cpu_count() or 1
        wanted = cores if threads is None else check_int("threads", threads, 1, 1024)
        self._difficulties = [resolve_difficulty(difficulty)] * len(checked)
        self._auto_reset = auto_reset
        self._threads = max(1, min(wanted, len(checked) // _WORLDS_PER_THREAD))
        self._pool = ThreadPoolExecutor(self._threads - 1) if self._threads > 1 else None
        jit.load()
        self._blocks = new_blocks(len(checked))
        self._address = self._blocks.ctypes.data
        write_parameters(self._blocks[0], self._difficulties[0])
        self._blocks[1:] = self._blocks[0]
        self._scalars = self._column("scalars")
        self._scalars[:, SEED] = checked
        self._scalars[:, LENGTH] = length
        self._renew(np.arange(len(checked)))
        self._raise_if_broken()

    def _raise_if_broken(self) -> None:
        if (self._scalars[:, STATUS] == BROKEN).any():
            raise WorldFull("a world has no room for its creatures; choose fewer of them")

    def _column(self, name: str) -> NDArray[Any]:
        """Return one section of all blocks as a view (N, section length)."""
        first = section(self._blocks[0], name)
        strides = (BLOCK, first.itemsize)
        shape = (len(self._blocks), len(first))
        return np.lib.stride_tricks.as_strided(first, shape, strides)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def steps(self) -> NDArray[np.int32]:
        """Number of steps made, per world."""
        return np.array(self._scalars[:, STEP])

    @property
    def episodes(self) -> NDArray[np.int32]:
        """For each world, the number of its episode among those with the same seed, from 1."""
        return np.array(self._scalars[:, EPISODE])

    def step(self, actions: ArrayLike) -> BatchStep:
        """Carry out one action per world; actions are indices into ACTIONS."""
        chosen = self._check_actions(actions)
        count = len(self)
        if (self._scalars[:, STATUS] != 0).all():
            raise EpisodeOver("all worlds of the batch have ended; make a new Batch")
        rewards = np.empty(count, np.float64)
        outcomes = np.empty((count, 3), np.uint8)
        unlocked = np.empty(count, np.uint32)
        addresses = [array.ctypes.data for array in (chosen, rewards, outcomes, unlocked)]
        self._split(count, lambda a, b: step_many(self._address, a, b, *addresses))
        ended = outcomes[:, 1].copy()
        if self._auto_reset and ended.any():
            self._renew(np.flatnonzero(ended))
        return BatchStep(rewards, ended != 0, ended, unlocked, outcomes[:, 2].copy())

    def _check_actions(self, actions: ArrayLike) -> NDArray[np.uint8]:
        given = np.asarray(actions)
        if given.shape != (len(self),) or given.dtype.kind not in "iu":
            raise UsageError(
                f"actions of shape {given.shape} and type {given.dtype} are not allowed; "
                f"give {len(self)} integers, one per world"
            )
        if given.min() < 0 or given.max() >= len(ACTIONS):
            wrong = given[(given < 0) | (given >= len(ACTIONS))][0]
            raise UsageError(f"unknown action {wrong}; give 0 to {len(ACTIONS) - 1}")
        return np.ascontiguousarray(given, np.uint8)

    def renew(self, which: ArrayLike) -> None:
        """Replace the worlds at these indices with the next episodes of their seeds."""
        chosen = np.unique(np.asarray(which, np.int64))
        if chosen.size:
            check_int("world", chosen[0], 0, len(self) - 1)
            check_int("world", chosen[-1], 0, len(self) - 1)
            self._renew(chosen)

    def begin(
        self, which: Sequence[int], seeds: Sequence[int], difficulties: Sequence[Difficulty]
    ) -> None:
        """Replace the worlds at these indices with the first episodes of other seeds.

        Args:
            which: Indices of worlds, without duplicates.
            seeds: One seed per index.
            difficulties: One difficulty per index.
        """
        for index, seed, difficulty in zip(which, seeds, difficulties, strict=True):
            index = check_int("world", index, 0, len(self) - 1)
            self._scalars[index, SEED] = check_int("seed", seed, 0, 2**31 - 1)
            self._scalars[index, EPISODE] = 0
            self._difficulties[index] = difficulty
            write_parameters(self._blocks[index], difficulty)
        self._renew(np.asarray(which, np.int64))
        self._raise_if_broken()

    def put(self, index: int, world: World) -> None:
        """Replace a world with a copy of another one."""
        index = check_int("world", index, 0, len(self) - 1)
        self._difficulties[index] = world.difficulty
        self._blocks[index] = world._block

    def _renew(self, which: NDArray[np.int64]) -> None:
        addresses = (which.ctypes.data, geometry_address())
        self._split(
            len(which),
            lambda a, b: renew_many(self._address, addresses[0], a, b, addresses[1]),
            per_thread=1,
        )

    def _split(
        self, count: int, work: Callable[[int, int], Any], per_thread: int = _WORLDS_PER_THREAD
    ) -> None:
        """Call work(first, last) on parts of [0, count), split among the threads."""
        parts = max(1, min(self._threads, count // per_thread))
        if self._pool is None or parts == 1:
            work(0, count)
            return
        edges = [count * i // parts for i in range(parts + 1)]
        own_part, *other_parts = pairwise(edges)
        futures = [self._pool.submit(work, *part) for part in other_parts]
        work(*own_part)
        for future in futures:
            future.result()

    def view(self) -> BatchView:
        """Return what the players see."""
        count = len(self)
        seen = np.empty((3, count, *VIEW), np.uint8)
        self._split(count, lambda a, b: look_many(self._address, a, b, count, seen.ctypes.data))
        inventory = self._scalars[:, INVENTORY : INVENTORY + len(ITEMS)]
        materials, objects, details = seen
        return BatchView(
            materials=materials,
            objects=objects,
            details=details,
            inventory=inventory.astype(np.uint8),
            facing=self._scalars[:, FACING].astype(np.uint8),
            sleeping=self._scalars[:, SLEEPING].astype(bool),
            daylight=daylights(self._scalars[:, STEP]),
        )

    def world(self, index: int) -> World:
        """Return an independent copy of one world."""
        index = check_int("world", index, 0, len(self) - 1)
        return World._from_block(self._blocks[index], self._difficulties[index])

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Batch cannot be copied or pickled; take its worlds: batch.world(i)")

    def close(self) -> None:
        """Shut down the threads."""
        if self._pool is not None:
            self._pool.shutdown()
