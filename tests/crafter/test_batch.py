"""Batched worlds equal separate worlds."""

from typing import Any

import numpy as np
import pytest

from assay.crafter import ACHIEVEMENTS, Batch, NoEffect, World
from assay.errors import EpisodeOver, UsageError

SEEDS = list(range(100, 170))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_batch_equals_separate_worlds(threads: int) -> None:
    batch = Batch(SEEDS, "hard", length=60, threads=threads)
    worlds = [World(seed, "hard", length=60) for seed in SEEDS]
    rng = np.random.default_rng(0)
    reasons = [None, *NoEffect]
    for _ in range(60):
        actions = rng.integers(0, 17, len(SEEDS))
        step = batch.step(actions)
        for i, world in enumerate(worlds):
            if world.done:
                assert (step.rewards[i], step.done[i], step.unlocked[i]) == (0, True, 0)
                continue
            alone = world.step(int(actions[i]))
            assert step.rewards[i] == alone.reward
            assert step.done[i] == alone.done
            assert (None, "died", "length")[step.ended[i]] == alone.ended
            assert reasons[step.no_effect[i]] == alone.no_effect
            unlocked = {n for b, n in enumerate(ACHIEVEMENTS) if step.unlocked[i] >> b & 1}
            assert unlocked == set(alone.unlocked)
    assert [batch.world(i).digest() for i in range(len(batch))] == [w.digest() for w in worlds]
    batch.close()


def test_batch_views_equal_the_views_of_its_worlds() -> None:
    batch = Batch(SEEDS)
    rng = np.random.default_rng(1)
    for _ in range(40):
        batch.step(rng.integers(0, 17, len(batch)))
    views = batch.view()
    directions = ((-1, 0), (1, 0), (0, -1), (0, 1))
    for i in range(len(batch)):
        world = batch.world(i)
        view = world.view()
        assert np.array_equal(views.materials[i], view.materials)
        assert np.array_equal(views.objects[i], view.objects)
        assert np.array_equal(views.details[i], view.details)
        assert views.inventory[i].tolist() == list(view.inventory.values())
        assert directions[views.facing[i]] == world.facing
        assert (views.sleeping[i], views.daylight[i]) == (world.sleeping, world.daylight)


def test_auto_reset_starts_the_next_episode_immediately() -> None:
    batch = Batch([7, 8, 9], length=5, auto_reset=True)
    first = [batch.world(i).snapshot() for i in range(3)]
    for number in range(1, 16):
        step = batch.step([0, 0, 0])
        assert step.done.tolist() == [number % 5 == 0] * 3
    assert batch.episodes.tolist() == [4, 4, 4]
    assert batch.steps.tolist() == [0, 0, 0]
    assert all(batch.world(i).snapshot() != first[i] for i in range(3))


def test_worlds_can_be_replaced_by_their_next_episode_at_any_time() -> None:
    batch = Batch([7, 8, 9])
    batch.step([1, 1, 1])
    batch.renew([0, 2])
    assert batch.episodes.tolist() == [2, 1, 2]
    assert batch.world(2).digest() == World(9, episode=2).digest()
    with pytest.raises(UsageError, match="world"):
        batch.renew([3])


def test_batch_with_all_worlds_done_rejects_further_steps() -> None:
    batch = Batch([1, 2], length=1)
    assert batch.step([0, 0]).done.all()
    with pytest.raises(EpisodeOver, match="all worlds"):
        batch.step([0, 0])


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0], "give 2 integers"),
        ([0, 17], "unknown action 17"),
        ([-1, 0], "unknown action -1"),
        ([0.0, 1.0], "give 2 integers"),
        ("ab", "give 2 integers"),
        ([[0, 1]], "give 2 integers"),
        ([True, False], "give 2 integers"),
    ],
)
def test_invalid_actions_are_named_in_the_error(actions: Any, message: str) -> None:
    batch = Batch([1, 2])
    with pytest.raises(UsageError, match=message):
        batch.step(actions)
    assert batch.steps.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("seeds", "options", "message"),
    [
        ([], {}, "at least one seed"),
        ([1, -1], {}, "seed -1"),
        ([1], {"threads": 0}, "threads 0"),
        ([1], {"length": 0}, "length 0"),
        ([1], {"difficulty": "esay"}, "did you mean 'easy'"),
    ],
)
def test_invalid_batch_error_gives_the_reason(
    seeds: list[int], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Batch(seeds, **options)


def test_two_batches_can_be_stepped_from_two_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def play(seed: int) -> list[int]:
        batch = Batch(range(seed, seed + 64), auto_reset=True, length=20, threads=2)
        rng = np.random.default_rng(seed)
        for _ in range(50):
            batch.step(rng.integers(0, 17, 64))
        return [batch.world(i).digest() for i in range(64)]

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(play, [1, 500]))
    assert together == [play(1), play(500)]
