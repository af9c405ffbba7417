"""The public interface of a world: inputs, errors and state."""

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from assay.crafter import ACHIEVEMENTS, ACTIONS, ITEMS, Batch, NoEffect, StepResult, World
from assay.errors import EpisodeOver, UsageError

from .saved import Saved
from .streams import AROUND, RICH, TOOLS, WELL, Edit, apply_to_ours


def edited(**changes: Any) -> World:
    """A world in which the player can move, with an edit applied."""
    world = apply_to_ours(Edit(cells=dict.fromkeys(AROUND, "grass")), World(3))
    return apply_to_ours(Edit(**changes), world)


@pytest.mark.parametrize("seed", [-1, 2**31, 1.0, "1", None, True, np.float64(1), 10**30])
def test_invalid_seed_is_named_in_the_error(seed: Any) -> None:
    with pytest.raises(UsageError, match=r"seed .* from 0 to 2147483647"):
        World(seed)


@pytest.mark.parametrize("length", [0, -5, 100_001, 1.5, None, False])
def test_invalid_length_is_named_in_the_error(length: Any) -> None:
    with pytest.raises(UsageError, match=r"length .* from 1 to 100000"):
        World(1, length=length)


BAD_ACTIONS = [-1, 17, 10**20, "jump", "", None, 1.0, True, b"do", [1], {}]


@pytest.mark.parametrize("action", BAD_ACTIONS)
def test_invalid_action_is_an_error_and_changes_nothing(action: Any) -> None:
    world = World(1)
    before = world.digest()
    with pytest.raises(
        ValueError, match=r"unknown action .* 0 to 16 or one of noop, move_left"
    ):
        world.step(action)
    assert world.digest() == before


@pytest.mark.parametrize("index", range(17))
def test_an_action_is_an_index_or_a_name(index: int) -> None:
    worlds = [World(2) for _ in range(3)]
    given: list[Any] = [index, ACTIONS[index], np.int64(index)]
    results = [world.step(action) for world, action in zip(worlds, given, strict=True)]
    assert results[0] == results[1] == results[2]
    assert len({world.digest() for world in worlds}) == 1


def test_finished_world_rejects_steps_and_stays_unchanged() -> None:
    world = World(1, length=3)
    assert [world.step("noop").done for _ in range(3)] == [False, False, True]
    before = world.snapshot()
    with pytest.raises(EpisodeOver, match=r"ended after 3 steps \(length\)"):
        world.step("noop")
    assert world.snapshot() == before
    assert world.done
    assert world.ended == "length"


def test_step_returns_reward_end_events_and_waste() -> None:
    world = edited(inventory=WELL, cells={(0, 1): "tree"})
    world.step("move_down")
    assert world.step("do") == StepResult(1.0, False, None, ("collect_wood",), None)
    # The tree became grass, which rarely gives a sapling.
    assert world.inventory["wood"] == world.achievements["collect_wood"] == 1


def test_new_world_exposes_its_complete_state() -> None:
    world = World(0)
    assert list(world.inventory) == list(ITEMS)
    assert list(world.achievements) == list(ACHIEVEMENTS)
    assert world.player_pos == (32, 32)
    assert world.facing == (0, 1)
    assert (world.steps, world.done, world.ended, world.sleeping) == (0, False, None, False)
    assert world.semantic().shape == (64, 64)
    assert world.semantic()[world.player_pos] == 13
    assert np.array_equal(world.materials(), Saved.read(world.snapshot()).materials)
    words, position = world.rng_state()
    assert words.shape == (624,)
    assert words.dtype == np.uint32
    assert 0 <= position <= 624
    assert "seed=0" in repr(world)


def test_modifying_returned_values_does_not_change_the_world() -> None:
    world = World(0)
    before = world.digest()
    world.inventory["wood"] = 9
    world.semantic()[:] = 0
    world.view().materials[:] = 0
    world.rng_state()[0][:] = 0
    world.render()[:] = 0
    assert world.digest() == before


def test_a_view_is_the_map_around_the_player_and_nothing_beyond() -> None:
    for seed in range(4):
        world = World(seed)
        rng = np.random.default_rng(seed)
        for step in range(150):
            if world.step(int(rng.choice([1, 2, 3, 4, 5]))).done:
                break
            if step % 10:
                continue
            view, (x, y) = world.view(), world.player_pos
            around = np.pad(world.semantic(), 4)[x : x + 9, y + 1 : y + 8]
            seen = np.where(view.objects > 0, view.objects, view.materials)
            assert np.array_equal(seen, around)
            assert view.objects[4, 3] == 13
            assert view.inventory == world.inventory
            assert view.daylight == world.daylight


