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

from .games import make_actions, make_seeds
from .measure import Row, Topic, size

__all__ = ["TOPIC"]

_WORLDS: Final = size(4, 1)
_STEPS: Final = 30
_OUR_CALLS: Final = size(200, 20)
_THEIR_CALLS: Final = 10


@lru_cache(maxsize=1)
def _make_worlds(turn: int) -> list[World]:
    worlds = [World(seed) for seed in make_seeds(turn, _WORLDS)]
    for world in worlds:
        for action in make_actions(world.seed)[:_STEPS].tolist():
            world.step(action)
    return worlds


@lru_cache(maxsize=1)
def _make_envs(turn: int) -> list[Any]:
    envs = [crafter.Env(seed=seed) for seed in make_seeds(turn, _WORLDS)]
    for env in envs:
        env.reset()
        for action in make_actions(env._seed)[:_STEPS].tolist():
            env.step(action)
    return envs


def _time_calls(call: Callable[[Any], Any], things: list[Any], calls: int) -> float:
    started = time.process_time()
    for thing in things:
        for _ in range(calls):
            call(thing)
    return (time.process_time() - started) / (calls * len(things))


def _time_our_call(turn: int, call: Callable[[Any], Any]) -> float:
    return _time_calls(call, list(_make_worlds(turn)), _OUR_CALLS)


def _time_their_call(turn: int, call: Callable[[Any], Any]) -> float:
    return _time_calls(call, _make_envs(turn), _THEIR_CALLS)


def _time_restore(turn: int) -> float:
    return _time_calls(
        World.restore, [world.snapshot() for world in _make_worlds(turn)], _OUR_CALLS
    )


def _time_unpickle(turn: int) -> float:
    return _time_calls(
        pickle.loads, [pickle.dumps(env) for env in _make_envs(turn)], _THEIR_CALLS
    )


def _hash_pickle(env: Any) -> str:
    return hashlib.blake2b(pickle.dumps(env)).hexdigest()


def _make_row(name: str, ours: str, peer: str, against: str) -> Row:
    return Row(name=name, what=ours, ours=ours, peer=peer, against=f"crafter, {against}")


TOPIC: Final = Topic(
    name="states",
    unit="call",
    sides={
        "snapshot()": partial(_time_our_call, call=World.snapshot),
        "pickle": partial(_time_their_call, call=pickle.dumps),
        "restore(data)": _time_restore,
        "unpickle": _time_unpickle,
        "digest()": partial(_time_our_call, call=World.digest),
        "pickle hash": partial(_time_their_call, call=_hash_pickle),
        "fork()": partial(_time_our_call, call=World.fork),
        "deepcopy": partial(_time_their_call, call=copy.deepcopy),
    },
    rows=(
        _make_row("snapshot", "snapshot()", "pickle", "pickle.dumps(env)"),
        _make_row("restore", "restore(data)", "unpickle", "pickle.loads(data)"),
        _make_row("digest", "digest()", "pickle hash", "blake2b(pickle.dumps(env))"),
        _make_row("fork", "fork()", "deepcopy", "copy.deepcopy(env)"),
    ),
    notes=(
        f"CPU time, worlds of {_STEPS} steps. The package has no such operations: pickle and "
        "deepcopy of the whole environment are what its users have. A pickle's hash is not a "
        "digest, for equal games can pickle differently; it is there for its cost.",
    ),
)
