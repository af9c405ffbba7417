"""A trained policy plays next to models, and repeats its episodes exactly."""

from pathlib import Path

import numpy as np
import pytest

import assay
from assay.api.policies import train
from assay.api.traces import list_sessions
from assay.crafter import World
from assay.errors import UsageError
from assay.training.crafter_worlds import CrafterWorlds, tokenize_view
from assay.training.curricula import CURRICULA
from assay.training.environments import WorldStart


def test_a_view_has_the_same_tokens_as_its_world_in_a_batch() -> None:
    environment, world = CrafterWorlds(1, 200), World(5, "hard", 200)
    environment.begin([0], [WorldStart(CURRICULA["crafter"]["hard"][0], 5)])
    rng = np.random.default_rng(0)
    while not world.done:
        assert np.array_equal(tokenize_view(world.view()), environment.observe()[0])
        action = int(rng.integers(17))
        world.step(action)
        environment.step(np.array([action]))


def test_a_missing_checkpoint_is_reported_before_the_run_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint found at .*'assay train'"):
        assay.run(agents=[f"checkpoint:{tmp_path}"], database=tmp_path / "store.duckdb")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.local
def test_a_checkpoint_plays_next_to_models_and_repeats_its_episodes(tmp_path: Path) -> None:
    store = tmp_path / "store.duckdb"
    folder = tmp_path / "mine"
    train(
        folder=folder,
        database=store,
        architecture="vit_reset",
        width=8,
        worlds=4,
        rollout=8,
        minibatches=1,
        total_steps=64,
        eval_worlds=2,
        length=20,
    )
    played = [
        assay.run(
            models=["builtin/random"],
            agents=[f"checkpoint:{folder}"],
            episodes=2,
            max_turns=30,
            baselines=False,
            fresh=True,
            executor=executor,
            database=store,
            traces_dir=tmp_path / executor,
        )
        for executor in ("asyncio", "processes")
    ]
    runs = [list_sessions(database=store, run=result.run_id).runs[0] for result in played]
    results = [
        sorted((s.model, s.seed, s.steps, s.reward) for s in run.sessions) for run in runs
    ]
    assert results[0] == results[1]
    assert len(results[0]) == 4
    assert results[0][2][0] == "mine step-64"
    with pytest.raises(UsageError, match="cannot be used in"):
        assay.run(
            agents=[f"checkpoint:{folder}"], environment="gymnasium:CartPole-v1", database=store
        )
