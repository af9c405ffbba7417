"""Steps of one world, in a compiled loop and called from Python one at a time."""

import time
from functools import cache, partial
from typing import Any, Final

import crafter

from assay.crafter import World

from .compiled_loop import play
from .games import make_actions, make_seeds
from .measure import Agreement, Row, Topic, size
from .reference import Headless

__all__ = ["TOPIC"]

_WORLDS: Final = size(8, 1)
_REPEATS: Final = size(8, 1)
"""How often we play the games of a round: once is over too soon to measure well."""
_OTHERS: Final = size(48, 2)
"""Other games before each repeat, lest the CPU's branch predictor learn those that count."""

_endings = Agreement()


def _check_world(world: World) -> None:
    _endings.check(world.seed, [world.steps, *world.player_pos, *world.inventory.values()])


@cache
def _make_other_worlds() -> list[World]:
    return [World(seed) for seed in range(_OTHERS)]


def _copy_fresh_worlds(worlds: list[World]) -> list[World]:
    """Copies of worlds to play, after other games."""
    for world in _make_other_worlds():
        _play_compiled(world.fork())
    return [world.fork() for world in worlds]


def _play_compiled(world: World) -> int:
    """Play a world to its end in compiled code; how many steps it made."""
    # Compiled code takes addresses, of a world's block and of an array. That both have a
    # name here keeps their memory until it returns.
    actions = make_actions(world.seed)
    return play(world._address, actions.ctypes.data, len(actions))


def _time_compiled_loop(turn: int) -> float:
    worlds = [World(seed) for seed in make_seeds(turn, _WORLDS)]
    seconds, steps = 0.0, 0
    for _ in range(_REPEATS):
        games = _copy_fresh_worlds(worlds)
        started = time.process_time()
        for world in games:
            steps += _play_compiled(world)
        seconds += time.process_time() - started
        for world in games:
            _check_world(world)
    return seconds / steps


def _time_python_calls(turn: int) -> float:
    worlds = [World(seed) for seed in make_seeds(turn, _WORLDS)]
    seconds, steps = 0.0, 0
    for _ in range(_REPEATS):
        games = [
            (world, make_actions(world.seed).tolist()) for world in _copy_fresh_worlds(worlds)
        ]
        started = time.process_time()
        for world, actions in games:
            step = world.step
            for action in actions:
                if step(action).done:
                    break
        seconds += time.process_time() - started
        for world, _ in games:
            steps += world.steps
            _check_world(world)
    return seconds / steps


def _play_reference(env: Any, actions: list[int]) -> float:
    step = env.step
    started = time.process_time()
    for action in actions:
        if step(action)[2]:
            break
    return time.process_time() - started


def _time_reference(turn: int, *, drawn: bool) -> float:
    seconds, steps = 0.0, 0
    for seed in make_seeds(turn, _WORLDS):
        env = crafter.Env(seed=seed) if drawn else Headless(seed)
        env.reset()
        seconds += _play_reference(env, make_actions(seed).tolist())
        steps += env._step
        if not drawn:
            player = env._player
            _endings.check(seed, [env._step, *player.pos, *player.inventory.values()])
    return seconds / steps


_HEADLESS: Final = "crafter, drawing off"
_DRAWN: Final = "crafter, drawing 64x64"

TOPIC: Final = Topic(
    name="steps",
    unit="step",
    sides={
        "compiled loop": _time_compiled_loop,
        "headless": partial(_time_reference, drawn=False),
        "python calls": _time_python_calls,
        "drawn": partial(_time_reference, drawn=True),
    },
    rows=(
        Row(
            name="loop",
            what="steps in a compiled loop",
            ours="compiled loop",
            peer="headless",
            against=_HEADLESS,
            target=600,
        ),
        Row(
            name="loop-drawn",
            what="steps in a compiled loop",
            ours="compiled loop",
            peer="drawn",
            against=_DRAWN,
            target=2500,
        ),
        Row(
            name="step",
            what="World.step from Python",
            ours="python calls",
            peer="headless",
            against=_HEADLESS,
            target=150,
        ),
        Row(
            name="step-drawn",
            what="World.step from Python",
            ours="python calls",
            peer="drawn",
            against=_DRAWN,
            target=600,
        ),
    ),
    notes=(
        f"CPU time of one core; {_WORLDS} worlds a round, one at a time, the same seeds and "
        "uniformly random actions on both sides, played to their ends; resets excluded. Ours "
        "makes no digest, map or picture; the package makes its info, a map included, at "
        "every step and cannot be asked not to.",
        "'drawing off' is the package with its chunk sets in order and its drawing left out: "
        "its games are then step for step ours, and the ends of all games are compared. "
        "'drawing 64x64' is the package as installed, whose games go their own way.",
    ),
)
