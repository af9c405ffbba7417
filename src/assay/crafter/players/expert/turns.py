"""Several actions from one view: planning ahead, and catching up in the next turn.

The expert plans by acting on predicted views, action by action. Predictions use the memory and
the rules only: cells that were never seen stay unknown, creatures do not move, and hunger,
thirst and chance are ignored. Its state is saved before it plans ahead, so that it contains
only facts. In the next turn it replays the actions and selects the course of events that fits
the new view: a creature may have blocked a move. If the ground looks the same everywhere, that
cannot be detected; the map is then off by one cell, and discarded once it contradicts a view.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.policy import ExpertPolicy
from assay.crafter.players.expert.state import MAX_WALKED, is_within
from assay.crafter.players.expert.terrain import (
    ACROSS,
    ARROW,
    CORNER,
    COW,
    DO,
    HIGH,
    MIDDLE,
    MOVE,
    NOOP,
    OPEN,
    PLANT,
    PLAYER,
    SKELETON,
    SLEEP,
    STEPS,
    STRIDE,
    UNKNOWN,
    ZOMBIE,
    Goal,
)
from assay.crafter.rules import (
    ACTIONS,
    COLLECT,
    CREATURES,
    DAMAGE,
    FOOD,
    MAKE,
    MATERIALS,
    MAX_ITEM,
    PLACE,
)
from assay.crafter.view import View

_COLLECT: Final = {MATERIALS.index(name): rule for name, rule in COLLECT.items()}
_PLACEABLE_ON: Final = {
    name: tuple(MATERIALS.index(material) for material in rule.where)
    for name, rule in PLACE.items()
}
"""Materials that each thing can be placed on."""


class Prediction(NamedTuple):
    """Predicted result of an action."""

    view: View
    """The next view; unknown materials are UNKNOWN."""
    here: int
    """The next position of the player."""


def predict(memory: Memory, action: int, *, blocked: bool = False) -> Prediction:
    """Predict the view after an action; a `blocked` move only turns the player."""
    scene = _Scene(memory)
    name = ACTIONS[action]
    if scene.sleeping:
        pass
    elif MOVE <= action < MOVE + len(STEPS):
        scene.move(action - MOVE, blocked)
    elif action == DO:
        scene.use()
    elif action == SLEEP:
        scene.sleeping = scene.inventory["energy"] < MAX_ITEM
    elif name.startswith("place_"):
        scene.place(name.removeprefix("place_"))
    elif name.startswith("make_"):
        scene.make(name.removeprefix("make_"))
    return Prediction(scene.view(), scene.here)


class _Scene:
    """The player and its known surroundings during one action."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.here, self.facing = memory.here, memory.facing
        self.inventory = dict(memory.inventory)
        self.sleeping = memory.sleeping and not memory.could_act
        self.things = (
            dict.fromkeys(memory.cows, COW)
            | dict.fromkeys(memory.skeletons, SKELETON)
            | dict.fromkeys(memory.plants, PLANT)
            | memory.things
        )
        self.ripe = {cell for cell, plant in memory.plants.items() if plant.ripe}
        self.ahead = memory.ground[memory.ahead]
        """Material of the cell that the player faced at the start."""

    def move(self, direction: int, blocked: bool) -> None:
        self.facing = direction
        if not blocked and self.memory.is_free(self.here + STEPS[direction]):
            self.here += STEPS[direction]

    def use(self) -> None:
        inventory, ahead = self.inventory, self.memory.ahead
        if ahead in self.ripe:
            inventory["food"] = min(inventory["food"] + FOOD["plant"], MAX_ITEM)
            self.ripe.discard(ahead)
        rule = _COLLECT.get(self.ahead)
        if ahead in self.memory.things or rule is None or rule.chance < 1:
            return
        if rule.tool is None or inventory[rule.tool]:
            inventory[rule.item] = min(inventory[rule.item] + 1, MAX_ITEM)
            self.ahead = MATERIALS.index(rule.leaves)

    def place(self, name: str) -> None:
        rule, ahead = PLACE[name], self.memory.ahead
        if ahead in self.memory.things or self.ahead not in _PLACEABLE_ON[name]:
            return
        if not _spend(self.inventory, rule.uses):
            return
        if name == "plant":
            self.things[ahead] = PLANT
        else:
            self.ahead = MATERIALS.index(name)

    def make(self, name: str) -> None:
        if _spend(self.inventory, MAKE[name].uses):
            self.inventory[name] = min(self.inventory[name] + 1, MAX_ITEM)

    def view(self) -> View:
        materials = _known_materials(self.memory, self.here)
        materials[_view_index(self.memory.ahead, self.here)] = self.ahead
        objects, details = bytearray(ACROSS * HIGH), bytearray(ACROSS * HIGH)
        for cell, thing in self.things.items():
            k = _view_index(cell, self.here)
            if k >= 0:
                objects[k], details[k] = thing, cell in self.ripe
        objects[MIDDLE], details[MIDDLE] = PLAYER, self.facing + 1
        return View(
            materials=_to_array(materials),
            objects=_to_array(objects),
            details=_to_array(details),
            inventory=self.inventory,
            sleeping=self.sleeping,
            daylight=self.memory.daylight,
            step=self.memory.step + 1,
        )


