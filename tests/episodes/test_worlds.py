"""Crafter worlds: the same steps, views and ends in this process and in a service."""

import asyncio
import random
from dataclasses import asdict, replace
from typing import Any

import pytest

from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.rules import ACTIONS
from assay.crafter.service.client import LocalClient
from assay.episodes.worlds import CrafterWorld, EpisodeWorld, ServiceWorld
from assay.errors import InvalidField

TURNS, AT_ONCE = 400, 3


def played(world: EpisodeWorld, seed: int) -> list[Any]:
    """Play random turns to the end of a world; return its views."""
    draw = random.Random(seed)

    async def play() -> list[Any]:
        view, inventory = await world.begin()
        shown: list[Any] = [seen(view), inventory]
        made = 0
        for _ in range(TURNS):
            stepped = await world.step(draw.choices(ACTIONS, k=AT_ONCE), made)
            made += len(stepped.steps)
            shown += [stepped.steps, seen(stepped.view), stepped.ended, [*stepped.inventories]]
            if stepped.ended:
                break
        await world.close()
        return shown

    return asyncio.run(play())


def seen(view: Any) -> dict[str, Any]:
    arrays = {name: getattr(view, name).tolist() for name in ("materials", "objects")}
    return {**asdict(view), **arrays, "details": view.details.tolist()}


@pytest.mark.parametrize("name", ["easy", "hard"])
@pytest.mark.parametrize("seed", range(3))
def test_world_is_the_same_in_this_process_and_in_a_service(seed: int, name: str) -> None:
    difficulty = DIFFICULTIES[name]
    here = played(CrafterWorld(seed, difficulty), seed)
    there = played(ServiceWorld(LocalClient(), seed, difficulty), seed)
    assert here == there
    assert len(here) > 2


def test_ended_world_reports_the_cause_of_death() -> None:
    shown = played(CrafterWorld(0, DIFFICULTIES["hard"]), 0)
    last, ended = shown[-4][-1], shown[-2]
    assert (last.terminated, last.truncated) == (True, False)
    assert ended.startswith("died: ")


def test_world_with_too_many_creatures_is_rejected_with_the_same_message() -> None:
    crowded = replace(DIFFICULTIES["classic"], cow_chance=1.0, zombie_chance=1.0)
    problems = []
    for world in (CrafterWorld(1, crowded), ServiceWorld(LocalClient(), 1, crowded)):
        with pytest.raises(InvalidField) as error:
            asyncio.run(world.begin())
        problems.append(str(error.value))
    assert problems[0] == problems[1]
