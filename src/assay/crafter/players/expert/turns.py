"""Several actions from one view: how far the expert looks ahead, and how it catches up.

The expert plans by acting on what it foresees, action by action. Only facts go into its
state, which is taken before it looks ahead. In the next turn it goes through the actions
again and takes the course of events that fits what it then sees: where it turned blindly, a
creature may have stood in its way. On even ground that cannot be told; the map is then off by
a cell, and forgotten once it contradicts a view.

What the expert would see after an action, if nothing moved but the player.

Made from the memory and the rules alone. Cells that were never seen stay unknown, creatures
stay where they are, and hunger, thirst and chance are left out.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.policy import ExpertPolicy
from assay.crafter.players.expert.state import WALKED, within
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
_ROOM: Final = {
    name: tuple(MATERIALS.index(material) for material in rule.where)
    for name, rule in PLACE.items()
}
"""The materials that each thing can be placed on."""


def foresee(memory: Memory, action: int, *, stays: bool = False) -> tuple[View, int]:
    """Return the next view after an action, and the cell of the player then.

    Materials that are not known are UNKNOWN. With `stays` a move only turns the player.
    """
    scene = _Scene(memory)
    name = ACTIONS[action]
    if scene.sleeping:
        pass
    elif MOVE <= action < MOVE + len(STEPS):
        scene.move(action - MOVE, stays)
    elif action == DO:
        scene.use()
    elif action == SLEEP:
        scene.sleeping = scene.inventory["energy"] < MAX_ITEM
    elif name.startswith("place_"):
        scene.place(name.removeprefix("place_"))
    elif name.startswith("make_"):
        scene.make(name.removeprefix("make_"))
    return scene.view(), scene.here


class _Scene:
    """The player and what it knows around it, for one action."""

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
        """The material ahead of where the player was."""

    def move(self, direction: int, stays: bool) -> None:
        self.facing = direction
        if not stays and self.memory.free(self.here + STEPS[direction]):
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
        if ahead in self.memory.things or self.ahead not in _ROOM[name]:
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
        materials = _window(self.memory, self.here)
        materials[_place_in(self.memory.ahead, self.here)] = self.ahead
        objects, details = bytearray(ACROSS * HIGH), bytearray(ACROSS * HIGH)
        for cell, thing in self.things.items():
            k = _place_in(cell, self.here)
            if k >= 0:
                objects[k], details[k] = thing, cell in self.ripe
        objects[MIDDLE], details[MIDDLE] = PLAYER, self.facing + 1
        return View(
            materials=_plane(materials),
            objects=_plane(objects),
            details=_plane(details),
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


def _window(memory: Memory, here: int) -> bytearray:
    """The materials in view from a cell, as far as they are known."""
    left, ground = here + CORNER, memory.ground
    columns = range(left, left + ACROSS * STRIDE, STRIDE)
    return bytearray(b"".join([ground[at : at + HIGH] for at in columns]))


def _place_in(cell: int, here: int) -> int:
    """Where a cell is among those in view from another one; -1 if it is not."""
    x, y = divmod(cell, STRIDE)
    here_x, here_y = divmod(here, STRIDE)
    x, y = x - here_x + ACROSS // 2, y - here_y + HIGH // 2
    return x * HIGH + y if 0 <= x < ACROSS and 0 <= y < HIGH else -1


def _plane(cells: bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(bytes(cells), np.uint8).reshape(ACROSS, HIGH)


_LOST: Final = 3
"""With more cells in view unlike the map than this, the map is wrong."""
_FAR: Final = 9
"""What is further away than this, along open ground, does not count as a danger."""
_MARGIN: Final = {ZOMBIE: 2, ARROW: 2, SKELETON: 1}
"""How far each danger must still be away when the player looks up again."""
_WEAK, _WARY = 4, 2
"""With no more health than this, so much further."""
_PATIENT: Final = (Goal.REST, Goal.SLEEP, Goal.WAIT_FOR_PLANT)
"""When doing nothing is meant, and not for want of knowledge."""
_BLOWS: Final = {COW: CREATURES["cow"].health, ZOMBIE: CREATURES["zombie"].health}
"""What is struck again without looking, and what it can take."""
_CREATURES: Final = (COW, ZOMBIE, SKELETON)
_DOUBTS: Final = 4
"""No more moves than this are doubted in one turn, so at most 16 courses are tried."""


class Turn(NamedTuple):
    """What to do from one view on."""

    actions: tuple[int, ...]
    """Indices into `ACTIONS`, at least one."""
    goal: Goal
    """What the first of them is for."""
    state: bytes
    """What to give to `catch_up` in the next turn."""


def plan(policy: ExpertPolicy, view: View, most: int) -> Turn:
    """What the expert does from a view on: one action, or up to `most` that it can foresee.

    Leaves the policy with what it foresaw; only the state is of further use.
    """
    memory = policy.memory
    actions = [policy.act(view)]
    goal, state = policy.goal, policy.dump()
    quiet, blows = _quiet_for(memory), 0
    while len(actions) < most:
        action = actions[-1]
        if action == DO and memory.ahead in memory.things:
            blows += 1
            if not _strikes_again(memory, blows):
                break
        elif len(actions) > quiet:
            break
        foreseen, _ = foresee(memory, action)
        action = policy.act(foreseen)
        if memory.sleeping:
            # Whoever is woken by a blow had better not lie down again.
            action = NOOP
            policy.took(action)
        elif not _foreseeable(memory, policy.goal, action):
            break
        actions.append(action)
    return Turn(tuple(actions), goal, state)


def _strikes_again(memory: Memory, blows: int) -> bool:
    """Whether what stands ahead can have survived so many blows, and may be struck blindly."""
    health = _BLOWS.get(memory.things[memory.ahead], 0)
    inventory = memory.inventory
    damage = max(n for weapon, n in DAMAGE.items() if inventory.get(weapon, 1))
    return blows * damage < health and inventory["health"] >= _WEAK


def _quiet_for(memory: Memory) -> int:
    """How many actions can be taken before something that bites or shoots is near."""
    margins = {
        cell: _MARGIN[thing] for cell, thing in memory.things.items() if thing in _MARGIN
    }
    if not margins:
        return sys.maxsize
    wary = _WARY if memory.inventory["health"] <= _WEAK else 0
    ground = memory.ground
    quiet = sys.maxsize
    far, edge = {memory.here: 0}, [memory.here]
    for cell in edge:
        for near in (cell + step for step in STEPS):
            if near in far or not OPEN[ground[near]]:
                continue
            far[near] = far[cell] + 1
            if near in margins:
                quiet = min(quiet, far[near] - margins[near] - wary)
            if far[near] < _FAR:
                edge.append(near)
    return quiet


def _foreseeable(memory: Memory, goal: Goal, action: int) -> bool:
    """Whether an action that is taken blindly makes sense, and can be accounted for later."""
    if action == NOOP:
        return goal in _PATIENT
    if _is_move(action):
        # A creature may have left, and then the player walks instead of turning.
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
    """The expert of a state, after some actions that led to a view.

    `failed` has the positions of actions that are known to have changed nothing. A state
    that is damaged or does not fit the view is forgotten.
    """
    best: tuple[int, ExpertPolicy] | None = None
    for stays in _courses(actions, failed):
        policy = ExpertPolicy.load(seed, state)
        if policy is None or not policy.memory.inventory:
            break
        played = view.step - policy.memory.step
        if not 0 <= played <= len(actions):
            break
        unlike = _follow(policy, actions[:played], stays, view)
        if best is None or unlike < best[0]:
            best = unlike, policy
        if not unlike:
            break
    return best[1] if best and best[0] <= _LOST else ExpertPolicy(seed)


def _courses(actions: Sequence[int], failed: Collection[int]) -> Iterator[frozenset[int]]:
    """Which of the moves left the player where it was, the likeliest course first."""
    # The first action was taken with open eyes.
    moves = [i for i, action in enumerate(actions) if i and _is_move(action)]
    blocked = frozenset(i for i in moves if i in failed)
    # A move that turned the player counts as done even if something was in the way.
    doubts = [i for i in moves if i not in failed and actions[i] != _last_move(actions[:i])]
    for count in range(len(doubts[:_DOUBTS]) + 1):
        for others in combinations(doubts[:_DOUBTS], count):
            yield blocked.union(others)


def _is_move(action: int) -> bool:
    return MOVE <= action < MOVE + len(STEPS)


def _last_move(actions: Sequence[int]) -> int | None:
    return next((action for action in reversed(actions) if _is_move(action)), None)


def _follow(
    policy: ExpertPolicy, actions: Sequence[int], stays: frozenset[int], view: View
) -> int:
    """Go through the actions; how many cells are then unlike what was foreseen."""
    memory = policy.memory
    for i, action in enumerate(actions or (NOOP,)):
        foreseen, here = foresee(memory, action, stays=i in stays)
        policy.took(NOOP if i in stays else action)
        if i < len(actions) - 1:
            memory.see(foreseen)
    if not within(here, WALKED):
        return _LOST + 1
    expected = foreseen.materials
    return int(np.count_nonzero((expected != view.materials) & (expected != UNKNOWN)))
