"""What looking at a world costs: its digest, its maps, its picture."""

import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final

from assay.crafter import World

from .games import make_actions, make_seeds
from .measure import Agreement, Row, Topic, size
from .reference import Headless, draw

__all__ = ["TOPIC"]

_WORLDS: Final = size(12, 1)
_CALLS: Final = 100
_PAINTED: Final = size(4, 1)
_DAY: Final = range(30, 50)
_NIGHT: Final = range(200, 220)
"""The darkest hour is at step 210."""

_pictures = Agreement()


def _make_worlds(turn: int) -> list[World]:
    """Worlds in the middle of their first day."""
    worlds = [World(seed) for seed in make_seeds(turn, _WORLDS)]
    for world in worlds:
        for action in make_actions(world.seed)[: _DAY.start].tolist():
            world.step(action)
    return worlds


def _time_step(turn: int) -> float:
    seconds, steps = 0.0, 0
    for world in _make_worlds(turn):
        actions = make_actions(world.seed)[_DAY.start :].tolist()
        step, before = world.step, world.steps
        started = time.process_time()
        for action in actions:
            if step(action).done:
                break
        seconds += time.process_time() - started
        steps += world.steps - before
    return seconds / steps


def _time_call(turn: int, look: Callable[[World], Any]) -> float:
    worlds = _make_worlds(turn)
    started = time.process_time()
    for world in worlds:
        for _ in range(_CALLS):
            look(world)
    return (time.process_time() - started) / (_CALLS * len(worlds))


@lru_cache(maxsize=32)
def _choose_surviving_seeds(turn: int) -> tuple[int, ...]:
    """Return seeds whose players survive until night."""
    return tuple(islice(_find_surviving_seeds(turn), _PAINTED))


def _find_surviving_seeds(turn: int) -> Iterator[int]:
    for seed in make_seeds(turn, 200):
        world = World(seed)
        actions = iter(make_actions(seed).tolist())
        while not world.done and world.steps < _NIGHT.stop:
            world.step(next(actions))
        if not world.done:
            yield seed


def _time_our_drawing(turn: int, steps: range) -> float:
    seconds = 0.0
    for seed in _choose_surviving_seeds(turn):
        world = World(seed)
        for action in make_actions(seed)[: steps.stop].tolist():
            world.step(action)
            if world.steps > steps.start:
                started = time.process_time()
                picture = world.render(64)
                seconds += time.process_time() - started
                if steps is _DAY:
                    _pictures.check((seed, world.steps), picture)
    return seconds / (len(steps) * _PAINTED)


def _time_their_drawing(turn: int, steps: range) -> float:
    seconds = 0.0
    for seed in _choose_surviving_seeds(turn):
        env = Headless(seed)
        env.reset()
        for action in make_actions(seed)[: steps.stop].tolist():
            env.step(action)
            if env._step > steps.start:
                # Drawing at night draws from the game's generator, too.
                generator = env._world.random.get_state()
                started = time.process_time()
                picture = draw(env)
                seconds += time.process_time() - started
                env._world.random.set_state(generator)
                if steps is _DAY:
                    _pictures.check((seed, env._step), picture)
    return seconds / (len(steps) * _PAINTED)


def _make_cost_row(name: str, what: str, side: str) -> Row:
    return Row(name=name, what=what, ours=side, peer="step", against="World.step", cost="steps")


TOPIC: Final = Topic(
    name="looks",
    unit="call",
    sides={
        "step": _time_step,
        "digest": partial(_time_call, look=World.digest),
        "semantic": partial(_time_call, look=World.semantic),
        "view": partial(_time_call, look=World.view),
        "our day": partial(_time_our_drawing, steps=_DAY),
        "their day": partial(_time_their_drawing, steps=_DAY),
        "our night": partial(_time_our_drawing, steps=_NIGHT),
        "their night": partial(_time_their_drawing, steps=_NIGHT),
    },
    rows=(
        _make_cost_row("digest-cost", "digest() on top of a step", "digest"),
        _make_cost_row("semantic-cost", "semantic() on top of a step", "semantic"),
        _make_cost_row("view-cost", "view() on top of a step", "view"),
        _make_cost_row("render-cost", "render(64) on top of a step", "our day"),
        Row(
            name="frame-day",
            what="render(64) by day",
            ours="our day",
            peer="their day",
            against="crafter, render()",
            target=1,
        ),
        Row(
            name="frame-night",
            what="render(64) by night",
            ours="our night",
            peer="their night",
            against="crafter, render()",
            target=1,
        ),
    ),
    notes=(
        "CPU time. The first four compare ours with ours: how many World.step calls a look "
        "costs. Frames are drawn after each of 20 steps of the same games on both sides; "
        "by day the pictures are compared pixel by pixel.",
    ),
)
