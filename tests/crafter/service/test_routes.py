"""Valid requests to each route, and regressions of the original's bugs."""

import base64

import numpy as np
import pytest

from assay.crafter import ACTIONS, DIFFICULTIES, World
from assay.crafter.engine.numerics import MAX_LENGTH
from assay.crafter.engine.packing import MAX_SNAPSHOT
from assay.crafter.service import requests as limits
from assay.crafter.service.app import ServiceSettings, running
from assay.crafter.service.results import Started, StepReply, WorldObservation, adapter
from tests.crafter.saved import Saved

from .calls import ENV, ask, start, step


def test_actions_are_indices_or_names(address: str) -> None:
    first, second = (start(address, seed=3)["env_id"] for _ in range(2))
    for index, name in enumerate(ACTIONS):
        by_index, by_name = step(address, first, index), step(address, second, name)
        assert by_index.status == 200
        assert by_index.json == by_name.json


def test_several_calls_run_in_order_with_a_result_each(address: str) -> None:
    env_id, world = start(address, seed=4)["env_id"], World(4)
    actions = ["move_left", "do", "move_up", "make_iron_sword", "noop"]
    reply = step(address, env_id, *actions).json
    digests, results = [], []
    for action in actions:
        results.append(world.step(action))
        digests.append(f"{world.digest():016x}")
    assert reply["info"]["digests"] == digests
    assert reply["info"]["no_effect"] == [result.no_effect for result in results]
    assert reply["info"]["no_effect"][3] == "needs_nearby"
    assert reply["info"]["rewards"] == [result.reward for result in results]
    assert reply["reward"] == pytest.approx(sum(reply["info"]["rewards"]))
    assert reply["observation"]["num_steps_taken"] == 5


def test_inventories_after_each_call_are_returned_if_requested(address: str) -> None:
    env_id, world = start(address, seed=4, include=["inventories"])["env_id"], World(4)
    actions = ["sleep"] * 40
    inventories = []
    for action in actions:
        world.step(action)
        inventories.append(world.inventory)
    assert inventories[0] != inventories[-1]
    assert step(address, env_id, *actions).json["info"]["inventories"] == inventories
    plain = start(address, seed=4)["env_id"]
    assert step(address, plain, 0).json["info"]["inventories"] is None


def test_achievements_are_named_in_the_step_that_reached_them(address: str) -> None:
    env_id = start(address, seed=1, difficulty={"tree_chance": 1.0})["env_id"]
    named = []
    for _ in range(40):
        reply = step(address, env_id, *["move_left", "move_up", "do"] * 5, *["sleep"] * 3).json
        named += [name for names in reply["info"]["unlocked"] for name in names]
        if reply["done"]:
            break
    status = reply["observation"]["achievements_status"]
    assert sorted(named) == sorted(name for name, reached in status.items() if reached)
    assert len(named) > 0


def test_actions_after_the_end_of_the_episode_are_skipped_and_counted(address: str) -> None:
    env_id = start(address, seed=5, length=3)["env_id"]
    reply = step(address, env_id, 0, 0, 0, 0, 0).json
    assert reply["done"] is True
    assert reply["info"]["truncated"] is True
    assert reply["info"]["terminated"] is False
    assert reply["info"]["skipped"] == 2
    assert len(reply["info"]["rewards"]) == 3
    assert reply["observation"]["truncated"] is True


def test_finished_episode_rejects_further_steps(address: str) -> None:
    env_id = start(address, seed=5, length=1)["env_id"]
    assert step(address, env_id, 0).json["done"] is True
    refused = step(address, env_id, 0)
    assert refused.status == 409
    assert refused.json["code"] == "episode_over"
    assert "ended after 1 steps" in refused.json["detail"]
    assert ask(address, f"{ENV}/terminate", {"env_id": env_id}).status == 200


def test_maps_and_image_are_returned_only_on_request(address: str) -> None:
    plain = start(address, seed=6)["observation"]
    assert all(plain.get(name) is None for name in limits.INCLUDES)
    full = start(address, seed=6, include=list(limits.INCLUDES))
    world = World(6)
    saved = Saved.read(world.snapshot())
    observation = full["observation"]
    assert observation["semantic_map"] == world.semantic().tolist()
    assert observation["world_material_map"] == saved.materials.tolist()
    assert observation["observation_image"] == world.render().tolist()
    assert np.shape(observation["observation_image"]) == (64, 64, 3)
    view, seen = world.view(), adapter(WorldObservation).validate_python(observation).as_view()
    for name in ("materials", "objects", "details"):
        assert np.array_equal(getattr(seen, name), getattr(view, name))
    assert (seen.inventory, seen.sleeping, seen.daylight, seen.step) == (
        *(view.inventory, view.sleeping, view.daylight, view.step),
    )
    later = step(address, full["env_id"], "move_left").json["observation"]
    world.step("move_left")
    assert later["semantic_map"] == world.semantic().tolist()


