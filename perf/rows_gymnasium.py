"""The vector environment of Gymnasium, and the decisions of the expert."""

import time
from functools import cache, partial
from typing import Any, Final

import crafter
import numpy as np

from assay.crafter import ACTIONS, World
from assay.crafter.gymnasium import CrafterVectorEnv
from assay.crafter.players.policies import make_policy

from .games import make_actions, make_seeds
from .measure import Row, Topic, size

__all__ = ["EXPERT", "GYMNASIUM"]

_ENVS: Final = size(256, 8)
_STEPS: Final = {"symbolic": 300, "pixels": 6}
_DECISIONS: Final = size(1_500, 60)


@cache
def _make_vector(observation: Any) -> CrafterVectorEnv:
    envs = CrafterVectorEnv(_ENVS, observation=observation)
    envs.reset(seed=0)
    return envs


def _step_our_vector(turn: int, *, observation: str) -> float:
    envs, steps = _make_vector(observation), _STEPS[observation]
    actions_S_N = np.random.default_rng(turn + 1).integers(0, len(ACTIONS), (steps, _ENVS))
    started = time.perf_counter()
    for actions in actions_S_N:
        envs.step(actions)
    return (time.perf_counter() - started) / (steps * _ENVS)


def _step_package_vector(turn: int) -> float:
    """The package as installed: pictures, and a reset whenever a game ends."""
    (seed,) = make_seeds(turn, 1)
    env = crafter.Env(seed=seed)
    env.reset()
    actions = make_actions(seed)[: size(400, 40)].tolist()
    started = time.perf_counter()
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    return (time.perf_counter() - started) / len(actions)


_PACKAGE: Final = "crafter.Env, drawing 64x64"

GYMNASIUM: Final = Topic(
    name="gymnasium",
    unit="step",
    sides={
        "symbolic": partial(_step_our_vector, observation="symbolic"),
        "package": _step_package_vector,
        "pixels": partial(_step_our_vector, observation="pixels"),
    },
    rows=(
        Row(
            name="vector-symbolic",
            what=f"vector env of {_ENVS}, symbolic",
            ours="symbolic",
            peer="package",
            against=_PACKAGE,
        ),
        Row(
            name="vector-pixels",
            what=f"vector env of {_ENVS}, pixels",
            ours="pixels",
            peer="package",
            against=_PACKAGE,
        ),
    ),
    notes=(
        "Wall time of a uniformly random policy, observations and resets included on both "
        "sides; ours on two threads.",
    ),
)


def _time_decisions(turn: int) -> float:
    """Time per decision of the expert alone, over the start of a few games."""
    seconds, count = 0.0, 0
    for seed in make_seeds(turn, 3):
        world, expert = World(seed), make_policy("expert", seed)
        while not world.done and world.steps < _DECISIONS // 3:
            view = world.view()
            started = time.process_time()
            action = expert.act(view)
            seconds += time.process_time() - started
            count += 1
            world.step(action)
    return seconds / count


def _time_package_steps(turn: int) -> float:
    (seed,) = make_seeds(turn, 1)
    env = crafter.Env(seed=seed)
    env.reset()
    started, count = time.process_time(), 0
    for action in make_actions(seed).tolist():
        count += 1
        if env.step(action)[2]:
            break
    return (time.process_time() - started) / count


EXPERT: Final = Topic(
    name="expert",
    unit="decision",
    sides={"decisions": _time_decisions, "package": _time_package_steps},
    rows=(
        Row(
            name="expert",
            what="a decision of the expert",
            ours="decisions",
            peer="package",
            against="a step of crafter.Env, drawing 64x64",
        ),
    ),
    notes=("CPU time; the first 500 steps of three games a round.",),
)
