"""World generation: terrain from noise, then creatures, with the reference's random draws."""

from typing import Final

import numpy as np

from assay.crafter.difficulty import Difficulty
from assay.crafter.engine.grid import (
    COW,
    DOWN,
    PLAYER,
    SKELETON,
    STAY,
    WALK,
    ZOMBIE,
    add_thing,
    cell_at,
    set_material,
)
from assay.crafter.engine.jit import inlined, kernel
from assay.crafter.engine.layout import (
    CELLS,
    CHUNK_FIELDS,
    CHUNKS,
    EPISODE,
    FACING,
    FELT_HEALTH,
    INVENTORY,
    LENGTH,
    PAID_HEALTH,
    POSITION,
    SCALARS,
    SEED,
    State,
)
from assay.crafter.engine.mt19937 import randint, seed_generator, uniform
from assay.crafter.engine.noise import (
    BOUND,
    FIELDS,
    Geometry,
    choose_gradients,
    geometry,
    noise,
)
from assay.crafter.engine.numerics import exp
from assay.crafter.rules import AREA, CREATURES, MAX_ITEM, VITALS

_FIELD: Final = {name: index * AREA * AREA for index, name in enumerate(FIELDS)}
_START, _WATER, _WATER_DETAIL = _FIELD["start"], _FIELD["water"], _FIELD["water_detail"]
_MOUNTAIN, _MOUNTAIN_DETAIL = _FIELD["mountain"], _FIELD["mountain_detail"]
_CAVE, _ACROSS, _DOWNWARD = _FIELD["cave"], _FIELD["tunnel_across"], _FIELD["tunnel_down"]
_COAL, _IRON, _LAVA = _FIELD["coal"], _FIELD["iron"], _FIELD["lava"]
_SAND, _TREE = _FIELD["sand"], _FIELD["tree"]

WATER, GRASS, STONE, PATH, SAND, TREE, LAVA, COAL, IRON, DIAMOND = range(1, 11)
_TUNNEL: Final = 0x80
"""Marks tunnel cells until creatures are placed."""
_CENTRE: Final = AREA // 2
_FADING_ROOM: Final = 64
_FADING: Final = np.exp(-np.arange(_FADING_ROOM)) + 1e-9
"""Entry k is an upper bound of the sigmoid at -k and below."""
_VITALS: Final = len(VITALS)
_COW_HEALTH: Final = CREATURES["cow"].health
_ZOMBIE_HEALTH: Final = CREATURES["zombie"].health
_SKELETON_HEALTH: Final = CREATURES["skeleton"].health

# Index of each parameter of a Difficulty in a world's `parameters`.
PARAMETER: Final = {name: index for index, name in enumerate(Difficulty.__slots__)}
_START_RADIUS = PARAMETER["start_radius"]
_TREE_CHANCE, _COAL_CHANCE = PARAMETER["tree_chance"], PARAMETER["coal_chance"]
_IRON_CHANCE, _DIAMOND_CHANCE = PARAMETER["iron_chance"], PARAMETER["diamond_chance"]
_LAVA_LEVEL, _COW_CHANCE = PARAMETER["lava_level"], PARAMETER["cow_chance"]
_ZOMBIE_CHANCE, _CLEAR = PARAMETER["zombie_chance"], PARAMETER["zombie_clear_radius"]
_SKELETON_CHANCE = PARAMETER["skeleton_chance"]


@inlined
def _episode_seed(seed: int, episode: int) -> int:
    """Return CPython's `hash((seed, episode)) % (2**31 - 1)`, the seed of the reference."""
    # Tuple hash since Python 3.8: xxHash over the hashes of its members.
    total = np.uint64(2870177450012600261)
    for member in (seed, episode):
        total += np.uint64(member) * np.uint64(14029467366897019727)
        total = (total << np.uint64(31)) | (total >> np.uint64(33))
        total *= np.uint64(11400714785074694791)
    total += np.uint64(2) ^ (np.uint64(2870177450012600261) ^ np.uint64(3527539))
    return int(np.int64(total)) % 2147483647


@inlined
def _draw_chance(s: State, parameter: int) -> bool:
    return uniform(s) > 1.0 - s.parameters[parameter]


@inlined
def _centre_distance(x: int, y: int) -> float:
    return float(np.sqrt(float((x - _CENTRE) ** 2 + (y - _CENTRE) ** 2)))


@inlined
def _sigmoid(slope: float) -> float:
    return 1.0 / (1.0 + exp(-slope))


@inlined
def _any_between(low: float, high: float, a: float, b: float, c: float) -> bool:
    """Return whether one of three thresholds lies between two values."""
    return low <= a <= high or low <= b <= high or low <= c <= high


