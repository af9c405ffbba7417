"""Saving, restoring, hashing and copying a world."""

import copy
import hashlib
import pickle
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import crafter

from assay.crafter import World

from .games import actions_of, seeds_of
from .measure import Row, Topic, size

__all__ = ["TOPIC"]

_WORLDS: Final = size(4, 1)
_STEPS: Final = 30
_OUR_CALLS: Final = size(200, 20)
_THEIR_CALLS: Final = 10


@lru_cache(maxsize=1)
def _worlds(turn: int) -> list[World]:
    worlds = [World(seed) for seed in seeds_of(turn, _WORLDS)]
    for world in worlds:
        for action in actions_of(world.seed)[:_STEPS].tolist():
            world.step(action)
    return worlds


@lru_cache(maxsize=1)
def _envs(turn: int) -> list[Any]:
    envs = [crafter.Env(seed=seed) for seed in seeds_of(turn, _WORLDS)]
    for env in envs:
        env.reset()
        for action in actions_of(env._seed)[:_STEPS].tolist():
            env.step(action)
    return envs


def _timed(call: Callable[[Any], Any], things: list[Any], calls: int) -> float:
    started = time.process_time()
    for thing in things:
        for _ in range(calls):
            call(thing)
    return (time.process_time() - started) / (calls * len(things))


def _ours(turn: int, call: Callable[[Any], Any]) -> float:
    return _timed(call, list(_worlds(turn)), _OUR_CALLS)


def _theirs(turn: int, call: Callable[[Any], Any]) -> float:
    return _timed(call, _envs(turn), _THEIR_CALLS)


def _restore(turn: int) -> float:
    return _timed(World.restore, [world.snapshot() for world in _worlds(turn)], _OUR_CALLS)


def _unpickle(turn: int) -> float:
    return _timed(pickle.loads, [pickle.dumps(env) for env in _envs(turn)], _THEIR_CALLS)


def _pickle_hash(env: Any) -> str:
    return hashlib.blake2b(pickle.dumps(env)).hexdigest()


def _row(name: str, ours: str, peer: str, against: str) -> Row:
    return Row(name=name, what=ours, ours=ours, peer=peer, against=f"crafter, {against}")


TOPIC: Final = Topic(
    name="states",
    unit="call",
    sides={
        "snapshot()": partial(_ours, call=World.snapshot),
        "pickle": partial(_theirs, call=pickle.dumps),
        "restore(data)": _restore,
        "unpickle": _unpickle,
        "digest()": partial(_ours, call=World.digest),
        "pickle hash": partial(_theirs, call=_pickle_hash),
        "fork()": partial(_ours, call=World.fork),
        "deepcopy": partial(_theirs, call=copy.deepcopy),
    },
    rows=(
        _row("snapshot", "snapshot()", "pickle", "pickle.dumps(env)"),
        _row("restore", "restore(data)", "unpickle", "pickle.loads(data)"),
        _row("digest", "digest()", "pickle hash", "blake2b(pickle.dumps(env))"),
        _row("fork", "fork()", "deepcopy", "copy.deepcopy(env)"),
    ),
    notes=(
        f"CPU time, worlds of {_STEPS} steps. The package has no such operations: pickle and "
        "deepcopy of the whole environment are what its users have. A pickle's hash is no "
        "digest, for equal games can pickle differently; it is there for its cost.",
    ),
)
