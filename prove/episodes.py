"""Episodes of a policy, played in several processes, each summed up in one record."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from assay.crafter import ACHIEVEMENTS, World, warmup
from assay.crafter.players.policies import make_policy
from assay.crafter.view import cause_of_death


class PlayedEpisode(NamedTuple):
    """One episode."""

    seed: int
    unlocked: dict[str, int]
    """The achievements, each with the step it came at."""
    steps: int
    ended: str
    """`all unlocked`, `length`, or what took the last health."""
    seconds: float
    """Of CPU time, spent in the policy alone."""


def play_many(
    policy: str, seeds: Sequence[int], max_steps: int, processes: int
) -> Iterator[PlayedEpisode]:
    """Play one episode per seed, and yield them as they are finished."""
    warmup()  # once, so that not every process compiles
    play = partial(play_one, policy, max_steps=max_steps)
    if processes == 1:
        yield from map(play, seeds)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(play, seeds, chunksize=4)


def play_one(policy: str, seed: int, max_steps: int) -> PlayedEpisode:
    """Play an episode to its end, or until there is nothing left to unlock."""
    world, player = World(seed, length=max_steps), make_policy(policy, seed)
    unlocked: dict[str, int] = {}
    seconds, before = 0.0, world.inventory
    while not world.done and len(unlocked) < len(ACHIEVEMENTS):
        view = world.view()
        started = time.thread_time()
        action = player.act(view)
        seconds += time.thread_time() - started
        result = world.step(action)
        unlocked.update(dict.fromkeys(result.unlocked, world.steps))
        before = view.inventory
    if len(unlocked) == len(ACHIEVEMENTS):
        ended = "all unlocked"
    else:
        ended = cause_of_death(world.view(), before) if world.ended == "died" else "length"
    return PlayedEpisode(seed, unlocked, world.steps, ended, seconds)