@kernel
def _choose_material(s: State, g: Geometry, x: int, y: int) -> int:
    """Return the material of a cell, plus _TUNNEL if it is part of a tunnel."""
    at = x * AREA + y
    water = noise(s, g, _WATER + at) + 0.15 * noise(s, g, _WATER_DETAIL + at) + 0.1
    mountain = noise(s, g, _MOUNTAIN + at) + 0.3 * noise(s, g, _MOUNTAIN_DETAIL + at)
    mountain /= 1.3
    # How much a cell belongs to the meadow around the start, from 0 to 1. Far away this is
    # almost 0 and rarely changes a comparison below, so its noise is computed only if it might.
    slope = s.parameters[_START_RADIUS] - _centre_distance(x, y)
    most = _FADING[min(int(max(-slope - 2 * BOUND, 0.0)), _FADING_ROOM - 1)]
    rock = mountain - 0.3 * water
    if (
        most > 0.25
        or _any_between(water - 2 * most, water + 1e-9, 0.25, 0.3, 0.35)
        or _any_between(rock - 4 * most, rock + 1e-9, 0.15, 0.18, 0.3)
    ):
        start = _sigmoid(slope + 2 * noise(s, g, _START + at))
        if start > 0.5:
            return GRASS
        water -= 2 * start
        rock = mountain - (4 * start + 0.3 * water)
    if rock > 0.15:
        return _choose_rock(s, g, at, rock)
    if 0.25 < water <= 0.35 and noise(s, g, _SAND + at) > -0.2:
        return SAND
    if water > 0.3:
        return WATER
    if noise(s, g, _TREE + at) > 0 and _draw_chance(s, _TREE_CHANCE):
        return TREE
    return GRASS


@inlined
def _choose_rock(s: State, g: Geometry, at: int, mountain: float) -> int:
    if mountain > 0.3 and noise(s, g, _CAVE + at) > 0.15:
        return PATH
    if noise(s, g, _ACROSS + at) > 0.4 or noise(s, g, _DOWNWARD + at) > 0.4:
        return PATH | _TUNNEL
    if noise(s, g, _COAL + at) > 0 and _draw_chance(s, _COAL_CHANCE):
        return COAL
    if noise(s, g, _IRON + at) > 0.4 and _draw_chance(s, _IRON_CHANCE):
        return IRON
    if mountain > 0.18 and _draw_chance(s, _DIAMOND_CHANCE):
        return DIAMOND
    if mountain > 0.3 and noise(s, g, _LAVA + at) > s.parameters[_LAVA_LEVEL]:
        return LAVA
    return STONE


@inlined
def _populate(s: State, x: int, y: int, material: int) -> None:
    """Put a creature on a cell, by chance."""
    centre_distance = _centre_distance(x, y)
    if not WALK >> (material & ~_TUNNEL) & 1:
        return
    if centre_distance > 3 and material == GRASS and _draw_chance(s, _COW_CHANCE):
        add_thing(s, COW, x, y, _COW_HEALTH, STAY)
    elif centre_distance > s.parameters[_CLEAR] and _draw_chance(s, _ZOMBIE_CHANCE):
        add_thing(s, ZOMBIE, x, y, _ZOMBIE_HEALTH, STAY)
    elif material & _TUNNEL and _draw_chance(s, _SKELETON_CHANCE):
        add_thing(s, SKELETON, x, y, _SKELETON_HEALTH, STAY)


@inlined
def _reset_state(s: State, seed: int, episode: int) -> None:
    """Reset everything except the terrain: an empty map and a player in full health."""
    length = s.scalars[LENGTH]
    for i in range(SCALARS):
        if i != POSITION:
            s.scalars[i] = 0
    s.scalars[SEED] = seed
    s.scalars[EPISODE] = episode
    s.scalars[LENGTH] = length
    s.scalars[FACING] = DOWN
    for i in range(_VITALS):
        s.scalars[INVENTORY + i] = MAX_ITEM
    s.scalars[FELT_HEALTH] = s.scalars[PAID_HEALTH] = MAX_ITEM
    for i in range(CHUNKS * CHUNK_FIELDS):
        s.chunks[i] = 0
    for cell in range(CELLS):
        s.occupants[cell] = 0


@kernel
def generate(s: State, geometry_address: int, seed: int, episode: int) -> None:
    """Generate the world of (seed, episode); LENGTH and the parameters are already set."""
    g = geometry(geometry_address)
    seed_generator(s, _episode_seed(seed, episode))
    choose_gradients(s, g, randint(s, 2147483647))
    for cell in range(CELLS):
        s.materials[cell] = 0
    for x in range(AREA):
        for y in range(AREA):
            s.materials[cell_at(x, y)] = _choose_material(s, g, x, y)
    _reset_state(s, seed, episode)
    add_thing(s, PLAYER, _CENTRE, _CENTRE, 0, STAY)
    for x in range(AREA):
        for y in range(AREA):
            cell = cell_at(x, y)
            material = s.materials[cell]
            s.materials[cell] = 0
            set_material(s, x, y, material & ~_TUNNEL)
            _populate(s, x, y, material)
