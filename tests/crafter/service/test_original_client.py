"""A client written from the description of the original service, with the standard library."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from assay.crafter import World

OBSERVATION = {
    *("inventory", "achievements_status", "player_position", "player_direction"),
    *("semantic_map", "world_material_map", "observation_image", "num_steps_taken"),
    *("max_steps_episode", "error_info", "reward_last_step", "total_reward_episode"),
    *("terminated", "truncated"),
}
SCRIPT = [2, 2, 5, 1, 3, 3, 5, 5, 4, 0, 6, 2, 5] * 30


def call(url: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def interact(env_id: str, action: int) -> dict[str, Any]:
    return {
        "env_id": env_id,
        "request_id": None,
        "action": {"tool_calls": [{"tool": "interact", "args": {"action": action}}]},
    }


def test_http_episode_equals_the_in_process_episode(address: str) -> None:
    assert call(f"{address}/health") == {
        "status": "ok",
        "supported_environments": ["CrafterClassic"],
    }
    base = f"{address}/env/CrafterClassic"
    started = call(
        f"{base}/initialize",
        {"initial_state": None, "config": {"seed": 12, "difficulty": "easy"}},
    )
    assert set(started) == {"env_id", "observation", "done", "info"}
    assert started["done"] is False
    env_id, world, total = started["env_id"], World(12, "easy"), 0.0
    for count, action in enumerate(SCRIPT, 1):
        reply, result = call(f"{base}/step", interact(env_id, action)), world.step(action)
        observation = reply["observation"]
        total += result.reward
        assert set(reply) == {"observation", "reward", "done", "info"}
        assert set(observation) >= OBSERVATION
        # The state after the action, and the reward of this step alone.
        assert observation["num_steps_taken"] == count
        assert observation["inventory"] == world.inventory
        assert tuple(observation["player_position"]) == world.player_pos
        assert tuple(observation["player_direction"]) == world.facing
        assert (
            reply["reward"] == observation["reward_last_step"] == pytest.approx(result.reward)
        )
        assert observation["total_reward_episode"] == pytest.approx(total)
        unlocked = {name for name, count in world.achievements.items() if count}
        status = observation["achievements_status"]
        assert {name for name, reached in status.items() if reached} == unlocked
        assert reply["info"]["digests"] == [f"{world.digest():016x}"]
        assert reply["done"] is result.done
        assert reply["info"]["terminated"] is (result.ended == "died")
        if result.done:
            break
    assert world.steps > 100
    metadata = call(f"{base}/metadata?env_id={env_id}")
    assert metadata["engine_info"] == {
        "seed": 12,
        "area": [64, 64],
        "length": 10000,
        "step": world.steps,
        "difficulty": "easy",
    }
    assert metadata["env_name"] == "CrafterClassic"
    assert metadata["has_engine"] is True
    last = call(f"{base}/terminate", {"env_id": env_id})
    assert last["public"]["status"] == "Environment terminated."
    assert last["private"] == {"instance_id": env_id}
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(f"{base}/step", interact(env_id, 0))
    with refused.value as error:
        assert error.code == 404
        assert "not found" in json.load(error)["detail"]


def test_task_instance_selects_the_world_if_config_does_not(address: str) -> None:
    task = {
        "id": "7c2d3c0e-0000-4000-8000-000000000000",
        "impetus": {"instructions": "Survive."},
        "intent": {"rubric": "", "gold_trajectories": None, "gold_state_diff": {}},
        "metadata": {"difficulty": "hard", "seed": 5, "num_trees_radius": 0},
        "is_reproducible": True,
        "initial_engine_snapshot": None,
    }
    base = f"{address}/env/CrafterClassic"
    alone = call(f"{base}/initialize", {"task_instance": task})
    assert (alone["info"]["seed"], alone["info"]["difficulty"]) == (5, "hard")
    assert alone["info"]["digest"] == f"{World(5, 'hard').digest():016x}"
    metadata = call(f"{base}/metadata?env_id={alone['env_id']}")
    assert metadata["has_task_instance"] is True
    assert metadata["task_metadata"] == {"seed": 5, "difficulty": "hard"}
    both = call(f"{base}/initialize", {"task_instance": task, "config": {"seed": 6}})
    assert (both["info"]["seed"], both["info"]["difficulty"]) == (6, "hard")
