"""The world behind Gymnasium's interface, checked by Gymnasium itself."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from assay.crafter import World
from assay.crafter.gymnasium import CrafterEnv, CrafterVectorEnv
from assay.errors import UsageError
from tests.support import run_python

INFOS = ("episode", "no_effect", "seed", "unlocked")
ID = "assay.crafter.gymnasium:assay/Crafter-v1"


@pytest.mark.parametrize("observation", ["symbolic", "pixels"])
def test_gymnasium_env_checker_passes(observation: Any) -> None:
    env = gymnasium.make(ID, observation=observation, render_mode="rgb_array")
    check_env(env.unwrapped)


@pytest.mark.extras
def test_environment_id_with_module_name_works_in_a_new_process() -> None:
    script = (
        f"import gymnasium; env = gymnasium.make({ID!r}); env.reset(seed=1);"
        f"print(env.unwrapped.world.digest());"
        f"envs = gymnasium.make_vec({ID!r}, num_envs=3,"
        f" vectorization_mode='vector_entry_point');"
        f"print(type(envs.unwrapped).__name__)"
    )
    done = run_python("-c", script)
    assert done.output.split() == [str(World(1).digest()), "CrafterVectorEnv"]


def test_environment_episode_equals_the_world_with_the_same_seed() -> None:
    env = CrafterEnv("easy", length=50)
    world = World(7, "easy", length=50)
    observation, info = env.reset(seed=7)
    assert info == {"seed": 7, "episode": 1}
    rng = np.random.default_rng(0)
    while not world.done:
        action = int(rng.integers(17))
        observation, reward, terminated, truncated, info = env.step(action)
        result = world.step(action)
        assert (reward, terminated or truncated) == (result.reward, result.done)
        assert (info["unlocked"], info["no_effect"]) == (result.unlocked, result.no_effect)
        assert np.array_equal(observation["materials"], world.view().materials)
        assert observation["inventory"].tolist() == list(world.inventory.values())
    assert truncated != terminated
    env.reset()
    assert env.world.digest() == World(7, "easy", length=50, episode=2).digest()


def test_worlds_without_a_seed_come_from_the_environment_generator() -> None:
    one, two = CrafterEnv(), CrafterEnv()
    assert one.reset()[1]["seed"] != two.reset()[1]["seed"]


def test_vector_environment_equals_separate_worlds_across_episodes() -> None:
    envs = CrafterVectorEnv(5, length=9)
    observation, _ = envs.reset(seed=40)
    assert observation in envs.observation_space
    worlds = [World(40 + i, length=9) for i in range(5)]
    rng = np.random.default_rng(1)
    for step in range(1, 35):
        actions = rng.integers(0, 17, 5)
        observation, rewards, terminations, truncations, _ = envs.step(actions)
        assert observation in envs.observation_space
        for i, world in enumerate(worlds):
            if world.done:  # replaced in this step, whose action is not used
                worlds[i] = World(world.seed, length=9, episode=world.episode + 1)
                assert [rewards[i], terminations[i], truncations[i]] == [0, 0, 0]
            else:
                result = world.step(int(actions[i]))
                assert (rewards[i], terminations[i] | truncations[i]) == result[:2]
            assert envs.batch.world(i).digest() == worlds[i].digest(), f"step {step}"
    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    envs.close()


def test_vector_environment_accepts_one_seed_per_world_and_continues() -> None:
    envs = CrafterVectorEnv(2, observation="pixels", size=32, render_mode="rgb_array")
    observation, _ = envs.reset(seed=[5, 3])
    assert observation.shape == (2, 32, 32, 3)
    pictures = envs.render()
    assert pictures is not None
    assert np.array_equal(pictures[1], World(3).render(32))
    envs.reset()
    assert envs.batch.episodes.tolist() == [2, 2]
    with pytest.raises(UsageError, match="give 2 seeds"):
        envs.reset(seed=[1])


def test_vector_environment_equals_gymnasium_sync_vector() -> None:
    ours = CrafterVectorEnv(4, difficulty="easy", length=9)
    own = SyncVectorEnv([lambda: CrafterEnv("easy", length=9)] * 4)
    rng = np.random.default_rng(3)
    told = [(ours.reset(seed=11)[1], own.reset(seed=11)[1])]
    for _ in range(60):
        actions = rng.integers(0, 17, 4)
        told.append((ours.step(actions)[4], own.step(actions)[4]))
    names = {name for infos, _ in told for name in infos}
    assert names == {f"{mask}{name}" for mask in ("", "_") for name in INFOS}
    for infos, expected in told:
        assert {name: list(value) for name, value in infos.items()} == {
            name: list(value) for name, value in expected.items()
        }
    assert any(any(infos.get("unlocked", ())) for infos, _ in told)


@pytest.mark.parametrize(
    ("seed", "world"),
    [(2**31 - 1, 2**31 - 1), (2**31, 0), (2**32 - 1, 2**31 - 1), (2**63 + 7, 7)],
)
def test_out_of_range_seed_is_mapped_to_a_valid_seed(seed: int, world: int) -> None:
    env, envs = CrafterEnv(), CrafterVectorEnv(2)
    assert env.reset(seed=seed)[1]["seed"] == world
    assert env.world.digest() == World(world).digest()
    assert envs.reset(seed=[seed, 5])[1]["seed"].tolist() == [world, 5]
    assert envs.reset(seed=seed)[1]["seed"].tolist() == [world, (world + 1) % 2**31]
    with pytest.raises(gymnasium.error.Error):
        env.reset(seed=-1)
    with pytest.raises(UsageError, match="-1"):
        envs.reset(seed=[-1, 2])


@pytest.mark.parametrize("make", [CrafterEnv, lambda: CrafterVectorEnv(2)])
def test_stepping_before_a_reset_is_a_clear_error(make: Any) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        make().step(np.zeros(2, int))


def test_invalid_options_are_named_in_the_error() -> None:
    with pytest.raises(UsageError, match="unknown observation 'text'; choose from: symbolic"):
        CrafterEnv(observation="text")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="num_envs 0"):
        CrafterVectorEnv(0)
    with pytest.raises(UsageError, match="did you mean 'easy'"):
        CrafterEnv("esay")
