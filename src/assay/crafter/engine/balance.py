"""Spawning and despawning of creatures, per chunk, every tenth step."""

from typing import Final

from assay.crafter.engine.grid import (
    COW,
    SKELETON,
    STAY,
    ZOMBIE,
    add_thing,
    cell_at,
    distance,
    remove_thing,
)
from assay.crafter.engine.jit import inlined, kernel
from assay.crafter.engine.layout import (
    CHUNK_FIELDS,
    CHUNKS_ACROSS,
    COWS,
    FIELDS,
    FIRST,
    GRASS,
    KIND,
    NEXT,
    OPENED,
    PATH,
    SKELETONS,
    STEP,
    ZOMBIES,
    State,
    X,
    Y,
)
from assay.crafter.engine.mt19937 import randint, uniform
from assay.crafter.engine.numerics import TENTH_DAYLIGHT
from assay.crafter.engine.worldgen import PARAMETER
from assay.crafter.rules import AREA, CHUNK, CREATURES, MATERIALS

_GRASS: Final = MATERIALS.index("grass")
_PATH: Final = MATERIALS.index("path")
_COW_HEALTH: Final = CREATURES["cow"].health
_ZOMBIE_HEALTH: Final = CREATURES["zombie"].health
_SKELETON_HEALTH: Final = CREATURES["skeleton"].health
_COW_SPAWN: Final = PARAMETER["cow_spawn_chance"]
_ZOMBIE_SPAWN: Final = PARAMETER["zombie_spawn_chance"]
_ZOMBIE_DISTANCE: Final = PARAMETER["zombie_spawn_distance"]
_BY_NIGHT: Final = PARAMETER["zombies_by_night"]
_BY_DAY: Final = PARAMETER["zombies_by_day"]
_SKELETON_SPAWN: Final = PARAMETER["skeleton_spawn_chance"]
_SKELETONS_AT_MOST: Final = PARAMETER["skeletons_at_most"]


@kernel
def balance(s: State) -> None:
    """Spawn or despawn creatures in every chunk that has ever contained a thing."""
    light = TENTH_DAYLIGHT[s.scalars[STEP] // 10]
    by_night = s.parameters[_BY_NIGHT]
    zombies = int(by_night - (by_night - s.parameters[_BY_DAY]) * light)
    cows = int(1.5 + light)
    skeletons = int(s.parameters[_SKELETONS_AT_MOST])
    zombie_chance = s.parameters[_ZOMBIE_SPAWN]
    zombie_distance = s.parameters[_ZOMBIE_DISTANCE]
    for i in range(s.scalars[OPENED]):
        chunk = s.chunk_order[i]
        here = chunk * CHUNK_FIELDS
        count = s.chunks[here + ZOMBIES]
        if count < (zombies if s.chunks[here + GRASS] >= 50 else 0):
            if uniform(s) < zombie_chance:
                _spawn(s, chunk, ZOMBIE, _GRASS, zombie_distance)
        elif count > zombies and uniform(s) < 0.4:
            _despawn(s, chunk, ZOMBIE, count, 0)
        count = s.chunks[here + SKELETONS]
        if count < (1 if s.chunks[here + PATH] >= 6 else 0):
            if uniform(s) < s.parameters[_SKELETON_SPAWN]:
                _spawn(s, chunk, SKELETON, _PATH, 7.0)
        elif count > skeletons and uniform(s) < 0.1:
            _despawn(s, chunk, SKELETON, count, 7)
        count = s.chunks[here + COWS]
        if count < (1 if s.chunks[here + GRASS] >= 30 else 0):
            if uniform(s) < s.parameters[_COW_SPAWN]:
                _spawn(s, chunk, COW, _GRASS, 5.0)
        elif count > cows and uniform(s) < 0.1:
            _despawn(s, chunk, COW, count, 5)


@inlined
def _initial_health(kind: int) -> int:
    if kind == COW:
        return _COW_HEALTH
    return _ZOMBIE_HEALTH if kind == ZOMBIE else _SKELETON_HEALTH


@kernel
def _spawn(s: State, chunk: int, kind: int, material: int, nearest: float) -> None:
    """Put a creature on a random cell of a material, unless occupied or too near the player."""
    field = GRASS if material == _GRASS else PATH
    pick = randint(s, s.chunks[chunk * CHUNK_FIELDS + field])
    left, top = chunk // CHUNKS_ACROSS * CHUNK, chunk % CHUNKS_ACROSS * CHUNK
    for x in range(left, min(left + CHUNK, AREA)):
        for y in range(top, min(top + CHUNK, AREA)):
            cell = cell_at(x, y)
            if s.materials[cell] == material:
                if pick == 0:
                    if not s.occupants[cell] and distance(s, x, y) >= nearest:
                        add_thing(s, kind, x, y, _initial_health(kind), STAY)
                    return
                pick -= 1


@kernel
def _despawn(s: State, chunk: int, kind: int, count: int, nearest: int) -> None:
    """Remove a random creature of a kind, unless it is too near the player."""
    pick = randint(s, count)
    slot = s.chunks[chunk * CHUNK_FIELDS + FIRST]
    while slot >= 0:
        base = slot * FIELDS
        if s.things[base + KIND] == kind:
            if pick == 0:
                if distance(s, s.things[base + X], s.things[base + Y]) >= nearest:
                    remove_thing(s, slot)
                return
            pick -= 1
        slot = s.things[base + NEXT]
