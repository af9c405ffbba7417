"""MettaGrid worlds with hidden chains: determined by the seed, and all solvable."""

import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from assay.api.policies import plan_training, train
from assay.api.runs import run as play
from assay.errors import UsageError
from assay.store.store import Store
from assay.store.training_tables import load_training_runs
from assay.training.curricula import CURRICULA, list_held_out_worlds
from assay.training.environments import EndedEpisode, WorldStart
from assay.training.metta_worlds import SPACE, MettaWorlds
from tests.support import run_python

TASKS = CURRICULA["mettagrid"]["terrain_2"]
NAMES = ["", *(attribute.name for attribute in SPACE.attributes)]


@pytest.mark.mettagrid
def test_a_world_is_determined_by_its_task_and_seed() -> None:
    worlds = MettaWorlds(3, 1000)
    worlds.begin(range(3), [WorldStart(TASKS[5], seed) for seed in (7, 7, 8)])
    rng = np.random.default_rng(0)
    differ = False
    for _ in range(200):
        tokens = worlds.observe()
        assert np.array_equal(tokens[0], tokens[1])
        differ |= not np.array_equal(tokens[0], tokens[2])
        rewards = worlds.step(np.repeat(rng.integers(0, 5), 3))
        assert rewards[0] == rewards[1]
    assert differ


@pytest.mark.mettagrid
def test_random_actions_sometimes_find_hearts_and_each_is_a_reward_and_a_goal() -> None:
    starts = list_held_out_worlds(TASKS, 24)
    worlds = MettaWorlds(24, 10_000)
    worlds.begin(range(24), starts)
    rng = np.random.default_rng(1)
    ended: list[EndedEpisode] = []
    seen: set[str] = set()
    while len(ended) < 24:
        seen |= {NAMES[attribute] for attribute in np.unique(worlds.observe()[..., 0])}
        worlds.step(rng.integers(0, 5, 24))
        ended += worlds.ended()
    hearts = [episode.reward for episode in ended]
    assert sum(hearts) >= 3
    assert all(sum(episode.reached) == min(10, episode.reward) for episode in ended)
    assert {"wall", "mine", "laser", "heart", "last action", "time"} <= seen


@pytest.mark.mettagrid
def test_worlds_that_are_put_back_go_the_same_way() -> None:
    first, second = MettaWorlds(2, 300), MettaWorlds(2, 300)
    first.begin(range(2), list_held_out_worlds(TASKS, 2))
    rng = np.random.default_rng(2)
    for _ in range(50):
        first.step(rng.integers(0, 5, 2))
    second.restore(first.snapshot())
    for _ in range(100):
        assert np.array_equal(first.observe(), second.observe())
        actions = rng.integers(0, 5, 2)
        assert np.array_equal(first.step(actions), second.step(actions))


@pytest.mark.mettagrid
def test_a_policy_trained_on_chains_cannot_play_crafter(tmp_path: Path) -> None:
    store = tmp_path / "store.duckdb"
    result = train(
        folder=tmp_path / "run",
        database=store,
        environment="mettagrid",
        curriculum="terrain_1",
        width=8,
        worlds=4,
        rollout=32,
        minibatches=1,
        total_steps=512,
        eval_worlds=2,
        length=100,
    )
    assert result.end.steps == 512
    assert "mettagrid/score" in result.end.metrics
    with pytest.raises(UsageError, match="was trained in mettagrid"):
        play(agents=[f"checkpoint:{tmp_path / 'run'}"], database=store)


@pytest.mark.mettagrid
def test_the_icl_recipe_can_be_launched_and_records_its_environment(tmp_path: Path) -> None:
    recipe = (
        *("launch", "--environment", "mettagrid", "--architecture", "vit_reset"),
        *("--curriculum", "terrain_2", "--seeds", "2", "--base-run-name", "icl"),
        *("--width", "8", "--total-steps", "256", "--worlds", "4", "--rollout", "32"),
        *("--minibatches", "2", "--length", "50", "--eval-worlds", "2"),
    )
    planned = run_python("-m", "assay", *recipe, "--dry-run", folder=tmp_path).output
    assert "# recipe: ICL: resource chains to discover within the episode, terrain_2" in planned
    assert [*tmp_path.iterdir()] == []
    assert "2 of 2 runs finished" in run_python("-m", "assay", *recipe, folder=tmp_path).output
    versions = json.loads((tmp_path / "training/icl/manifest/versions.json").read_bytes())
    with Store(tmp_path / "crafter_multi_model_traces.duckdb").reading() as connection:
        runs = load_training_runs(connection)
    assert [run.id for run in runs] == ["icl.vit_reset.seed1072", "icl.vit_reset.seed2043"]
    for run in runs:
        assert (run.status, run.task) == ("finished", "mettagrid/terrain_2")
        assert [*run.curves["losses/value"].steps_P] == [128, 256]
        assert "mettagrid/score" in run.curves
        assert run.provenance["mettagrid"] == versions["mettagrid"] == version("mettagrid")


@pytest.mark.local
@pytest.mark.skipif(find_spec("mettagrid") is not None, reason="mettagrid is installed")
def test_a_missing_package_is_reported_with_its_extra(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pip install '\.\[mettagrid\]'"):
        train(folder=tmp_path / "run", environment="mettagrid")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_in_mettagrid_needs_no_package_and_checks_the_curriculum() -> None:
    plan = plan_training(environment="mettagrid", curriculum="terrain_4")
    assert plan.config.capacity.parameters > 50_000
    with pytest.raises(UsageError, match=r"unknown curriculum 'classic'.*in mettagrid"):
        plan_training(environment="mettagrid", curriculum="classic")
