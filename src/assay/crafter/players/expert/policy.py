"""The expert: what it does next is the first of its behaviours that has something to do."""

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
    """Plays by the rules it knows and the views it was given, and nothing else.

    The seed only decides which of several equally good directions is taken.
    """

    def __init__(self, seed: int) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise UsageError(f"seed {seed!r} is not allowed; give an int from 0")
        self.goal = Goal.EXPLORE
        """What the last action was for."""
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
            self._night_shift,
            combat.block,
            self._prepare_for_night,
            shelter.seek,
            needs.urgent,
            garden.start,
            needs.usual,
            combat.hunt,
            garden.harvest,
            garden.tend,
            crafting.advance,
            combat.seek_skeleton,
            garden.stay,
            self._explore,
        )

    def act(self, view: View) -> int:
        """Return the next action; `goal` says what it is for."""
        memory = self.memory
        memory.see(view)
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
        memory.took(action)
        return action

    def took(self, action: int) -> None:
        """Say which action was carried out, if it was not the one that `act` returned."""
        self.memory.took(action)

    def dump(self) -> bytes:
        """All that it remembers, for `load`; the goal is not part of it."""
        return write_state(self._parts)

    @classmethod
    def load(cls, seed: int, state: bytes) -> "ExpertPolicy | None":
        """An expert that goes on from where `dump` was; None if these are not its bytes.

        It then plays as the dumped one would have: same views, same actions.
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
        dusk = 100 < self.memory.step % 300 < 152 and not self._shelter.heading
        return self._needs.before_night() if dusk else None

    def _night_shift(self) -> tuple[Goal, int] | None:
        """While zombies wait outside, tunnel for minerals and new sights, or wait."""
        if not self._shelter.besieged():
            return None
        walker = self._walker
        walker.tunnelling = True
        choice = self._crafting.underground()
        if choice is None:
            action = explore(walker)
            choice = (Goal.REST, NOOP) if action is None else (Goal.EXPLORE, action)
        walker.tunnelling = False
        return choice

    def _explore(self) -> tuple[Goal, int] | None:
        pickaxe = self.memory.inventory["wood_pickaxe"] > 0
        action = explore(self._walker, rock=pickaxe)
        return None if action is None else (Goal.EXPLORE, action)
