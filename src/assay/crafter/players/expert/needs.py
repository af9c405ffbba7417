"""Food and drink: when they are needed, and how to get them.

The garden is a planted sapling that is fenced on all four sides, and eaten when ripe.
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
    make_table,
)
from assay.crafter.players.expert.walker import ARRIVED, Walker

Choice = tuple[Goal, int]

_WATER = make_table(WATER)
_FORGET_COW_AFTER = 3000
"""Number of steps after which a remembered cow is forgotten; distant cows do not move."""


class Needs:
    """Eating and drinking behaviours."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker
        self.drinking = False
        """Whether the player is at water and still thirsty."""

    def meet_urgent_need(self) -> Choice | None:
        """Meet a need that cannot wait."""
        inventory = self.memory.inventory
        drink, food = inventory["drink"], inventory["food"]
        choice = None
        if self.drinking and drink < 9:
            choice = self.drink(limit=4)
        self.drinking = choice is not None
        if choice:
            return choice
        if drink <= 6 and not self.memory.has_seen(WATER) and self.memory.daylight > 0.5:
            choice = self._find_water()
            if choice:
                return choice
        hungry = food <= self._search_threshold()
        if drink <= 3 and drink <= food:
            return self.drink() or (self.eat() if hungry else None) or self._find_water()
        if hungry:
            return self.eat() or (self.drink() if drink <= 3 else None) or self._find_food()
        return None

    def _search_threshold(self) -> int:
        """Return the food level at which the search for food starts; at night, never."""
        memory = self.memory
        if memory.daylight < 0.5:
            return -1
        return 5 if 60 < memory.step % 300 < 130 else 3

    def prepare_for_night(self) -> Choice | None:
        """Eat and drink nearby before a night in a shelter."""
        inventory = self.memory.inventory
        if inventory["health"] < 5:
            return None
        if inventory["drink"] <= 6:
            choice = self.drink(limit=10)
            if choice:
                return choice
        return self.eat(limit=8) if inventory["food"] <= 5 else None

    def meet_usual_need(self) -> Choice | None:
        """Eat or drink what is near, before it is urgent."""
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
        if not self.memory.has_seen(WATER):
            return None
        action = self.walker.approach(
            f"water {limit}", self.walker.next_to(_WATER), limit=limit
        )
        if action is None:
            return None
        if action == ARRIVED:
            self.drinking = True
            action = self.walker.use(self.walker.target)
        return Goal.DRINK, action

    def eat(self, limit: int = 1000) -> Choice | None:
        """Go to a visible or remembered cow and attack it until it is eaten."""
        memory = self.memory
        old = [c for c, seen in memory.cows.items() if memory.step - seen > _FORGET_COW_AFTER]
        for cell in old:
            del memory.cows[cell]
        if not memory.cows:
            return None
        goal = self.walker.next_to_any(memory.cows)
        action = self.walker.approach(f"cow {limit}", goal, limit=limit)
        if action is None:
            return None
        if action == ARRIVED:
            action = self.walker.use(self.walker.target)
        return Goal.EAT_COW, action

    def _find_water(self) -> Choice | None:
        if self.memory.has_seen(WATER) and self.memory.daylight < 0.5:
            return None  # out of reach only until the morning
        action = explore(self.walker)
        return None if action is None else (Goal.FIND_WATER, action)

    def _find_food(self) -> Choice | None:
        action = patrol(self.walker)
        if action is None:
            action = explore(self.walker)
        return None if action is None else (Goal.FIND_FOOD, action)


_RIPE = 305
"""Number of steps after which a plant should be ripe."""
_PLANT_UNFENCED_AFTER = 130
"""Number of steps after which a sapling is planted without a fence."""
_MAX_DISTANCE = 14
"""Maximum distance to a plant that the expert waits for."""
_FENCE = 4
"""Number of stones needed around a plant in the open."""


