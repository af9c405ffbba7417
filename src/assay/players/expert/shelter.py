"""Shelter: when to go into a closed place, and how long to stay there."""

from assay.players.expert.burrow import Builder, Burrow
from assay.players.expert.goals import Goal
from assay.players.expert.memory import Memory
from assay.players.expert.terrain import (
    GRASS,
    MOVE,
    NOOP,
    PLACE_STONE,
    SLEEP,
    STEPS,
    WATER,
    ZOMBIE,
)
from assay.players.expert.walker import Walker

__all__ = ["Shelter"]

Choice = tuple[Goal, int]
_DARK = 0.45
"""Below this much daylight the meadows fill with zombies."""


class Shelter:
    """Decides on sleep and rest."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker
        self._builder = Builder(memory, walker)
        self.burrow: Burrow | None = None
        """The place that is being gone to or built."""
        self.resting = False
        """Whether the player is in a closed place to rest."""

    def rest(self) -> Choice | None:
        """Stay in a closed place as long as there is a reason to."""
        if not (self.resting or self._wanted()) or not self.walker.enclosed():
            self.resting = False
            return None
        self._leave()
        self.resting = self._worth_staying()
        return self._stay_in() if self.resting else None

    def hide(self) -> Choice | None:
        """Wait in a closed place, for whatever reason."""
        if self.walker.enclosed():
            return self._stay_in()
        return self._go_in()

    def _worth_staying(self) -> bool:
        memory = self.memory
        inventory = memory.inventory
        lacking = min(inventory["food"], inventory["drink"])
        if lacking == 0 and (memory.daylight > _DARK or inventory["health"] <= 3):
            return False
        if inventory["energy"] < (9 if self.resting else 4):
            return True
        if lacking <= 2 and memory.daylight > _DARK:
            return False
        return inventory["health"] < (8 if lacking > 3 else 6)

    def besieged(self) -> bool:
        """Whether the player is in a closed place and had better not come out."""
        memory = self.memory
        lacking = min(memory.inventory["food"], memory.inventory["drink"])
        zombies = ZOMBIE in memory.things.values()
        if memory.daylight > (0.75 if zombies and lacking else 0.65 if lacking > 2 else 0.5):
            return False
        return self.walker.enclosed()

    @property
    def heading(self) -> bool:
        """Whether a shelter is being gone to or built."""
        return self.burrow is not None

    def _stay_in(self) -> Choice:
        action = self._wall_off_water()
        if action is not None:
            return Goal.BUILD_SHELTER, action
        if self.memory.inventory["energy"] < 9:
            return Goal.SLEEP, SLEEP
        return Goal.REST, NOOP

    def _wall_off_water(self) -> int | None:
        """Arrows fly over water: put stones where it touches the player's cell."""
        memory = self.memory
        if not memory.inventory["stone"]:
            return None
        for d, step in enumerate(STEPS):
            if memory.ground[memory.here + step] == WATER:
                return PLACE_STONE if memory.facing == d else MOVE + d
        return None

    def seek(self) -> Choice | None:
        """Go to a place that can be closed and close it, when rest is wanted."""
        if self._wanted():
            return self._go_in() or self._in_the_open()
        self._leave()
        return None

    def _leave(self) -> None:
        self.burrow = None
        self.walker.walls = set()

    def _go_in(self) -> Choice | None:
        builder = self._builder
        self.walker.walls = set()
        if self.burrow is None or not builder.usable(self.burrow):
            self.burrow = builder.find()
        if self.burrow is None:
            return None
        action = builder.step(self.burrow)
        if action is None:
            self._leave()
            return None
        return Goal.BUILD_SHELTER, action

    def _wanted(self) -> bool:
        memory = self.memory
        inventory = memory.inventory
        lacking = min(inventory["food"], inventory["drink"])
        dark = memory.daylight < _DARK
        if lacking == 0 or (lacking <= 2 and not dark):
            return False
        if inventory["energy"] <= 2 or inventory["health"] <= (5 if lacking > 3 else 4):
            return True
        return dark and (
            inventory["energy"] <= 3
            or memory.ground[memory.here] == GRASS
            or ZOMBIE in memory.things.values()
        )

    def _in_the_open(self) -> Choice | None:
        memory = self.memory
        if memory.inventory["energy"] <= 1 and not memory.things and memory.daylight > 0.5:
            return Goal.SLEEP, SLEEP
        return None