def test_a_view_at_the_corner_of_the_world_is_empty_beyond_the_edge() -> None:
    saved = Saved.read(World(1).snapshot())
    saved.materials[0, 0] = 2
    saved.things = [thing for thing in saved.things if thing[1:3] != [0, 0]]
    saved.order = list(range(len(saved.things)))
    saved.things[0][1:3] = 0, 0
    chunks = [thing[1] // 12 * 6 + thing[2] // 12 for thing in saved.things]
    saved.chunks = sorted(set(chunks) | set(saved.chunks))
    saved.order.sort(key=lambda index: saved.chunks.index(chunks[index]))
    view = World.restore(saved.write()).view()
    assert not view.materials[:4].any()
    assert not view.materials[:, :3].any()
    assert view.materials[4:, 3:].all()


WASTE: dict[str, tuple[dict[str, Any], list[str], NoEffect | None]] = {
    "a move against a wall": (
        {"cells": {(0, 1): "stone"}},
        ["move_down"],
        NoEffect.BLOCKED,
    ),
    "a turn towards a wall": ({"cells": {(-1, 0): "stone"}}, ["move_left"], None),
    "a move": ({}, ["move_down"], None),
    "waiting": ({}, ["noop"], None),
    "sleeping when rested": ({}, ["sleep"], None),
    "do on sand": ({"cells": {(0, 1): "sand"}}, ["do"], NoEffect.NOTHING_THERE),
    "do on a table": ({"cells": {(0, 1): "table"}}, ["do"], NoEffect.NOTHING_THERE),
    "do on grass, lucky or not": ({"cells": {(0, 1): "grass"}}, ["do"], None),
    "drinking when full": ({"cells": {(0, 1): "water"}, "inventory": WELL}, ["do"], None),
    "stone without a pickaxe": ({"cells": {(0, 1): "stone"}}, ["do"], NoEffect.NEEDS_TOOL),
    "iron with a wooden pickaxe": (
        {"cells": {(0, 1): "iron"}, "inventory": {"wood_pickaxe": 1}},
        ["do"],
        NoEffect.NEEDS_TOOL,
    ),
    "iron with all pickaxes": ({"cells": {(0, 1): "iron"}, "inventory": TOOLS}, ["do"], None),
    "a table without wood": ({}, ["place_table"], NoEffect.NEEDS_ITEMS),
    "a table on water": (
        {"cells": {(0, 1): "water"}, "inventory": RICH},
        ["place_table"],
        NoEffect.NO_ROOM,
    ),
    "a stone on water": (
        {"cells": {(0, 1): "water"}, "inventory": RICH},
        ["place_stone"],
        None,
    ),
    "a plant on sand": (
        {"cells": {(0, 1): "sand"}, "inventory": RICH},
        ["place_plant"],
        NoEffect.NO_ROOM,
    ),
    "two plants on one cell": (
        {"inventory": RICH},
        ["place_plant", "place_plant"],
        NoEffect.NO_ROOM,
    ),
    "a plant that is not ripe": (
        {"inventory": RICH},
        ["place_plant", "do"],
        NoEffect.NOT_RIPE,
    ),
    "a pickaxe without a table": (
        {"inventory": RICH},
        ["make_wood_pickaxe"],
        NoEffect.NEEDS_NEARBY,
    ),
    "an iron pickaxe without a furnace": (
        {"inventory": RICH, "cells": {(1, 0): "table"}},
        ["make_iron_pickaxe"],
        NoEffect.NEEDS_NEARBY,
    ),
    "a pickaxe without wood": (
        {"cells": {(1, 0): "table"}},
        ["make_wood_pickaxe"],
        NoEffect.NEEDS_ITEMS,
    ),
    "a pickaxe with everything": (
        {"inventory": RICH, "cells": {(1, 0): "table"}},
        ["make_wood_pickaxe"],
        None,
    ),
    "a move while asleep": (
        {"inventory": {"energy": 3}},
        ["sleep", "move_left"],
        NoEffect.ASLEEP,
    ),
    "waiting while asleep": ({"inventory": {"energy": 3}}, ["sleep", "noop"], None),
    "sleeping on": ({"inventory": {"energy": 3}}, ["sleep", "sleep"], None),
}


@pytest.mark.parametrize("case", WASTE.values(), ids=WASTE.keys())
def test_action_without_effect_gives_its_reason(
    case: tuple[dict[str, Any], list[str], NoEffect | None],
) -> None:
    changes, actions, expected = case
    world = edited(**changes)
    results = [world.step(action) for action in actions]
    assert [result.no_effect for result in results[:-1]] == [None] * (len(actions) - 1)
    assert results[-1].no_effect == expected


@pytest.mark.parametrize("beside", ["zombie", "cow"])
def test_attack_that_wounds_is_not_waste(beside: str) -> None:
    world = apply_to_ours(Edit(beside=beside), World(8))
    hit = False
    for action in ("move_left", "move_right", "move_up", "move_down") * 2:
        world.step(action)
        view = world.view()
        dx, dy = world.facing
        if view.objects[4 + dx, 3 + dy] in (14, 15):
            assert world.step("do").no_effect is None
            hit = True
    assert hit


def test_fork_is_independent_of_its_origin() -> None:
    world = World(4)
    other = world.fork()
    assert world.digest() == other.digest()
    other.step("move_left")
    assert world.steps == 0
    assert world.digest() != other.digest()


def test_worlds_can_be_copied_and_pickled_but_batches_cannot() -> None:
    world = World(4)
    world.step("move_left")
    for other in (copy.copy(world), copy.deepcopy(world), pickle.loads(pickle.dumps(world))):
        assert other.digest() == world.digest()
        other.step("noop")
    assert world.steps == 1
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.copy(Batch([1]))


def test_restored_and_forked_worlds_keep_seed_length_and_difficulty() -> None:
    world = World(9, {"tree_chance": 0.5}, length=77)
    for other in (world.fork(), World.restore(world.snapshot())):
        assert (other.seed, other.length, other.difficulty) == (9, 77, world.difficulty)
        assert dataclasses.astuple(other.difficulty)[1] == 0.5
        assert other.difficulty_name == "custom"