class Garden:
    """Behaviours for saplings and plants."""

    def __init__(self, memory: Memory, walker: Walker, shelter: Shelter) -> None:
        self.memory = memory
        self.walker = walker
        self.shelter = shelter
        self.returning = False
        """Whether the player is returning to a plant."""

    def start(self) -> Choice | None:
        """Collect the first sapling; plant it unfenced if stones are missing for too long."""
        memory = self.memory
        if "place_plant" in memory.done:
            return None
        if memory.step > _PLANT_UNFENCED_AFTER:
            return self._plant() or self._collect_sapling()
        return None if "collect_sapling" in memory.done else self._collect_sapling()

    def harvest(self) -> Choice | None:
        """Eat a ripe plant."""
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
            walker.next_to_any(ripe),
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
        """Plant a sapling and fence it."""
        memory = self.memory
        if "eat_plant" in memory.done or memory.daylight < 0.5:
            return None
        if any(not self._find_openings(plant) for plant in memory.plants):
            return None
        choice = self._fence()
        if choice or memory.inventory["stone"] <= _FENCE:
            return choice
        if "place_furnace" in memory.done:
            return self._plant() or self._collect_sapling()
        return self._plant()

    def _find_openings(self, plant: int) -> set[int]:
        """Return the sides from which a plant can be eaten."""
        ground = self.memory.ground
        return {plant + s for s in STEPS if OPEN[ground[plant + s]]} - set(self.memory.plants)

    def guard(self) -> None:
        """Keep the walker from digging through fences."""
        ground = self.memory.ground
        self.walker.fence = {
            plant + step
            for plant in self.memory.plants
            for step in STEPS
            if not OPEN[ground[plant + step]]
        }

    def _fence(self) -> Choice | None:
        """Close one side of a nearby plant."""
        memory, walker = self.memory, self.walker
        if memory.inventory["stone"] == 0:
            return None
        for plant in memory.plants:
            if memory.distance(plant) > _MAX_DISTANCE:
                continue
            action = walker.face("fence", self._find_openings(plant).__contains__)
            if action is not None:
                if action == ARRIVED:
                    action = PLACE_STONE if memory.is_free(memory.ahead) else DO
                return Goal.FENCE_PLANT, action
        return None

    def stay(self) -> Choice | None:
        """Stay near the plant: explore there, or wait in a closed place."""
        memory = self.memory
        has = memory.inventory
        if "eat_plant" in memory.done or not (has["iron_sword"] and has["iron_pickaxe"]):
            return None
        fenced = [plant for plant in memory.plants if not self._find_openings(plant)]
        if not fenced:
            return None
        plant = min(fenced, key=memory.distance)
        self.returning = memory.distance(plant) > (5 if self.returning else _MAX_DISTANCE)
        if self.returning:
            goal = self.walker.next_to_any({plant + 2 * step for step in STEPS})
            action = self.walker.approach("stay", goal)
            if action is not None and action != ARRIVED:
                return Goal.WAIT_FOR_PLANT, action
        action = explore_near(self.walker, plant, _MAX_DISTANCE - 2)
        if action is not None:
            return Goal.EXPLORE, action
        return self.shelter.hide() or (Goal.WAIT_FOR_PLANT, NOOP)

    def _plant(self) -> Choice | None:
        if not self.memory.inventory["sapling"]:
            return None
        action = self.walker.face("plant", self._is_plantable)
        if action is None:
            return None
        return Goal.PLACE_PLANT, PLACE_PLANT if action == ARRIVED else action

    def _collect_sapling(self) -> Choice | None:
        if self.memory.inventory["sapling"]:
            return None
        action = self.walker.face("sapling", self._is_plantable)
        if action is None:
            return None
        return Goal.COLLECT_SAPLING, DO if action == ARRIVED else action

    def _is_plantable(self, cell: int) -> bool:
        return self.memory.ground[cell] == GRASS and not self.walker.is_blocked(cell)
