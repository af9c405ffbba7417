"""Food and drink: when they press, and how to get them."""

from assay.players.expert.goals import Goal
from assay.players.expert.memory import Memory
from assay.players.expert.scout import explore, patrol
from assay.players.expert.terrain import WATER, table_of
from assay.players.expert.walker import ARRIVED, Walker

__all__ = ["Needs"]

Choice = tuple[Goal, int]

_WATER = table_of(WATER)
_COW_FORGOTTEN = 3000
"""After so many steps a cow may be gone; far from the player cows stand still."""


class Needs:
    """Decides on eating and drinking."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker
        self.drinking = False
        """Whether the player stands at water and has not had enough."""

    def urgent(self) -> Choice | None:
        """What cannot wait: little is left."""
        inventory = self.memory.inventory
        drink, food = inventory["drink"], inventory["food"]
        choice = None
        if self.drinking and drink < 9:
            choice = self.drink(limit=4)
        self.drinking = choice is not None
        if choice:
            return choice
        if drink <= 6 and not self.memory.knows(WATER) and self.memory.daylight > 0.5:
            choice = self._find_water()
            if choice:
                return choice
        hungry = food <= self._search_below()
        if drink <= 3 and drink <= food:
            return self.drink() or (self.eat() if hungry else None) or self._find_water()
        if hungry:
            return self.eat() or (self.drink() if drink <= 3 else None) or self._find_food()
        return None

    def _search_below(self) -> int:
        """With how much food left the search for more begins: by day, before it presses."""
        memory = self.memory
        if memory.daylight < 0.5:
            return -1
        return 5 if 60 < memory.step % 300 < 130 else 3

    def before_night(self) -> Choice | None:
        """What is close by, before a night in a shelter."""
        inventory = self.memory.inventory
        if inventory["health"] < 5:
            return None
        if inventory["drink"] <= 6:
            choice = self.drink(limit=10)
            if choice:
                return choice
        return self.eat(limit=8) if inventory["food"] <= 5 else None

    def usual(self) -> Choice | None:
        """What is at hand, before it presses."""
        memory = self.memory
        inventory = memory.inventory
        evening = 90 < memory.step % 300 < 180
        drink, food = inventory["drink"], inventory["food"]
        choice = None
        if "collect_drink" not in memory.done:
            choice = self.drink(limit=8)
        elif drink <= (7 if evening else 5):
            choice = self.drink(limit=30 if evening or drink <= 4 else 10)
        if choice:
            return choice
        if "eat_cow" not in memory.done:
            return self.eat(limit=12)
        if food <= 6:
            return self.eat(limit=25 if food <= 4 or evening else 10 if food == 5 else 6)
        return None

    def drink(self, limit: int = 1000) -> Choice | None:
        """Go to water and drink."""
        if not self.memory.knows(WATER):
            return None
        action = self.walker.approach(f"water {limit}", self.walker.beside(_WATER), limit=limit)
        if action is None:
            return None
        if action == ARRIVED:
            self.drinking = True
            action = self.walker.use(self.walker.target)
        return Goal.DRINK, action

    def eat(self, limit: int = 1000) -> Choice | None:
        """Go to a cow, seen or remembered, and strike it until it is eaten."""
        memory = self.memory
        old = [c for c, seen in memory.cows.items() if memory.step - seen > _COW_FORGOTTEN]
        for cell in old:
            del memory.cows[cell]
        if not memory.cows:
            return None
        goal = self.walker.beside_any(memory.cows)
        action = self.walker.approach(f"cow {limit}", goal, limit=limit)
        if action is None:
            return None
        if action == ARRIVED:
            action = self.walker.use(self.walker.target)
        return Goal.EAT_COW, action

    def _find_water(self) -> Choice | None:
        if self.memory.knows(WATER) and self.memory.daylight < 0.5:
            return None  # it is out of reach only until the morning
        action = explore(self.walker)
        return None if action is None else (Goal.FIND_WATER, action)

    def _find_food(self) -> Choice | None:
        action = patrol(self.walker)
        if action is None:
            action = explore(self.walker)
        return None if action is None else (Goal.FIND_FOOD, action)
