"""Effects of one action on the player and the cell it faces, and the player's needs."""

from typing import Final

import numpy as np

from assay.crafter.engine.grid import (
    ARROW,
    COW,
    DX,
    DY,
    OFFSET,
    PLANT,
    PLAYER_WALK,
    SKELETON,
    STAY,
    ZOMBIE,
    add_thing,
    cell_at,
    material_mask,
    move_thing,
    set_material,
)
from assay.crafter.engine.jit import inlined, kernel
from assay.crafter.engine.layout import (
    CLOCK,
    COUNTS,
    FACING,
    FATIGUE,
    FELT_HEALTH,
    FIELDS,
    HEALTH,
    HUNGER,
    INVENTORY,
    KIND,
    NEW,
    RECOVER,
    SLEEPING,
    THIRST,
    WIDTH,
    State,
    X,
    Y,
)
from assay.crafter.engine.mt19937 import uniform
from assay.crafter.rules import (
    ACHIEVEMENTS,
    ACTIONS,
    COLLECT,
    DAMAGE,
    FOOD,
    ITEMS,
    MAKE,
    MATERIALS,
    MAX_ITEM,
    PLACE,
    RECOVER_AFTER,
    REST_AFTER,
    RIPE_AFTER,
    SUFFER_AFTER,
    WEAR,
    NoEffect,
)

# In compiled code a reason is its index here; 0 means no reason.
REASONS: Final = (None, *NoEffect)
_CODE: Final = {reason: code for code, reason in enumerate(REASONS)}
_BLOCKED, _NOTHING = _CODE[NoEffect.BLOCKED], _CODE[NoEffect.NOTHING_THERE]
_NOT_RIPE, _NO_TOOL = _CODE[NoEffect.NOT_RIPE], _CODE[NoEffect.NEEDS_TOOL]
_NO_ROOM, _NOT_NEARBY = _CODE[NoEffect.NO_ROOM], _CODE[NoEffect.NEEDS_NEARBY]
_NO_ITEMS, _ASLEEP = _CODE[NoEffect.NEEDS_ITEMS], _CODE[NoEffect.ASLEEP]

_MOVE: Final = ACTIONS.index("move_left")
_DO: Final = ACTIONS.index("do")
_SLEEP: Final = ACTIONS.index("sleep")
_PLACE: Final = ACTIONS.index(f"place_{next(iter(PLACE))}")
_MAKE: Final = ACTIONS.index(f"make_{next(iter(MAKE))}")
_PLACE_PLANT: Final = ACTIONS.index("place_plant")


def _index(item: str) -> int:
    return INVENTORY + ITEMS.index(item)


_HEALTH, _FOOD, _DRINK, _ENERGY = (_index(n) for n in ("health", "food", "drink", "energy"))
_EAT_COW, _EAT_PLANT = ACHIEVEMENTS.index("eat_cow"), ACHIEVEMENTS.index("eat_plant")
_DEFEAT_ZOMBIE = ACHIEVEMENTS.index("defeat_zombie")
_DEFEAT_SKELETON = ACHIEVEMENTS.index("defeat_skeleton")
_WAKE_UP = ACHIEVEMENTS.index("wake_up")
_LAVA, _WATER = MATERIALS.index("lava"), MATERIALS.index("water")
_IRON_SWORD, _STONE_SWORD, _WOOD_SWORD = (
    _index(f"{name}_sword") for name in ("iron", "stone", "wood")
)
_COW_FOOD, _PLANT_FOOD = FOOD["cow"], FOOD["plant"]
_HUNGRY_AFTER, _THIRSTY_AFTER, _TIRED_AFTER = WEAR["food"], WEAR["drink"], WEAR["energy"]
_IRON_BLOW, _STONE_BLOW, _WOOD_BLOW, _BARE_BLOW = DAMAGE.values()

# The recipes as rows of scalar indices.
# Collecting, by material: item, its achievement, tool (-1: none), material left behind.
_COLLECT: Final = np.full((len(MATERIALS), 4), -1)
_CHANCE: Final = np.zeros(len(MATERIALS))
for _name, _rule in COLLECT.items():
    _COLLECT[MATERIALS.index(_name)] = (
        _index(_rule.item),
        ACHIEVEMENTS.index(f"collect_{_rule.item}"),
        _index(_rule.tool) if _rule.tool else -1,
        MATERIALS.index(_rule.leaves),
    )
    _CHANCE[MATERIALS.index(_name)] = _rule.chance

