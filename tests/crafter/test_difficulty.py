"""Difficulties change their documented parameters, and only in their own world."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from assay.crafter import DIFFICULTIES, MATERIALS, OBJECTS, Batch, Difficulty, World
from assay.errors import UsageError

NAMES = [*MATERIALS, *OBJECTS]
ORDER = ["easy", "medium", "classic", "hard"]


def counts(difficulty: Any, seeds: range = range(60)) -> Counter[str]:
    """How many of each thing there are in new worlds."""
    found = np.zeros(len(NAMES), int)
    for seed in seeds:
        ids = World(seed, difficulty).semantic()
        found += np.bincount(ids.ravel(), minlength=len(NAMES))
    return Counter(dict(zip(NAMES, found.tolist(), strict=True)))


@pytest.fixture(scope="module")
def made() -> dict[str, Counter[str]]:
    return {name: counts(name) for name in ORDER}


@pytest.mark.parametrize("name", ["tree", "coal", "iron", "diamond", "cow"])
def test_easier_worlds_contain_more_resources(name: str, made: dict[str, Counter[str]]) -> None:
    found = [made[difficulty][name] for difficulty in ORDER]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 4


@pytest.mark.parametrize("name", ["zombie", "skeleton", "lava"])
def test_harder_worlds_contain_more_dangers(name: str, made: dict[str, Counter[str]]) -> None:
    found = [made[difficulty][name] for difficulty in ORDER]
    assert found == sorted(found)
    assert len(set(found)) == 4


@pytest.mark.parametrize(
    ("parameter", "value", "name", "expected"),
    [
        ("tree_chance", 0.0, "tree", 0),
        ("coal_chance", 0.0, "coal", 0),
        ("iron_chance", 0.0, "iron", 0),
        ("diamond_chance", 0.0, "diamond", 0),
        ("lava_level", 2.0, "lava", 0),
        ("cow_chance", 0.0, "cow", 0),
        ("zombie_chance", 0.0, "zombie", 0),
        ("skeleton_chance", 0.0, "skeleton", 0),
        ("zombie_clear_radius", 64.0, "zombie", 0),
    ],
)
def test_generation_parameter_can_exclude_an_object(
    parameter: str, value: float, name: str, expected: int
) -> None:
    assert counts({parameter: value}, range(5))[name] == expected
    assert counts("classic", range(5))[name] > 0


def test_larger_start_radius_gives_a_larger_meadow() -> None:
    def meadow(radius: float) -> int:
        cells = np.hypot(*np.meshgrid(np.arange(64) - 32, np.arange(64) - 32)) < 10
        return sum(
            int((World(seed, {"start_radius": radius}).semantic()[cells] == 2).sum())
            for seed in range(30)
        )

    assert meadow(2.0) < meadow(4.0) < meadow(8.0)


def test_no_zombie_starts_within_the_clear_radius() -> None:
    for seed in range(20):
        xs, ys = np.nonzero(World(seed, "easy").semantic() == NAMES.index("zombie"))
        assert (np.hypot(xs - 32, ys - 32) > 16).all()


def zombies_after(difficulty: Any, steps: int) -> int:
    """Return the number of zombies after a while, in worlds with only noop actions."""
    batch = Batch(range(40), difficulty)
    for _ in range(steps):
        batch.step(np.zeros(40, int))
    worlds = (batch.world(i) for i in range(40))
    return sum(int((world.semantic() == NAMES.index("zombie")).sum()) for world in worlds)


def test_spawning_follows_the_difficulty() -> None:
    found = [zombies_after(name, 60) for name in ORDER]
    assert found == sorted(found)
    assert zombies_after({"zombie_chance": 0.0, "zombie_spawn_chance": 0.0}, 60) == 0
    assert zombies_after({"zombies_by_night": 9.0, "zombies_by_day": 9.0}, 60) > found[-2]


def test_difficulty_affects_only_its_own_world() -> None:
    before = World(5).snapshot()
    World(5, "hard")
    Batch([5], {"tree_chance": 1.0})
    assert World(5).snapshot() == before


def test_default_difficulty_is_the_reference() -> None:
    assert World(5).difficulty == Difficulty() == DIFFICULTIES["classic"]
    assert World(5).difficulty_name == "classic"
    assert World(5, Difficulty()).digest() == World(5, {}).digest() == World(5).digest()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("esay", "unknown difficulty 'esay'; did you mean 'easy'"),
        ("xyz", "choose from: classic, easy, medium, hard"),
        (3, "unknown difficulty '3'"),
        (["easy"], "unknown difficulty"),
        ({"tree_chanse": 0.1}, "unknown parameter 'tree_chanse'; did you mean 'tree_chance'"),
        ({"tree_chance": 1.5}, r"tree_chance = 1.5 .* from 0 to 1"),
        ({"tree_chance": float("nan")}, "tree_chance = nan"),
        ({"tree_chance": 10**400}, "tree_chance = 1000"),
        ({"tree_chance": "much"}, "tree_chance = 'much'"),
        ({"tree_chance": True}, "tree_chance = True"),
        ({"start_radius": -1}, "start_radius = -1"),
        ({1: 2}, "unknown parameter '1'"),
    ],
)
def test_invalid_difficulty_is_named_in_the_error(choice: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        World(1, choice)
