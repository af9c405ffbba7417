"""Fighting: first against adjacent creatures, then against those still to be defeated."""

from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.terrain import (
    MOVE,
    NOOP,
    PLACE_STONE,
    SKELETON,
    STEPS,
    ZOMBIE,
    Goal,
)
from assay.crafter.players.expert.walker import ARRIVED, Walker

_MAX_CHASE = 25
"""Number of steps a skeleton is chased before it is ignored for a while."""

Choice = tuple[Goal, int]


class Combat:
    """Fighting behaviours."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker
        self.chased = 0
        """Number of steps a skeleton has been chased."""
        self.tired_until = 0
        """No skeleton is chased before this step."""

    def defend(self) -> Choice | None:
        """Attack an adjacent zombie or skeleton."""
        memory = self.memory
        things = memory.things
        if not things:
            return None
        for kind, goal in (
            (ZOMBIE, Goal.FIGHT_ZOMBIE),
            (SKELETON, Goal.FIGHT_SKELETON),
        ):
            if things.get(memory.ahead) == kind:
                return goal, self.walker.use(memory.ahead)
            for step in STEPS:
                if things.get(memory.here + step) == kind:
                    return goal, self.walker.use(memory.here + step)
        return None

    def block(self) -> Choice | None:
        """Place a stone in front of a zombie that approaches in a straight line.

        A zombie walks along the longer axis and does not walk around obstacles.
        """
        memory = self.memory
        if "defeat_zombie" not in memory.done or not memory.inventory["stone"]:
            return None
        if not memory.is_free(memory.ahead):
            return None
        step = STEPS[memory.facing]
        if any(memory.things.get(memory.ahead + k * step) == ZOMBIE for k in (1, 2)):
            return Goal.FIGHT_ZOMBIE, PLACE_STONE
        return None

    def hunt(self) -> Choice | None:
        """Chase creatures that have not been defeated yet, if health allows."""
        memory = self.memory
        health = memory.inventory["health"]
        if memory.daylight < 0.4 and self.walker.is_enclosed():
            return None
        if "defeat_zombie" not in memory.done and health >= 5:
            choice = self._chase(ZOMBIE, Goal.FIGHT_ZOMBIE)
            if choice:
                return choice
        if "defeat_skeleton" in memory.done or health < 6 or not self._is_armed():
            return None
        if memory.step < self.tired_until:
            return None
        choice = self._chase(SKELETON, Goal.FIGHT_SKELETON)
        if choice:
            self.chased += 1
            if self.chased > _MAX_CHASE:
                self.chased, self.tired_until = 0, memory.step + 3 * _MAX_CHASE
        return choice

    def _is_armed(self) -> bool:
        inventory = self.memory.inventory
        return inventory["stone_sword"] > 0 or inventory["iron_sword"] > 0

    def _chase(self, kind: int, goal: Goal) -> Choice | None:
        memory = self.memory
        cells = {cell for cell, thing in memory.things.items() if thing == kind}
        if not cells:
            return None
        action = self.walker.approach(goal, self.walker.next_to_any(cells), limit=14)
        if action is None:
            return None
        return goal, self.walker.use(self.walker.target) if action == ARRIVED else action

    def seek_skeleton(self) -> Choice | None:
        """Go to where a skeleton was last seen."""
        memory, goal = self.memory, Goal.FIGHT_SKELETON
        if "defeat_skeleton" in memory.done or not memory.skeletons:
            return None
        if memory.inventory["health"] < 6 or not self._is_armed():
            return None
        cells = memory.skeletons
        action = self.walker.approach("seek skeleton", self.walker.next_to_any(cells))
        if action is None:
            return None
        return goal, self.walker.use(self.walker.target) if action == ARRIVED else action

    def dodge(self, action: int) -> int:
        """Return the action, or another one if an arrow would hit the player after it.

        An arrow is visible next to the player before it hits, because the player moves first.
        """
        arrows = self.memory.arrows
        if not arrows or not self._is_hit_at(self._position_after(action)):
            return action
        memory = self.memory
        arrow_axes = {direction // 2 for at, direction in arrows.items()}
        moves = sorted(self.walker.order, key=lambda d: d // 2 in arrow_axes)
        for alternative in (*(MOVE + d for d in moves), NOOP):
            cell = self._position_after(alternative)
            if (alternative == NOOP or cell != memory.here) and not self._is_hit_at(cell):
                if any(memory.things.get(cell + step) == ZOMBIE for step in STEPS):
                    continue
                return alternative
        return action

    def _position_after(self, action: int) -> int:
        """Return the position of the player after an action."""
        memory = self.memory
        if MOVE <= action < MOVE + 4 and memory.is_free(memory.here + STEPS[action - MOVE]):
            return memory.here + STEPS[action - MOVE]
        return memory.here

    def _is_hit_at(self, cell: int) -> bool:
        arrows = self.memory.arrows
        return any(at + STEPS[direction] == cell for at, direction in arrows.items())
