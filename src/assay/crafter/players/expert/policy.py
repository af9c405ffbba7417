"""The expert: its next action comes from the first behaviour that applies."""

from itertools import permutations
from typing import Final

from assay.crafter.players.expert.combat import Combat
from assay.crafter.players.expert.crafting import Crafting
from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.needs import Garden, Needs
from assay.crafter.players.expert.scout import explore
from assay.crafter.players.expert.shelter import Shelter
from assay.crafter.players.expert.state import DamagedMemory, Parts, read_state, write_state
from assay.crafter.players.expert.terrain import LAVA, MOVE, NOOP, SLEEP, STEPS, Goal
from assay.crafter.players.expert.walker import Walker
from assay.crafter.view import View
from assay.errors import UsageError

_ORDERS: Final = tuple(permutations(range(4)))


class ExpertPolicy:
    """Plays from the rules and the views it received, and nothing else.

    The seed only decides between equally good directions.
    """

    def __init__(self, seed: int) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise UsageError(f"seed {seed!r} is not allowed; give an int from 0")
        self.goal = Goal.EXPLORE
        """Purpose of the last action."""
        self.memory = Memory()
        walker = Walker(self.memory, _ORDERS[seed % len(_ORDERS)])
        self._walker = walker
        combat, needs = Combat(self.memory, walker), Needs(self.memory, walker)
        shelter = Shelter(self.memory, walker)
        garden = Garden(self.memory, walker, shelter)
        crafting = Crafting(self.memory, walker)
        self._parts = Parts(self.memory, walker, combat, needs, garden, shelter)
        self._combat, self._needs = combat, needs
        self._shelter, self._garden, self._crafting = shelter, garden, crafting
        self._behaviours = (
            combat.defend,
            shelter.rest,
            self._work_at_night,
            combat.block,
            self._prepare_for_night,
            shelter.seek,
            needs.meet_urgent_need,
            garden.start,
            needs.meet_usual_need,
            combat.hunt,
            garden.harvest,
            garden.tend,
            crafting.advance,
            combat.seek_skeleton,
            garden.stay,
            self._explore,
        )

    def act(self, view: View) -> int:
        """Return the next action; its purpose is in `goal`."""
        memory = self.memory
        memory.update(view)
        if memory.plants or self._walker.fence:
            self._garden.guard()
        self.goal, action = self._choose(view)
        safe = action if view.sleeping else self._combat.dodge(action)
        if safe != action:
            self.goal, action = Goal.AVOID_ARROW, safe
        if (
            MOVE <= action < MOVE + 4
            and memory.ground[memory.here + STEPS[action - MOVE]] == LAVA
        ):
            action = NOOP
        memory.record_action(action)
        return action

    def took(self, action: int) -> None:
        """Record the action carried out, if it is not the one `act` returned."""
        self.memory.record_action(action)

    def dump(self) -> bytes:
        """Return everything it remembers as bytes, for `load`; the goal is not included."""
        return write_state(self._parts)

    @classmethod
    def load(cls, seed: int, state: bytes) -> "ExpertPolicy | None":
        """Return an expert that continues from a `dump`, or None if the bytes are invalid.

        It plays as the dumped one would have: the same views give the same actions.
        """
        policy = cls(seed)
        try:
            read_state(state, policy._parts)
        except DamagedMemory:
            return None
        return policy

    def _choose(self, view: View) -> tuple[Goal, int]:
        if view.sleeping:
            return Goal.SLEEP, SLEEP
        for behaviour in self._behaviours:
            choice = behaviour()
            if choice is not None:
                return choice
        return self._shelter.hide() or (Goal.REST, NOOP)

    def _prepare_for_night(self) -> tuple[Goal, int] | None:
        dusk = 100 < self.memory.step % 300 < 152 and not self._shelter.is_building
        return self._needs.prepare_for_night() if dusk else None

    def _work_at_night(self) -> tuple[Goal, int] | None:
        """While zombies are outside, tunnel for minerals and unexplored cells, or wait."""
        if not self._shelter.is_besieged():
            return None
        walker = self._walker
        walker.tunnelling = True
        choice = self._crafting.work_underground()
        if choice is None:
            action = explore(walker)
            choice = (Goal.REST, NOOP) if action is None else (Goal.EXPLORE, action)
        walker.tunnelling = False
        return choice

    def _explore(self) -> tuple[Goal, int] | None:
        pickaxe = self.memory.inventory["wood_pickaxe"] > 0
        action = explore(self._walker, rock=pickaxe)
        return None if action is None else (Goal.EXPLORE, action)
