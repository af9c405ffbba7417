"""The same (seed, difficulty, actions) gives the same digests, in every process and for ever.

`golden_digests.json` holds digests of scripted games. They may change only together with
`DIGEST_VERSION`; then write the file anew, and look at what changed:

    python -m tests.crafter.test_determinism --write

Without `--write` the same digests are printed, for the tests that start other processes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import assay
from assay.crafter import DIFFICULTIES, DIGEST_VERSION, Batch, World
from assay.crafter.engine.layout import HOLES

from .reference import Reference
from .streams import AROUND, Edit, apply_to_ours, assisted, plain
from .test_parity import assert_same

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden_digests.json")
SEEDS = (0, 1, 2, 7, 1234, 2**31 - 1)
CUSTOM = {
    "start_radius": 7.5,
    "lava_level": 0.2,
    "cow_chance": 0.05,
    "zombie_chance": 0.03,
    "zombie_clear_radius": 4,
    "skeleton_chance": 0.3,
    "zombie_spawn_distance": 3,
    "zombies_by_night": 6.5,
    "skeletons_at_most": 5,
}
DIFFICULTY_TABLE: dict[str, Any] = {name: name for name in DIFFICULTIES} | {"custom": CUSTOM}
STEPS = 400
MARKS = (0, 1, 10, 50, 150)

LIVELY = {
    "cow_chance": 0.05,
    "zombie_chance": 0.05,
    "skeleton_chance": 0.5,
    "zombie_spawn_chance": 0.9,
    "zombies_by_night": 5,
}


def walled_in(seed: int) -> World:
    """A world with many creatures in which the player is protected and survives a night."""
    walls = Edit(cells=dict.fromkeys(AROUND, "stone"))
    return apply_to_ours(walls, World(seed, LIVELY))


def scripted(step: int) -> int:
    """Return the action of the golden episodes at a step, counted from 1."""
    return (step * 7 + step * step) % 17


def in_json(digest: int) -> str:
    return f"{digest:016x}"


def golden_game(seed: int, difficulty: str) -> dict[str, Any]:
    """Return the digests after the steps in MARKS and after the last step."""
    world = World(seed, DIFFICULTY_TABLE[difficulty])
    digests = {}
    while True:
        if world.steps in MARKS:
            digests[str(world.steps)] = in_json(world.digest())
        if world.done or world.steps == STEPS:
            break
        world.step(scripted(world.steps + 1))
    digests["last"] = in_json(world.digest())
    return {"seed": seed, "difficulty": difficulty, "steps": world.steps, "digests": digests}


def golden() -> dict[str, Any]:
    return {
        "digest_version": DIGEST_VERSION,
        "custom": CUSTOM,
        "games": [golden_game(seed, name) for name in DIFFICULTY_TABLE for seed in SEEDS],
    }


def chain(seed: int) -> list[str]:
    """Return the digest after every step of an assisted episode."""
    world = World(seed, list(DIFFICULTY_TABLE.values())[seed % len(DIFFICULTY_TABLE)])
    digests = [in_json(world.digest())]
    for edit, action in assisted(seed, 250, deadly=True):
        if world.done:
            break
        if edit is not None:
            world = apply_to_ours(edit, world)
        world.step(action)
        digests.append(in_json(world.digest()))
    return digests


CHAINS = range(500, 510)


@pytest.mark.extras
@pytest.mark.usefixtures("compiled_engine")
def test_new_processes_reproduce_the_golden_digests_at_every_step(
    tmp_path: Path,
) -> None:
    path = os.pathsep.join(str(folder) for folder in (ROOT, Path(assay.__file__).parents[1]))
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.crafter.test_determinism"],
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            env=os.environ | {"PYTHONHASHSEED": hashes, "PYTHONPATH": path},
        )
        for hashes in ("1", "4711")
    ]
    printed = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]

    committed = json.loads(GOLDEN.read_text())
    assert committed["digest_version"] == DIGEST_VERSION, "write golden_digests.json anew"
    chains = {str(seed): chain(seed) for seed in CHAINS}
    assert sum(map(len, chains.values())) > 1000
    for text in printed:
        found = json.loads(text)
        assert found["golden"] == committed
        assert found["chains"] == chains


def test_golden_episodes_cover_every_difficulty_with_distinct_digests() -> None:
    games = json.loads(GOLDEN.read_text())["games"]
    assert {game["difficulty"] for game in games} == {*DIFFICULTIES, "custom"}
    assert sum("150" in game["digests"] for game in games) > len(games) / 2
    every = [digest for game in games for digest in set(game["digests"].values())]
    assert len(set(every)) == len(every)
    assert all(len(digest) == 16 and int(digest, 16) < 2**63 for digest in every)


def stare(world: World) -> None:
    """Call every read-only method of a world."""
    world.view()
    world.semantic()
    world.render(27)
    world.render((64, 32))
    world.fork().step("do")
    World.restore(world.snapshot()).step("noop")
    world.digest()
    world.rng_state()
    repr((world, world.inventory, world.achievements, world.facing, world.daylight))


@pytest.mark.parametrize("safe", [False, True], ids=["among zombies", "through the night"])
def test_observing_a_world_changes_neither_its_digest_nor_its_future(safe: bool) -> None:
    nights = days = 0
    for seed in (3, 4):
        watched = walled_in(seed) if safe else World(seed)
        alone = watched.fork()
        for _, action in plain(seed, 300):
            before = watched.digest()
            stare(watched)
            assert watched.digest() == before
            assert watched.step(action) == alone.step(action)
            assert watched.digest() == alone.digest()
            nights, days = nights + (alone.daylight < 0.3), days + (alone.daylight > 0.7)
            if alone.done:
                break
    assert days > 100
    assert nights > 30 or not safe


def holes(world: World) -> int:
    return int(world._scalars[HOLES])


@pytest.mark.parametrize("seed", range(4))
def test_equal_states_have_equal_digests_in_any_memory_layout(seed: int) -> None:
    rng = np.random.default_rng(seed)
    straight = walled_in(seed)
    restored, forked = straight.fork(), straight.fork()
    layouts_differed = compacted = 0
    for _, action in plain(seed, 300):
        if rng.random() < 0.2:
            restored = World.restore(restored.snapshot())
        if rng.random() < 0.2:
            forked = forked.fork()
        before = holes(straight)
        result = straight.step(action)
        assert restored.step(action) == forked.step(action) == result
        assert restored.digest() == forked.digest() == straight.digest()
        assert restored.snapshot() == straight.snapshot()
        layouts_differed += holes(straight) != holes(restored)
        compacted += holes(straight) < before
        if result.done:
            break
    assert straight.steps > 200
    assert layouts_differed > 50
    assert compacted >= 2


def worlds_on_the_way(seed: int) -> Iterator[World]:
    world = World(seed)
    yield world
    for edit, action in assisted(seed, 60):
        world = world if edit is None else apply_to_ours(edit, world)
        world.step(action)
        yield world
        if world.done:
            return


def test_a_digest_is_the_halved_xxh64_of_the_snapshot() -> None:
    checked = 0
    for seed in range(6):
        for world in worlds_on_the_way(seed):
            digest = world.digest()
            assert type(digest) is int
            assert 0 <= digest < 2**63
            assert digest == xxhash.xxh64_intdigest(world.snapshot()) >> 1
            checked += 1
    assert checked > 200


def test_worlds_with_any_difference_have_different_digests() -> None:
    games = [World(seed) for seed in range(200)]
    games += [World(0, length=length) for length in (1, 2, 9_999, 100_000)]
    games += [World(0, episode=episode) for episode in (2, 3, 2**31 - 1)]
    games += [World(0, name) for name in DIFFICULTIES if name != "classic"]
    games += [World(0, {"cow_spawn_chance": chance}) for chance in (0.0, 0.5, 0.02)]
    digests = {world.digest() for world in games}
    assert len(digests) == len(games)
    digests |= {world.digest() for world in games if world.length > 1 and world.step(0)}
    assert len(digests) == 2 * len(games) - 1


def test_different_action_changes_the_digest_if_it_changes_the_state() -> None:
    for steps in range(0, 60, 3):
        left, right = World(5), World(5)
        for step in range(steps):
            left.step(scripted(step))
            right.step(scripted(step))
        assert left.digest() == right.digest()
        idle, fruitless = left.fork(), left.fork()
        left.step("move_left")
        right.step("move_right")
        assert left.digest() != right.digest()
        idle.step("noop")
        fruitless.step("make_iron_sword")
        assert idle.digest() == fruitless.digest()


def test_batch_digests_equal_the_digests_of_its_worlds() -> None:
    seeds = [*range(70), 2**31 - 1]
    batch = Batch(seeds, "hard", threads=2)
    alone = [World(seed, "hard") for seed in seeds]
    for step in range(1, 81):
        batch.step([scripted(step + i) for i in range(len(seeds))])
        for i, world in enumerate(alone):
            if not world.done:
                world.step(scripted(step + i))
            if step % 16 == 0:
                assert batch.world(i).digest() == world.digest()
    assert any(world.done for world in alone)
    batch.close()


@pytest.mark.extras
def test_auto_reset_worlds_equal_those_of_the_reference() -> None:
    seeds, length = [0, 9, 31], 25
    batch = Batch(seeds, length=length, auto_reset=True)
    envs = [Reference(seed, length) for seed in seeds]
    rng = np.random.default_rng(0)
    while batch.episodes.min() < 4:
        actions = rng.integers(0, 17, len(seeds))
        result = batch.step(actions)
        for i, env in enumerate(envs):
            _, reward, done, _ = env.step(int(actions[i]))
            assert (result.rewards[i], result.done[i]) == (reward, done)
            if done:
                env.reset()
                alone = World(seeds[i], length=length, episode=env._episode)
                assert batch.world(i).digest() == alone.digest()
            assert_same(env, batch.world(i))
    assert batch.episodes.tolist() == [env._episode for env in envs]


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        GOLDEN.write_text(json.dumps(golden(), indent=1) + "\n")
    else:
        print(json.dumps({"golden": golden(), "chains": {str(n): chain(n) for n in CHAINS}}))
