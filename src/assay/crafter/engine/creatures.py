"""Behaviour of cows, zombies, skeletons, arrows and plants in one step.

A creature without health removes itself from the map and, as in the reference, still finishes
its turn at its old position: it draws its random numbers, attacks and shoots.
"""

from typing import Final

from assay.crafter.engine.grid import (
    ARROW,
    COW,
    DOWN,
    DX,
    DY,
    FLY,
    LEFT,
    OFFSET,
    PLANT,
    RIGHT,
    SKELETON,
    STAY,
    UP,
    WALK,
    ZOMBIE,
    add_thing,
    cell_at,
    distance,
    material_mask,
    move_thing,
    remove_thing,
    set_material,
)
from assay.crafter.engine.jit import inlined, kernel
from assay.crafter.engine.layout import (
    AIM,
    CLOCK,
    FIELDS,
    HEALTH,
    INVENTORY,
    KIND,
    SLEEPING,
    State,
    X,
    Y,
)
from assay.crafter.engine.mt19937 import randint, uniform
from assay.crafter.rules import CREATURES, ITEMS, MATERIALS

_PLAYER_HEALTH: Final = INVENTORY + ITEMS.index("health")
_BITE: Final = CREATURES["zombie"].damage
_BITE_ASLEEP: Final = CREATURES["zombie"].damage_asleep
_ARROW_DAMAGE: Final = CREATURES["skeleton"].damage
_PATH: Final = MATERIALS.index("path")
_BREAKABLE: Final = material_mask("table", "furnace")
_FULLY_GROWN: Final = 32_000
"""Upper limit of the growth counter; a plant is ripe long before."""


@kernel
def update(s: State, slot: int, kind: int) -> None:
    """Carry out the turn of a thing other than the player."""
    if kind == ARROW:
        _step_arrow(s, slot)
        return
    if kind == PLANT:
        _step_plant(s, slot)
        return
    alive = s.things[slot * FIELDS + HEALTH] > 0
    if not alive:
        remove_thing(s, slot)
    if kind == COW:
        if uniform(s) < 0.5:
            _try_move(s, slot, alive, randint(s, 4))
    elif kind == ZOMBIE:
        _step_zombie(s, slot, alive)
    elif kind == SKELETON:
        _step_skeleton(s, slot, alive)


@kernel
def _try_move(s: State, slot: int, alive: bool, direction: int) -> bool:
    """Move a creature if possible; for a removed one, only return whether it could move."""
    if alive:
        return move_thing(s, slot, direction, WALK)
    base = slot * FIELDS
    target = cell_at(s.things[base + X], s.things[base + Y]) + OFFSET[direction]
    return not s.occupants[target] and bool(WALK >> s.materials[target] & 1)


@inlined
def _direction_to_player(s: State, slot: int, long_axis: bool) -> int:
    """Return the direction to the player along the longer or the shorter axis."""
    base = slot * FIELDS
    dx, dy = s.things[X] - s.things[base + X], s.things[Y] - s.things[base + Y]
    horizontal = abs(dx) > abs(dy) if long_axis else abs(dx) <= abs(dy)
    if horizontal:
        return LEFT if dx < 0 else RIGHT if dx > 0 else STAY
    return UP if dy < 0 else DOWN if dy > 0 else STAY


@inlined
def _opposite(direction: int) -> int:
    # LEFT and RIGHT differ in their last bit, and so do UP and DOWN.
    return direction if direction == STAY else direction ^ 1


@inlined
def _player_distance(s: State, slot: int) -> int:
    return distance(s, s.things[slot * FIELDS + X], s.things[slot * FIELDS + Y])


@inlined
def _step_zombie(s: State, slot: int, alive: bool) -> None:
    if _player_distance(s, slot) <= 8 and uniform(s) < 0.9:
        _try_move(s, slot, alive, _direction_to_player(s, slot, uniform(s) < 0.8))
    else:
        _try_move(s, slot, alive, randint(s, 4))
    if _player_distance(s, slot) <= 1:
        clock = slot * FIELDS + CLOCK
        if s.things[clock]:
            s.things[clock] -= 1
        else:
            bite = _BITE_ASLEEP if s.scalars[SLEEPING] else _BITE
            s.scalars[_PLAYER_HEALTH] = max(0, s.scalars[_PLAYER_HEALTH] - bite)
            s.things[clock] = 5


@inlined
def _step_skeleton(s: State, slot: int, alive: bool) -> None:
    clock = slot * FIELDS + CLOCK
    s.things[clock] = max(0, s.things[clock] - 1)
    gap = _player_distance(s, slot)
    if gap <= 3:
        away = _opposite(_direction_to_player(s, slot, uniform(s) < 0.6))
        if _try_move(s, slot, alive, away):
            return
    if gap <= 5 and uniform(s) < 0.5:
        _shoot(s, slot)
    elif gap <= 8 and uniform(s) < 0.3:
        _try_move(s, slot, alive, _direction_to_player(s, slot, uniform(s) < 0.6))
    elif uniform(s) < 0.2:
        _try_move(s, slot, alive, randint(s, 4))


@inlined
def _shoot(s: State, slot: int) -> None:
    base = slot * FIELDS
    aim = _direction_to_player(s, slot, True)
    if s.things[base + CLOCK] > 0 or aim == STAY:
        return
    x, y = s.things[base + X] + DX[aim], s.things[base + Y] + DY[aim]
    cell = cell_at(x, y)
    if not s.occupants[cell] and FLY >> s.materials[cell] & 1:
        add_thing(s, ARROW, x, y, 0, aim)
        s.things[base + CLOCK] = 4


@kernel
def _step_arrow(s: State, slot: int) -> None:
    base = slot * FIELDS
    aim = s.things[base + AIM]
    x, y = s.things[base + X] + DX[aim], s.things[base + Y] + DY[aim]
    cell = cell_at(x, y)
    if s.occupants[cell]:
        struck = s.occupants[cell] - 1
        health = _PLAYER_HEALTH
        if struck == 0:
            s.scalars[health] = max(0, s.scalars[health] - _ARROW_DAMAGE)
        else:
            health = struck * FIELDS + HEALTH
            s.things[health] = max(0, s.things[health] - _ARROW_DAMAGE)
        remove_thing(s, slot)
    elif FLY >> s.materials[cell] & 1:
        move_thing(s, slot, aim, FLY)
    else:
        remove_thing(s, slot)
        if _BREAKABLE >> s.materials[cell] & 1:
            set_material(s, x, y, _PATH)


@kernel
def _step_plant(s: State, slot: int) -> None:
    base = slot * FIELDS
    s.things[base + CLOCK] = min(s.things[base + CLOCK] + 1, _FULLY_GROWN)
    cell = cell_at(s.things[base + X], s.things[base + Y])
    for direction in range(4):
        beside = s.occupants[cell + OFFSET[direction]]
        if beside and COW <= s.things[(beside - 1) * FIELDS + KIND] <= SKELETON:
            s.things[base + HEALTH] = max(0, s.things[base + HEALTH] - 1)
            break
    if s.things[base + HEALTH] <= 0:
        remove_thing(s, slot)
