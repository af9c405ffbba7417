"""Random numbers, noise and daylight against the libraries they follow."""

import dataclasses

import numpy as np
import opensimplex
import pytest
from numpy.typing import NDArray

from assay.crafter import DIFFICULTIES, World
from assay.crafter.engine import noise as simplex
from assay.crafter.engine.numerics import MAX_LENGTH, TENTH_DAYLIGHT, daylight, exp

from .reference import Reference

SAMPLES = 64 * 64


def values(seed: int, packed: simplex.Packed) -> NDArray[np.float64]:
    """The noise at every sample of every field, from the geometry alone."""
    generator = opensimplex.OpenSimplex(seed)
    permutation, gradient_index = generator._perm, generator._perm_grad_index3
    x, y, z = packed.vertices.astype(int).T
    index = permutation[(permutation[x] + y) & 255] + z
    gradients = simplex._GRADIENTS.reshape(24, 3)[gradient_index[index & 255] // 3]
    g = gradients[packed.terms]
    weight, dx, dy, dz = packed.reach.T
    parts = weight * (g[:, 0] * dx + g[:, 1] * dy + g[:, 2] * dz)
    total = np.zeros(len(packed.starts) - 1)
    # In the order of the terms, because floating point addition has one.
    for k in range(int(np.diff(packed.starts).max())):
        at = packed.starts[:-1] + k
        inside = at < packed.starts[1:]
        total[inside] += parts[at[inside]]
    return total / 103


@pytest.fixture(scope="module")
def packed() -> simplex.Packed:
    return simplex.packed_geometry()


@pytest.mark.parametrize("seed", [0, 3, 2**31 - 2])
def test_noise_equals_opensimplex_exactly(seed: int, packed: simplex.Packed) -> None:
    ours = values(seed, packed)
    theirs = opensimplex.OpenSimplex(seed)
    rng = np.random.default_rng(seed)
    cells = np.arange(SAMPLES)
    for number, field in enumerate(simplex.FIELDS.values()):
        for cell in rng.choice(cells, 150, replace=False).tolist():
            x, y = divmod(cell, 64)
            if field.y_scale == 2:
                point = ((x / 5) / 3, (2 * y) / 3)
            elif field.x_scale == 2:
                point = ((2 * x) / 3, (y / 5) / 3)
            else:
                point = (x / field.size, y / field.size)
            assert ours[number * SAMPLES + cell] == theirs.noise3(*point, field.z)


def test_noise_stays_within_the_bound_used_by_generation(packed: simplex.Packed) -> None:
    gradients = simplex._GRADIENTS.reshape(24, 3)
    steepest = np.abs(packed.reach[:, 1:] @ gradients.T).max(axis=1) * packed.reach[:, 0]
    assert np.add.reduceat(steepest, packed.starts[:-1]).max() / 103 < simplex.BOUND


def test_daylight_equals_the_reference_exactly() -> None:
    env = Reference(0)
    for step in range(10_001):
        env._step = step
        env._update_time()
        assert daylight(step) == env._world.daylight


def test_the_table_of_daylight_covers_the_longest_episode() -> None:
    assert len(TENTH_DAYLIGHT) == MAX_LENGTH // 10 + 1
    assert [daylight(step) for step in range(0, 3000, 10)] == TENTH_DAYLIGHT[:300].tolist()


def test_exp_is_as_close_as_a_library_function() -> None:
    xs = np.linspace(-70, 70, 5001)
    ours = np.array([exp.py_func(x) for x in xs.tolist()])  # type: ignore[attr-defined]
    assert (np.abs(ours - np.exp(xs)) <= 2 * np.spacing(np.exp(xs))).all()


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31 - 1])
def test_world_starts_with_the_reference_generator_state(seed: int) -> None:
    words, position = World(seed).rng_state()
    _, key, at, *_ = Reference(seed)._world.random.get_state()
    assert (position, words.tolist()) == (at, key.tolist())


def test_classic_is_the_reference_and_its_thresholds_are_exact() -> None:
    classic = DIFFICULTIES["classic"]
    chances = {
        f.name: getattr(classic, f.name)
        for f in dataclasses.fields(classic)
        if f.name.endswith("_chance") and "spawn" not in f.name
    }
    # The reference compares with these literals; ours with one minus the chance.
    assert {name: 1.0 - chance for name, chance in chances.items()} == {
        "tree_chance": 0.8,
        "coal_chance": 0.85,
        "iron_chance": 0.75,
        "diamond_chance": 0.994,
        "cow_chance": 0.985,
        "zombie_chance": 0.993,
        "skeleton_chance": 0.95,
    }