# Placing, by action: the item it uses, how many, mask of allowed materials, the material placed
# (-1: a plant), its achievement.
_PLACING: Final = np.array(
    [
        (
            _index(*rule.uses),
            *rule.uses.values(),
            material_mask(*rule.where),
            MATERIALS.index(name) if name in MATERIALS else -1,
            ACHIEVEMENTS.index(f"place_{name}"),
        )
        for name, rule in PLACE.items()
    ]
)

# Making, by action: the item made, its achievement, mask of materials that must be near.
_MAKING: Final = np.array(
    [
        (_index(name), ACHIEVEMENTS.index(f"make_{name}"), material_mask(*rule.nearby))
        for name, rule in MAKE.items()
    ]
)
_MAKING_USES: Final = np.array(
    [[rule.uses.get(item, 0) for item in ITEMS] for rule in MAKE.values()]
)
_ITEMS: Final = len(ITEMS)


@inlined
def _count_achievement(s: State, achievement: int) -> None:
    s.scalars[COUNTS + achievement] += 1
    if s.scalars[COUNTS + achievement] == 1:
        s.scalars[NEW] |= 1 << achievement


@kernel
def act(s: State, action: int) -> int:
    """Carry out an action and update the needs; return why it had no effect, or 0."""
    reason = 0
    awake = True
    if s.scalars[SLEEPING]:
        if s.scalars[_ENERGY] < MAX_ITEM:
            awake = False
            if action != 0 and action != _SLEEP:
                reason = _ASLEEP
        else:
            s.scalars[SLEEPING] = 0
            _count_achievement(s, _WAKE_UP)
    if awake:
        if action < _DO:
            if action >= _MOVE:
                reason = _walk(s, action - _MOVE)
        elif action == _DO:
            reason = _use_facing(s)
        elif action == _SLEEP:
            if s.scalars[_ENERGY] < MAX_ITEM:
                s.scalars[SLEEPING] = 1
        elif action < _MAKE:
            reason = _place(s, action - _PLACE)
        else:
            reason = _make(s, action - _MAKE)
    _update_needs(s)
    return reason


@inlined
def _walk(s: State, direction: int) -> int:
    turned = s.scalars[FACING] != direction
    s.scalars[FACING] = direction
    moved = move_thing(s, 0, direction, PLAYER_WALK)
    if s.materials[cell_at(s.things[X], s.things[Y])] == _LAVA:
        s.scalars[_HEALTH] = 0
    return 0 if moved or turned else _BLOCKED


@inlined
def _attack_damage(s: State) -> int:
    if s.scalars[_IRON_SWORD]:
        return _IRON_BLOW
    if s.scalars[_STONE_SWORD]:
        return _STONE_BLOW
    return _WOOD_BLOW if s.scalars[_WOOD_SWORD] else _BARE_BLOW


@kernel
def _use_facing(s: State) -> int:
    x, y = s.things[X], s.things[Y]
    facing = s.scalars[FACING]
    target = cell_at(x, y) + OFFSET[facing]
    if s.occupants[target]:
        return _use_thing(s, (s.occupants[target] - 1) * FIELDS)
    return _collect(s, x + DX[facing], y + DY[facing], s.materials[target])


@inlined
def _use_thing(s: State, base: int) -> int:
    kind = s.things[base + KIND]
    if kind == PLANT:
        if s.things[base + CLOCK] <= RIPE_AFTER:
            return _NOT_RIPE
        s.things[base + CLOCK] = 0
        s.scalars[_FOOD] += _PLANT_FOOD
        _count_achievement(s, _EAT_PLANT)
        return 0
    if kind == ARROW:
        return _NOTHING
    health = max(0, s.things[base + HEALTH] - _attack_damage(s))
    s.things[base + HEALTH] = health
    if health == 0:
        if kind == ZOMBIE:
            _count_achievement(s, _DEFEAT_ZOMBIE)
        elif kind == SKELETON:
            _count_achievement(s, _DEFEAT_SKELETON)
        elif kind == COW:
            s.scalars[_FOOD] += _COW_FOOD
            s.scalars[HUNGER] = 0
            _count_achievement(s, _EAT_COW)
    return 0


