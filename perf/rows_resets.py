"""Making worlds: one at a time, several at once, and from a pool of worlds made ahead."""

import time
from typing import Final

from assay.crafter import Batch, World

from .games import make_seeds
from .measure import Agreement, Row, Topic, size
from .processes import run_peer_script
from .reference import Headless

__all__ = ["TOPIC"]

_OURS: Final = size(32, 2)
_THEIRS: Final = size(4, 1)
_AT_ONCE: Final = size(64, 4)

_maps = Agreement()


def _time_reset(turn: int) -> float:
    seeds = make_seeds(turn, _OURS)
    started = time.process_time()
    worlds = [World(seed) for seed in seeds]
    seconds = time.process_time() - started
    for world in worlds[:_THEIRS]:
        _maps.check(world.seed, world.semantic())
    return seconds / len(seeds)


def _time_package_with_numba(turn: int) -> float:
    envs = [Headless(seed) for seed in make_seeds(turn, _OURS)[:_THEIRS]]
    started = time.process_time()
    for env in envs:
        env.reset()
    seconds = time.process_time() - started
    for env in envs:
        _maps.check(env._seed, env._sem_view())
    return seconds / len(envs)


def _time_package_without_numba(turn: int) -> float:
    seed = make_seeds(turn, _OURS)[0]
    return run_peer_script("crafter_reset.py", str(seed), timeout=120)


def _time_sequential_resets(turn: int) -> float:
    seeds = make_seeds(turn, _AT_ONCE)
    started = time.perf_counter()
    for seed in seeds:
        World(seed)
    return (time.perf_counter() - started) / len(seeds)


def _time_batch_reset(turn: int) -> float:
    seeds = list(make_seeds(turn, _AT_ONCE))
    started = time.perf_counter()
    batch = Batch(seeds, threads=2)
    seconds = time.perf_counter() - started
    batch.close()
    return seconds / len(seeds)


def _time_forks(turn: int) -> float:
    pool = [World(seed) for seed in make_seeds(turn, _OURS)]
    started = time.process_time()
    for world in pool:
        world.fork()
    return (time.process_time() - started) / len(pool)


TOPIC: Final = Topic(
    name="resets",
    unit="reset",
    sides={
        "world": _time_reset,
        "with numba": _time_package_with_numba,
        "pool": _time_forks,
        "without numba": _time_package_without_numba,
        "one by one": _time_sequential_resets,
        "at once": _time_batch_reset,
    },
    rows=(
        Row(
            name="reset",
            what="World(seed)",
            ours="world",
            peer="with numba",
            against="crafter, reset(), numba installed",
            target=25,
        ),
        Row(
            name="reset-no-numba",
            what="World(seed)",
            ours="world",
            peer="without numba",
            against="crafter, reset(), no numba",
        ),
        Row(
            name="reset-batch",
            what=f"Batch of {_AT_ONCE} worlds, 2 threads",
            ours="at once",
            peer="one by one",
            against="World(seed), one by one",
        ),
        Row(
            name="reset-pool",
            what="fork of a world made ahead",
            ours="pool",
            peer="world",
            against="World(seed)",
        ),
    ),
    notes=(
        "CPU time of the same worlds, whose maps are compared; the package draws nothing "
        "and its constructor is not counted, ours is. Without numba: a fresh process each "
        "round, in which numba cannot be imported. The batch and its peer: wall time.",
    ),
)