def _spend(inventory: dict[str, int], uses: Mapping[str, int]) -> bool:
    if any(inventory[item] < count for item, count in uses.items()):
        return False
    for item, count in uses.items():
        inventory[item] -= count
    return True


def _known_materials(memory: Memory, here: int) -> bytearray:
    """Return the known materials in view from a cell."""
    left, ground = here + CORNER, memory.ground
    columns = range(left, left + ACROSS * STRIDE, STRIDE)
    return bytearray(b"".join([ground[at : at + HIGH] for at in columns]))


def _view_index(cell: int, here: int) -> int:
    """Return the index of a cell in the view from `here`, or -1."""
    x, y = divmod(cell, STRIDE)
    here_x, here_y = divmod(here, STRIDE)
    x, y = x - here_x + ACROSS // 2, y - here_y + HIGH // 2
    return x * HIGH + y if 0 <= x < ACROSS and 0 <= y < HIGH else -1


def _to_array(cells: bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(bytes(cells), np.uint8).reshape(ACROSS, HIGH)


_MAX_MISMATCHES: Final = 3
"""Maximum number of visible cells that differ from the map; with more, the map is wrong."""
_MAX_DANGER_DISTANCE: Final = 9
"""Maximum distance, over open ground, at which a creature counts as a danger."""
_MARGIN: Final = {ZOMBIE: 2, ARROW: 2, SKELETON: 1}
"""Minimum distance of each danger at the end of the planned actions."""
_WEAK, _WARY = 4, 2
"""With health up to the first number, the minimum distance grows by the second."""
_PATIENT: Final = (Goal.REST, Goal.SLEEP, Goal.WAIT_FOR_PLANT)
"""Goals for which doing nothing is intended."""
_ATTACKED_HEALTH: Final = {COW: CREATURES["cow"].health, ZOMBIE: CREATURES["zombie"].health}
"""Health of the creatures that are attacked repeatedly without a new view."""
_CREATURES: Final = (COW, ZOMBIE, SKELETON)
_MAX_UNCERTAIN: Final = 4
"""Maximum number of uncertain moves per turn, so that at most 16 courses are tried."""


class Turn(NamedTuple):
    """Decision from one view."""

    actions: tuple[int, ...]
    """Indices into `ACTIONS`, at least one."""
    goal: Goal
    state: bytes
    """State for `catch_up` in the next turn."""


def plan(policy: ExpertPolicy, view: View, most: int) -> Turn:
    """Plan the actions after a view: one, or up to `most` if their effects are predictable.

    Afterwards the policy contains predictions; only the returned state is useful.
    """
    memory = policy.memory
    actions = [policy.act(view)]
    goal, state = policy.goal, policy.dump()
    safe_actions, attacks = _count_safe_actions(memory), 0
    while len(actions) < most:
        action = actions[-1]
        if action == DO and memory.ahead in memory.things:
            attacks += 1
            if not _should_attack_again(memory, attacks):
                break
        elif len(actions) > safe_actions:
            break
        action = policy.act(predict(memory, action).view)
        if memory.sleeping:
            # If an attack wakes the player, sleeping again would be dangerous.
            action = NOOP
            policy.took(action)
        elif not _is_predictable(memory, policy.goal, action):
            break
        actions.append(action)
    return Turn(tuple(actions), goal, state)


def _should_attack_again(memory: Memory, attacks: int) -> bool:
    """Return whether the creature ahead may be alive, and can be attacked without a view."""
    health = _ATTACKED_HEALTH.get(memory.things[memory.ahead], 0)
    inventory = memory.inventory
    damage = max(n for weapon, n in DAMAGE.items() if inventory.get(weapon, 1))
    return attacks * damage < health and inventory["health"] >= _WEAK


def _count_safe_actions(memory: Memory) -> int:
    """Return how many actions are safe before a dangerous creature is near."""
    margins = {
        cell: _MARGIN[thing] for cell, thing in memory.things.items() if thing in _MARGIN
    }
    if not margins:
        return sys.maxsize
    wary = _WARY if memory.inventory["health"] <= _WEAK else 0
    ground = memory.ground
    safe_actions = sys.maxsize
    distances, edge = {memory.here: 0}, [memory.here]
    for cell in edge:
        for near in (cell + step for step in STEPS):
            if near in distances or not OPEN[ground[near]]:
                continue
            distances[near] = distances[cell] + 1
            if near in margins:
                safe_actions = min(safe_actions, distances[near] - margins[near] - wary)
            if distances[near] < _MAX_DANGER_DISTANCE:
                edge.append(near)
    return safe_actions


def _is_predictable(memory: Memory, goal: Goal, action: int) -> bool:
    """Return whether an action makes sense without a view and can be verified later."""
    if action == NOOP:
        return goal in _PATIENT
    if _is_move(action):
        # If a creature has left, the player walks instead of turning.
        return memory.things.get(memory.here + STEPS[action - MOVE]) not in _CREATURES
    return True


def catch_up(
    seed: int,
    state: bytes,
    actions: Sequence[int],
    view: View,
    *,
    failed: Collection[int] = (),
) -> ExpertPolicy:
    """Restore an expert from a state, after actions that led to a view.

    `failed` has the indices of actions known to have had no effect. A state that is damaged or
    does not fit the view is discarded.
    """
    best: tuple[int, ExpertPolicy] | None = None
    for blocked in _list_courses(actions, failed):
        policy = ExpertPolicy.load(seed, state)
        if policy is None or not policy.memory.inventory:
            break
        played = view.step - policy.memory.step
        if not 0 <= played <= len(actions):
            break
        mismatches = _replay(policy, actions[:played], blocked, view)
        if best is None or mismatches < best[0]:
            best = mismatches, policy
        if not mismatches:
            break
    return best[1] if best and best[0] <= _MAX_MISMATCHES else ExpertPolicy(seed)


def _list_courses(actions: Sequence[int], failed: Collection[int]) -> Iterator[frozenset[int]]:
    """Yield possible sets of blocked moves, the most likely first."""
    # The first action was chosen with a current view.
    moves = [i for i, action in enumerate(actions) if i and _is_move(action)]
    blocked = frozenset(i for i in moves if i in failed)
    # A move that turned the player counts as effective even if it was blocked.
    uncertain = [i for i in moves if i not in failed and actions[i] != _last_move(actions[:i])]
    for count in range(len(uncertain[:_MAX_UNCERTAIN]) + 1):
        for others in combinations(uncertain[:_MAX_UNCERTAIN], count):
            yield blocked.union(others)


def _is_move(action: int) -> bool:
    return MOVE <= action < MOVE + len(STEPS)


def _last_move(actions: Sequence[int]) -> int | None:
    return next((action for action in reversed(actions) if _is_move(action)), None)


def _replay(
    policy: ExpertPolicy, actions: Sequence[int], blocked: frozenset[int], view: View
) -> int:
    """Replay the actions; return how many visible cells differ from the prediction."""
    memory = policy.memory
    for i, action in enumerate(actions or (NOOP,)):
        prediction = predict(memory, action, blocked=i in blocked)
        policy.took(NOOP if i in blocked else action)
        if i < len(actions) - 1:
            memory.update(prediction.view)
    if not is_within(prediction.here, MAX_WALKED):
        return _MAX_MISMATCHES + 1
    expected = prediction.view.materials
    return int(np.count_nonzero((expected != view.materials) & (expected != UNKNOWN)))