@inlined
def _collect(s: State, x: int, y: int, material: int) -> int:
    if material == _WATER:
        s.scalars[THIRST] = 0
    item, tool = _COLLECT[material, 0], _COLLECT[material, 2]
    if item < 0:
        return _NOTHING
    if tool >= 0 and s.scalars[tool] < 1:
        return _NO_TOOL
    if _COLLECT[material, 3] != material:
        set_material(s, x, y, _COLLECT[material, 3])
    # The reference draws a number even if the chance is 1.
    if uniform(s) <= _CHANCE[material]:
        s.scalars[item] += 1
        _count_achievement(s, _COLLECT[material, 1])
    return 0


@kernel
def _place(s: State, recipe: int) -> int:
    facing = s.scalars[FACING]
    x, y = s.things[X] + DX[facing], s.things[Y] + DY[facing]
    cell = cell_at(x, y)
    if s.occupants[cell] or not _PLACING[recipe, 2] >> s.materials[cell] & 1:
        return _NO_ROOM
    item, amount = _PLACING[recipe, 0], _PLACING[recipe, 1]
    if s.scalars[item] < amount:
        return _NO_ITEMS
    s.scalars[item] -= amount
    if _PLACING[recipe, 3] < 0:
        add_thing(s, PLANT, x, y, 1, STAY)
    else:
        set_material(s, x, y, _PLACING[recipe, 3])
    _count_achievement(s, _PLACING[recipe, 4])
    return 0


@inlined
def _find_nearby(s: State) -> int:
    """Return the materials within one cell of the player, as a mask."""
    x, y = s.things[X], s.things[Y]
    # There the reference slices its map with a negative index, and finds nothing.
    if x == 0 or y == 0:
        return 0
    mask = 0
    for dx in range(-1, 2):
        row = cell_at(x, y) + dx * WIDTH
        for dy in range(-1, 2):
            mask |= 1 << s.materials[row + dy]
    return mask


@kernel
def _make(s: State, recipe: int) -> int:
    needed = _MAKING[recipe, 2]
    if _find_nearby(s) & needed != needed:
        return _NOT_NEARBY
    for item in range(_ITEMS):
        if s.scalars[INVENTORY + item] < _MAKING_USES[recipe, item]:
            return _NO_ITEMS
    for item in range(_ITEMS):
        s.scalars[INVENTORY + item] -= _MAKING_USES[recipe, item]
    s.scalars[_MAKING[recipe, 0]] += 1
    _count_achievement(s, _MAKING[recipe, 1])
    return 0


@inlined
def _update_needs(s: State) -> None:
    """Update hunger, thirst, fatigue and health for one step; then clip the inventory."""
    asleep = s.scalars[SLEEPING] != 0
    pace = 1 if asleep else 2
    s.scalars[HUNGER] += pace
    if s.scalars[HUNGER] > 2 * _HUNGRY_AFTER:
        s.scalars[HUNGER] = 0
        s.scalars[_FOOD] -= 1
    s.scalars[THIRST] += pace
    if s.scalars[THIRST] > 2 * _THIRSTY_AFTER:
        s.scalars[THIRST] = 0
        s.scalars[_DRINK] -= 1
    fatigue = min(s.scalars[FATIGUE] - 1, 0) if asleep else s.scalars[FATIGUE] + 1
    if fatigue < -REST_AFTER:
        fatigue = 0
        s.scalars[_ENERGY] += 1
    elif fatigue > _TIRED_AFTER:
        fatigue = 0
        s.scalars[_ENERGY] -= 1
    s.scalars[FATIGUE] = fatigue
    fed = s.scalars[_FOOD] > 0 and s.scalars[_DRINK] > 0
    if fed and (s.scalars[_ENERGY] > 0 or asleep):
        s.scalars[RECOVER] += 4 if asleep else 2
    else:
        s.scalars[RECOVER] -= pace
    if s.scalars[RECOVER] > 2 * RECOVER_AFTER:
        s.scalars[RECOVER] = 0
        s.scalars[_HEALTH] += 1
    elif s.scalars[RECOVER] < -2 * SUFFER_AFTER:
        s.scalars[RECOVER] = 0
        s.scalars[_HEALTH] = max(0, s.scalars[_HEALTH] - 1)
    for item in range(INVENTORY, INVENTORY + _ITEMS):
        s.scalars[item] = max(0, min(s.scalars[item], MAX_ITEM))
    if s.scalars[_HEALTH] < s.scalars[FELT_HEALTH]:
        s.scalars[SLEEPING] = 0
    s.scalars[FELT_HEALTH] = s.scalars[_HEALTH]
