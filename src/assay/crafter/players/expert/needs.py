"""Food and drink: when they press, and how to get them.

The garden: a sapling that is planted, fenced on all four sides, and eaten when ripe.
"""

from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.scout import explore, explore_near, patrol
from assay.crafter.players.expert.shelter import Shelter
from assay.crafter.players.expert.terrain import (
    DO,
    GRASS,
    NOOP,
    OPEN,
    PLACE_PLANT,
    PLACE_STONE,
    STEPS,
    WATER,
    Goal,
    table_of,
)
from assay.crafter.players.expert.walker import ARRIVED, Walker

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


_RIPE = 305
"""A plant that has grown for so many steps should be ripe."""
_PATIENCE = 130
"""After so many steps a sapling is planted without a fence."""
_REACH = 14
"""As far as the expert goes from a plant it waits for."""
_FENCE = 4
"""The stones a plant in the open needs around it."""


class Garden:
    """Decides on saplings and plants."""

    def __init__(self, memory: Memory, walker: Walker, shelter: Shelter) -> None:
        self.memory = memory
        self.walker = walker
        self.shelter = shelter
        self.returning = False
        """Whether the player is on its way back to a plant."""

    def start(self) -> Choice | None:
        """The first sapling, kept until there are stones for a fence, but not for ever."""
        memory = self.memory
        if "place_plant" in memory.done:
            return None
        if memory.step > _PATIENCE:
            return self._plant() or self._collect_sapling()
        return None if "collect_sapling" in memory.done else self._collect_sapling()

    def harvest(self) -> Choice | None:
        """Eat a plant that is ripe."""
        memory, walker = self.memory, self.walker
        ripe = {
            cell for cell, plant in memory.plants.items() if plant.ripe or plant.grown > _RIPE
        }
        if not ripe or memory.inventory["health"] < 4:
            return None
        eaten, dark = "eat_plant" in memory.done, memory.daylight < 0.5
        if (eaten or dark) and memory.inventory["food"] > 5:
            return None
        limit = 25 if eaten or dark else 1000
        action = walker.approach(
            f"harvest {limit}",
            walker.beside_any(ripe),
            limit=limit,
            breach=True,
            anywhere=True,
        )
        if action is None:
            return None
        if action != ARRIVED:
            return Goal.EAT_PLANT, action
        if memory.plants[walker.target].ripe or memory.ahead != walker.target:
            return Goal.EAT_PLANT, walker.use(walker.target)
        return Goal.WAIT_FOR_PLANT, NOOP

    def tend(self) -> Choice | None:
        """Have a plant, and a fence around it."""
        memory = self.memory
        if "eat_plant" in memory.done or memory.daylight < 0.5:
            return None
        if any(not self._openings(plant) for plant in memory.plants):
            return None
        choice = self._fence()
        if choice or memory.inventory["stone"] <= _FENCE:
            return choice
        if "place_furnace" in memory.done:
            return self._plant() or self._collect_sapling()
        return self._plant()

    def _openings(self, plant: int) -> set[int]:
        """The sides from which a plant can be eaten."""
        ground = self.memory.ground
        return {plant + s for s in STEPS if OPEN[ground[plant + s]]} - set(self.memory.plants)

    def guard(self) -> None:
        """Keep the walker off the fences."""
        ground = self.memory.ground
        self.walker.fence = {
            plant + step
            for plant in self.memory.plants
            for step in STEPS
            if not OPEN[ground[plant + step]]
        }

    def _fence(self) -> Choice | None:
        """Close a side of a plant nearby."""
        memory, walker = self.memory, self.walker
        if memory.inventory["stone"] == 0:
            return None
        for plant in memory.plants:
            if memory.distance(plant) > _REACH:
                continue
            action = walker.face("fence", self._openings(plant).__contains__)
            if action is not None:
                if action == ARRIVED:
                    action = PLACE_STONE if memory.free(memory.ahead) else DO
                return Goal.FENCE_PLANT, action
        return None

    def stay(self) -> Choice | None:
        """Keep near the plant: look around there, else wait in a closed place."""
        memory = self.memory
        has = memory.inventory
        if "eat_plant" in memory.done or not (has["iron_sword"] and has["iron_pickaxe"]):
            return None
        fenced = [plant for plant in memory.plants if not self._openings(plant)]
        if not fenced:
            return None
        plant = min(fenced, key=memory.distance)
        self.returning = memory.distance(plant) > (5 if self.returning else _REACH)
        if self.returning:
            goal = self.walker.beside_any({plant + 2 * step for step in STEPS})
            action = self.walker.approach("stay", goal)
            if action is not None and action != ARRIVED:
                return Goal.WAIT_FOR_PLANT, action
        action = explore_near(self.walker, plant, _REACH - 2)
        if action is not None:
            return Goal.EXPLORE, action
        return self.shelter.hide() or (Goal.WAIT_FOR_PLANT, NOOP)

    def _plant(self) -> Choice | None:
        if not self.memory.inventory["sapling"]:
            return None
        action = self.walker.face("plant", self._plantable)
        if action is None:
            return None
        return Goal.PLACE_PLANT, PLACE_PLANT if action == ARRIVED else action

    def _collect_sapling(self) -> Choice | None:
        if self.memory.inventory["sapling"]:
            return None
        action = self.walker.face("sapling", self._plantable)
        if action is None:
            return None
        return Goal.COLLECT_SAPLING, DO if action == ARRIVED else action

    def _plantable(self, cell: int) -> bool:
        return self.memory.ground[cell] == GRASS and not self.walker.blocked(cell)
