"""The state of the expert can be saved and loaded, and is never trusted."""

import zlib
from dataclasses import fields, replace

import numpy as np
import pytest

from assay.crafter import View, World
from assay.crafter.players.expert.policy import ExpertPolicy
from assay.crafter.players.expert.state import _WORDS, MAX_BYTES, Parts, compress, decompress
from assay.crafter.players.expert.turns import catch_up, plan

from .test_expert import any_view

WRITTEN = {
    "memory": "ground here facing things cows skeletons plants done inventory step sleeping "
    "visited action could_act",
    "walker": "walls key route planned origin failed",
    "combat": "chased tired_until",
    "needs": "drinking",
    "garden": "returning",
    "shelter": "burrow resting",
}
# What the next view or the next decision sets before it is used, and what never changes.
DERIVED = {
    "memory": "ahead arrows daylight zombie_near known_achievements",
    "walker": "memory order steps fence tunnelling target",
    "combat": "memory walker",
    "needs": "memory walker",
    "garden": "memory walker shelter",
    "shelter": "memory walker _builder",
}


def states(
    seed: int, difficulty: str = "classic", steps: int = 400
) -> list[tuple[bytes, View]]:
    """States of an expert during an episode, each with the current view."""
    world, policy, found = World(seed, difficulty), ExpertPolicy(seed), []
    for step in range(steps):
        if world.done:
            break
        view = world.view()
        action = policy.act(view)
        if step % 20 == 10:
            found.append((policy.dump(), view))
        world.step(action)
    return found


@pytest.fixture(scope="module")
def dumped() -> list[tuple[bytes, View]]:
    return states(1) + states(2, "easy")


@pytest.mark.parametrize(("seed", "difficulty"), [(3, "easy"), (4, "classic"), (5, "hard")])
def test_expert_restored_at_every_step_plays_the_same_episode(
    seed: int, difficulty: str
) -> None:
    world, policy, other = World(seed, difficulty), ExpertPolicy(seed), ExpertPolicy(seed)
    for _ in range(300):
        if world.done:
            break
        view = world.view()
        action = policy.act(view)
        assert (other.act(view), other.goal) == (action, policy.goal)
        loaded = ExpertPolicy.load(seed, other.dump())
        assert loaded is not None
        other = loaded
        world.step(action)


def test_loaded_state_dumps_to_the_same_bytes(
    dumped: list[tuple[bytes, View]],
) -> None:
    for state, _ in dumped:
        loaded = ExpertPolicy.load(0, state)
        assert loaded is not None
        assert loaded.dump() == state


def test_new_expert_can_be_dumped_before_its_first_view() -> None:
    loaded = ExpertPolicy.load(0, ExpertPolicy(0).dump())
    assert loaded is not None
    assert 0 <= loaded.act(World(0).view()) < 17


def test_every_attribute_is_saved_or_derived() -> None:
    parts = ExpertPolicy(0)._parts
    assert {field.name for field in fields(Parts)} == WRITTEN.keys()
    for name in WRITTEN:
        known = {*WRITTEN[name].split(), *DERIVED[name].split()}
        assert vars(getattr(parts, name)).keys() == known, name


def test_the_state_is_small(dumped: list[tuple[bytes, View]]) -> None:
    sizes = [len(state) for state, _ in dumped]
    assert sum(sizes) / len(sizes) < 500
    assert max(sizes) < 1000


def test_truncated_or_altered_state_is_rejected(
    dumped: list[tuple[bytes, View]],
) -> None:
    state = dumped[-1][0]
    for length in range(len(state)):
        assert ExpertPolicy.load(0, state[:length]) is None
    for i in range(len(state)):
        altered = bytearray(state)
        altered[i] ^= 1 << i % 8
        assert ExpertPolicy.load(0, bytes(altered)) is None
    assert ExpertPolicy.load(0, state + b"\0") is None


@pytest.mark.parametrize("size", [MAX_BYTES, 10**7])
def test_decompression_bomb_is_rejected(size: int) -> None:
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = press.compress(bytes(size)) + press.flush()
    bomb = b"\1" + zlib.crc32(packed).to_bytes(4, "big") + packed
    assert ExpertPolicy.load(0, bomb) is None


@pytest.mark.extras
def test_forged_state_is_rejected_or_playable(dumped: list[tuple[bytes, View]]) -> None:
    random = np.random.Generator(np.random.PCG64(0))
    accepted = 0
    for trial in range(1500):
        state, view = dumped[trial % len(dumped)]
        forged = forge(random, state)
        loaded = ExpertPolicy.load(0, forged)
        if loaded is None:
            continue
        accepted += 1
        actions = tuple(random.integers(0, 17, 5).tolist())
        seen = view if trial % 2 else any_view(random, 0)
        for _ in range(2):
            loaded = ExpertPolicy.load(0, forged)
            began = loaded.memory.step if loaded else 0
            seen = replace(seen, step=began + len(actions))
            turn = plan(catch_up(0, forged, actions, seen), seen, 5)
            forged, actions = turn.state, turn.actions
            assert 1 <= len(actions) <= 5
    assert accepted > 30


def forge(random: np.random.Generator, state: bytes) -> bytes:
    """A state with a few wrong bytes, mostly near its start, and a valid checksum."""
    plain = bytearray(decompress(state[1:], _WORDS))
    for _ in range(random.integers(1, 3)):
        plain[random.integers(random.choice([30, 150, len(plain)])) % len(plain)] = (
            random.integers(256)
        )
    return state[:1] + compress(bytes(plain), _WORDS)
