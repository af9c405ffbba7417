"""Several actions from one view: how far the expert looks ahead, and how it catches up.

The expert plans by acting on what it foresees, action by action. Only facts go into its
state, which is taken before it looks ahead. In the next turn it goes through the actions
again and takes the course of events that fits what it then sees: where it turned blindly, a
creature may have stood in its way. On even ground that cannot be told; the map is then off by
a cell, and forgotten once it contradicts a view.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from assay.crafter import View
from assay.crafter.rules import CREATURES, DAMAGE
from assay.players.expert.foresight import foresee
from assay.players.expert.goals import Goal
from assay.players.expert.memory import Memory
from assay.players.expert.packing import within
from assay.players.expert.policy import ExpertPolicy
from assay.players.expert.state import WALKED
from assay.players.expert.terrain import (
    ARROW,
    COW,
    DO,
    MOVE,
    NOOP,
    OPEN,
    SKELETON,
    STEPS,
    UNKNOWN,
    ZOMBIE,
)

__all__ = ["Turn", "catch_up", "plan"]

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
        action = policy.act(foresee(memory, action).view)
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
        foreseen = foresee(memory, action, stays=i in stays)
        policy.took(NOOP if i in stays else action)
        if i < len(actions) - 1:
            memory.see(foreseen.view)
    if not within(foreseen.here, WALKED):
        return _LOST + 1
    expected = foreseen.view.materials
    return int(np.count_nonzero((expected != view.materials) & (expected != UNKNOWN)))
