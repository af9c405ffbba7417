"""Training worlds, and their separation from evaluation worlds."""

import json

import numpy as np

from assay.crafter.difficulty import DIFFICULTIES, resolve_difficulty
from assay.training.curricula import (
    CURRICULA,
    LearningProgress,
    find_curriculum,
    list_held_out_worlds,
)


def drawn(name: str, seed: int, count: int) -> list[tuple[str, int]]:
    sampler = LearningProgress(find_curriculum(name), np.random.default_rng(seed))
    return [(start.task.name, start.seed) for start in sampler.draw(count)]


def test_every_task_of_a_curriculum_has_its_own_difficulty() -> None:
    for name, tasks in CURRICULA["crafter"].items():
        assert len({task.name for task in tasks}) == len(tasks), name
        made = [resolve_difficulty(task.settings) for task in tasks]
        assert len({*made}) == len(tasks), name
    assert (
        resolve_difficulty(CURRICULA["crafter"]["classic"][0].settings)
        == DIFFICULTIES["classic"]
    )
    sizes = [len(CURRICULA["crafter"][f"terrain_{level}"]) for level in (1, 2, 3, 4)]
    assert sizes == [8, 18, 27, 32]


def test_held_out_worlds_are_used_neither_in_training_nor_in_default_runs() -> None:
    trained = {seed for _, seed in drawn("terrain_2", 1, 5_000)}
    examined = {
        start.seed for start in list_held_out_worlds(CURRICULA["crafter"]["terrain_2"], 5_000)
    }
    assert not trained & examined
    assert min(trained | examined) > 1_000_000


def test_worlds_are_determined_by_the_seed() -> None:
    assert drawn("terrain_3", 5, 50) == drawn("terrain_3", 5, 50) != drawn("terrain_3", 6, 50)


def test_tasks_with_a_changing_success_rate_are_drawn_more_often() -> None:
    tasks = CURRICULA["crafter"]["terrain_1"]
    sampler = LearningProgress(tasks, np.random.default_rng(0))
    for episode in range(60):
        for at, task in enumerate(tasks):
            rises, falls = episode / 100, 0.6 - episode / 100
            sampler.update_averages(task, {0: rises, 1: falls}.get(at, 0.3))
    chances = sampler.compute_probabilities()
    assert min(chances[:2]) > 2 * max(chances[2:])
    assert min(chances) >= 0.25 / len(tasks)
    np.testing.assert_allclose(chances.sum(), 1)


def test_an_untried_task_is_as_likely_as_the_best() -> None:
    tasks = CURRICULA["crafter"]["terrain_1"]
    sampler = LearningProgress(tasks, np.random.default_rng(0))
    for success in (0.1, 0.5):
        sampler.update_averages(tasks[0], success)
    assert np.ptp(sampler.compute_probabilities()) < 1e-12


def test_a_restored_sampler_continues_its_sequence() -> None:
    tasks = CURRICULA["crafter"]["terrain_2"]
    sampler = LearningProgress(tasks, np.random.default_rng(3))
    sampler.update_averages(tasks[4], 0.7)
    state = json.loads(json.dumps(sampler.export_state()))
    ahead = [*sampler.draw(20)]
    other = LearningProgress(tasks, np.random.default_rng(99))
    other.restore(state)
    assert [*other.draw(20)] == ahead