@pytest.mark.parametrize("difficulty", [*DIFFICULTIES, {"tree_chance": 0.5, "cow_chance": 0}])
def test_seed_difficulty_and_length_are_used(
    address: str, difficulty: str | dict[str, float]
) -> None:
    started = start(address, seed=8, difficulty=difficulty, length=77)
    world = World(8, difficulty, 77)
    assert started["info"]["digest"] == f"{world.digest():016x}"
    assert started["observation"]["max_steps_episode"] == started["info"]["length"] == 77
    told = started["info"]["difficulty"]
    assert World(8, told, 77).digest() == world.digest()


def test_random_world_reports_its_seed_and_can_be_recreated(address: str) -> None:
    drawn, other = start(address), start(address)
    assert drawn["info"]["seed"] != other["info"]["seed"]
    again = start(address, seed=drawn["info"]["seed"])
    assert again["info"]["digest"] == drawn["info"]["digest"]
    assert ask(address, f"{ENV}/initialize", b"").json["info"]["difficulty"] == "classic"


def test_services_with_equal_seeds_draw_equal_worlds_independently() -> None:
    with (
        running(ServiceSettings(port=0, seed=9)) as one,
        running(ServiceSettings(port=0, seed=9)) as other,
    ):
        seeds = [
            [start(service.address)["info"]["seed"] for _ in range(3)]
            for service in (one, other)
        ]
        assert seeds[0] == seeds[1]
        env_id = start(one.address)["env_id"]
        assert step(one.address, env_id, 0).status == 200
        assert step(other.address, env_id, 0).status == 404


def test_a_checkpoint_restores_to_the_same_future(address: str) -> None:
    env_id = start(address, seed=10, include=["view"])["env_id"]
    step(address, env_id, *[2, 5, 6] * 20)
    saved = ask(address, f"{ENV}/checkpoint?env_id={env_id}").json
    assert saved["env_id"] == env_id
    assert World.restore(base64.b64decode(saved["snapshot"])).steps == 60
    body = {name: saved[name] for name in ("snapshot", "total_reward_episode", "include")}
    restored = ask(address, f"{ENV}/restore", body)
    assert restored.status == 200
    twin = restored.json["env_id"]
    assert twin != env_id
    assert restored.json["info"]["seed"] == 10
    future = [1, 5, 3, 5, 0, 6] * 10
    one, other = step(address, env_id, *future).json, step(address, twin, *future).json
    assert one["observation"].pop("reward_last_step") is not None
    assert other["observation"].pop("reward_last_step") is not None
    assert one == other


def test_restored_finished_world_reports_its_end(address: str) -> None:
    world = World(1, length=1)
    world.step(0)
    body = {"snapshot": base64.b64encode(world.snapshot()).decode()}
    restored = ask(address, f"{ENV}/restore", body).json
    assert restored["done"] is True
    assert step(address, restored["env_id"], 0).status == 409


def test_world_out_of_capacity_keeps_played_steps_and_rejects_more(address: str) -> None:
    crowded = {"cow_chance": 0.42, "zombie_spawn_chance": 1, "zombie_spawn_distance": 20}
    many = {"zombies_by_day": 100, "zombies_by_night": 100}
    include = ["world_material_map"]
    started = start(address, seed=0, difficulty={**crowded, **many}, include=include)
    env_id = started["env_id"]
    reply = step(address, env_id, *["noop"] * 500).json
    assert 0 < len(reply["info"]["rewards"]) < 500
    assert reply["info"]["skipped"] == 500 - len(reply["info"]["rewards"])
    assert reply["done"] is reply["info"]["truncated"] is True
    refused = step(address, env_id, "noop")
    assert (refused.status, refused.json["code"]) == (409, "world_full")
    assert ask(address, f"{ENV}/checkpoint?env_id={env_id}").status == 409
    assert ask(address, f"{ENV}/terminate", {"env_id": env_id}).status == 200


def test_difficulty_that_overfills_a_world_is_rejected(address: str) -> None:
    answer = ask(
        address, f"{ENV}/initialize", {"config": {"seed": 0, "difficulty": {"cow_chance": 1.0}}}
    )
    assert answer.status == 422
    assert answer.json["errors"][0]["field"] == "config.difficulty"


def test_metadata_without_an_instance_describes_the_environment(address: str) -> None:
    metadata = ask(address, f"{ENV}/metadata").json
    assert metadata["actions"] == list(ACTIONS)
    assert metadata["difficulties"] == list(DIFFICULTIES)
    assert metadata["env_id"] is metadata["engine_info"] is None


def test_responses_have_exactly_the_declared_keys(address: str) -> None:
    started = start(address, seed=1, include=list(limits.INCLUDES))
    made = adapter(Started).validate_python(started, strict=False)
    assert adapter(Started).dump_python(made, mode="json") == started
    reply = step(address, started["env_id"], 0, 5).json
    stepped = adapter(StepReply).validate_python(reply)
    assert adapter(StepReply).dump_python(stepped, mode="json") == reply


def test_service_limits_equal_the_engine_limits() -> None:
    assert limits.MAX_LENGTH == MAX_LENGTH
    base64_length = len(base64.b64encode(b"0" * MAX_SNAPSHOT))
    assert base64_length <= limits.MAX_SNAPSHOT_TEXT
