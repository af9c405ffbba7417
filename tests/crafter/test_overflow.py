"""A world has room for CAPACITY things: one more is an error, never a write past the table."""

from typing import Any

import numpy as np
import pytest

from assay.crafter import Batch, World
from assay.crafter.engine.layout import CAPACITY, HOLES, USED, section
from assay.errors import WorldFull

from .builders import ARROW, COW, SKELETON, ZOMBIE, crowd


def used(world: World) -> int:
    return int(world._scalars[USED])


def holes(world: World) -> int:
    return int(world._scalars[HOLES])


def test_object_table_can_be_filled_completely() -> None:
    world = World.restore(crowd(CAPACITY - 1).write())
    assert world.step("place_plant").no_effect is None
    assert used(world) == CAPACITY
    assert World.restore(world.snapshot()).digest() == world.digest()


def test_object_table_overflow_is_an_error_without_memory_corruption() -> None:
    world = World.restore(crowd(CAPACITY).write())
    things = section(world._block, "things")
    before = things.copy()
    # The table of things is the last section of a block; after it the memory is unused.
    memory = world._block.base
    assert memory is not None
    rest = memory[things.ctypes.data + things.nbytes - memory.ctypes.data :]
    assert len(rest) > 0
    with pytest.raises(WorldFull, match="no room for more creatures and plants"):
        world.step("place_plant")
    assert used(world) == CAPACITY
    assert np.array_equal(things.reshape(-1, 8)[:, :4], before.reshape(-1, 8)[:, :4])
    assert not rest.any()
    for action in (
        world.snapshot,
        world.digest,
        lambda: world.step("noop"),
        lambda: world.fork().step(0),
    ):
        with pytest.raises(WorldFull, match=r"seed 0 .* restore an earlier snapshot"):
            action()


def test_overfull_world_in_a_batch_ends_without_affecting_others() -> None:
    batch, alone = Batch([5, 5, 6]), World(6)
    batch._blocks[1] = World.restore(crowd(CAPACITY).write())._block
    for _ in range(2):
        assert batch.step([10, 10, 10]).ended.tolist() == [0, 3, 0]
        alone.step(10)
        assert batch.world(2).digest() == alone.digest()
    batch.renew([1])
    assert batch.step([10, 10, 10]).ended.tolist() == [0, 0, 0]


@pytest.mark.parametrize("make", [World, lambda seed, table: Batch([seed], table)])
def test_world_with_too_many_creatures_is_not_created(make: Any) -> None:
    with pytest.raises(WorldFull, match="no room for"):
        make(0, {"cow_chance": 1.0})


@pytest.mark.parametrize("count", [700, 760, 768, 769, 1000, 1024])
@pytest.mark.parametrize("kind", [COW, ZOMBIE, SKELETON, ARROW])
def test_crowded_world_compacts_its_object_table_in_order(count: int, kind: int) -> None:
    saved = crowd(count, kind)
    rng = np.random.default_rng(count)
    for thing in saved.things[1:]:
        thing[3] = min(thing[3], int(rng.integers(0, 5)))  # some die at once
        thing[5] = int(rng.integers(4)) if kind == ARROW else 4
    saved.materials[:, 20:24] = 4
    world = World.restore(saved.write())
    fresh, fewest, most_holes = world.fork(), count, 0
    for action in rng.integers(0, 17, 40).tolist():
        try:
            world.step(action)
        except WorldFull:
            with pytest.raises(WorldFull):
                fresh.step(action)
            return
        fresh.step(action)
        data = world.snapshot()
        assert fresh.snapshot() == data
        fresh = World.restore(data)  # without a hole, unlike the other
        fewest, most_holes = min(fewest, used(world)), max(most_holes, holes(world))
        if world.done:
            break
    assert most_holes > 8
    assert fewest < count
