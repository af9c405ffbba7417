"""Progress through wood, table, stone, furnace, coal, iron and diamond."""

from assay.crafter.players.expert.memory import Memory
from assay.crafter.players.expert.terrain import (
    COAL,
    DIAMOND,
    FURNACE,
    IRON,
    PLACE_FURNACE,
    PLACE_STONE,
    PLACE_TABLE,
    STONE,
    STRIDE,
    TABLE,
    TREE,
    ZOMBIE,
    Goal,
    make_table,
)
from assay.crafter.players.expert.walker import ARRIVED, Walker
from assay.crafter.rules import ACTIONS, MAKE

Choice = tuple[Goal, int]
_NEAR = 14
"""Maximum distance to an existing table; if none is nearer, a new one is made."""

_TOOLS = ("stone_pickaxe", "wood_sword", "stone_sword", "iron_pickaxe", "iron_sword")
_GOALS = {
    TREE: Goal.COLLECT_WOOD,
    STONE: Goal.COLLECT_STONE,
    COAL: Goal.COLLECT_COAL,
    IRON: Goal.COLLECT_IRON,
    DIAMOND: Goal.COLLECT_DIAMOND,
}
_TABLES = {material: make_table(material) for material in (*_GOALS, TABLE, FURNACE)}


class Crafting:
    """Behaviours for collecting, placing and making."""

    def __init__(self, memory: Memory, walker: Walker) -> None:
        self.memory = memory
        self.walker = walker

    def advance(self) -> Choice | None:
        """Return the next action towards a diamond that is possible with what is known."""
        has = self.memory.inventory
        if not has["wood_pickaxe"]:
            if 3 <= has["wood"] < 5 and not self.memory.is_near(TABLE):
                choice = self._collect(TREE, limit=4)
                if choice:
                    return choice
            return self._make("wood_pickaxe")
        for behaviour in (
            self._make_here,
            self._place_stone,
            self._place_first_furnace,
            self._collect_nearby,
            self._make_ready_tool,
            self._stock_wood,
            self._make_stone_tools,
            self._place_furnace,
            self._stock_stone,
            self._advance_with_iron,
        ):
            choice = behaviour()
            if choice:
                return choice
        return None

    def work_underground(self) -> Choice | None:
        """Return an action that is possible without leaving the rock."""
        has = self.memory.inventory
        calm = ZOMBIE not in self.memory.things.values()
        choice = self._make_ready_tool() if calm else None
        if not choice and has["coal"] < 2:
            choice = self._collect(COAL, limit=40)
        if not choice and has["stone_pickaxe"] and has["iron"] < 2:
            choice = self._collect(IRON, limit=60)
        if not choice and has["iron_pickaxe"] and "collect_diamond" not in self.memory.done:
            choice = self._collect(DIAMOND, limit=80)
        return choice

    def _missing_tools(self) -> list[str]:
        """Return the tools that have not been made."""
        return [tool for tool in _TOOLS if not self.memory.inventory[tool]]

    def _make_here(self) -> Choice | None:
        return self._make_ready_tool() if self.memory.is_near(TABLE) else None

    def _make_ready_tool(self) -> Choice | None:
        """Make a tool whose materials are complete, at a table nearby or a new one."""
        has = self.memory.inventory
        table = self.memory.is_near(TABLE) or self._is_table_near()
        for tool in self._missing_tools():
            uses = MAKE[tool].uses
            if all(has[item] >= count for item, count in uses.items()) and (
                table or has["wood"] >= uses["wood"] + 2
            ):
                choice = self._make(tool)
                if choice:
                    return choice
        return None

    def _stock_wood(self) -> Choice | None:
        """Collect wood for the missing tools and a table."""
        missing = len(self._missing_tools())
        if not missing or self.memory.inventory["wood"] >= min(missing + 2, 6):
            return None
        return self._collect(TREE, limit=12)

    def _make_stone_tools(self) -> Choice | None:
        for tool in ("stone_pickaxe", "stone_sword", "wood_sword"):
            if not self.memory.inventory[tool]:
                choice = self._make(tool)
                if choice:
                    return choice
        return None

    def _stock_stone(self) -> Choice | None:
        return self._collect(STONE) if self.memory.inventory["stone"] < 6 else None

    def _advance_with_iron(self) -> Choice | None:
        has = self.memory.inventory
        tools = [t for t in ("iron_pickaxe", "iron_sword") if not has[t]]
        if tools:
            if has["coal"] < 1:
                return self._collect(COAL)
            if has["iron"] < 1:
                return self._collect(IRON)
            choice = self._make(tools[0])
            if choice:
                return choice
        if (
            has["iron_pickaxe"]
            and not has["diamond"]
            and "collect_diamond" not in self.memory.done
        ):
            return self._collect(DIAMOND)
        return None

    def _collect_nearby(self) -> Choice | None:
        """Collect minerals nearby, needed now or later."""
        has = self.memory.inventory
        if has["coal"] < 2:
            choice = self._collect(COAL, limit=6)
            if choice:
                return choice
        if has["stone_pickaxe"] and has["iron"] < 2:
            choice = self._collect(IRON, limit=10)
            if choice:
                return choice
        if has["iron_pickaxe"] and "collect_diamond" not in self.memory.done:
            choice = self._collect(DIAMOND)
            if choice:
                return choice
        if has["stone"] < 9:
            return self._collect(STONE, limit=2 if has["stone"] > 5 else 4)
        return None

    def _collect(self, material: int, limit: int = 1000) -> Choice | None:
        if not self.memory.has_seen(material):
            return None
        walker = self.walker
        goal = _GOALS[material]
        action = walker.approach(
            f"{goal} {limit}", walker.next_to(_TABLES[material]), limit=limit
        )
        if action is None:
            return None
        return goal, walker.use(walker.target) if action == ARRIVED else action

    def _make(self, tool: str) -> Choice | None:
        """Make a tool: collect its materials first, then go to the table and furnace."""
        has = self.memory.inventory
        iron, stone = tool.startswith("iron"), tool.startswith("stone")
        if stone and not has["stone"]:
            return self._collect(STONE)
        here = self.memory.is_near(TABLE)
        if has["wood"] < 1 or (not here and not self._is_table_near() and has["wood"] < 3):
            if has["wood"] >= 1 and self.memory.has_seen(TABLE):
                choice = self._collect(TREE, limit=30) or self._go_to(TABLE)
            else:
                choice = self._collect(TREE)
            return choice or (self._go_to(TABLE) if has["wood"] else None)
        if not here or self._is_at_edge():
            return self._reach_table()
        if iron and not self.memory.is_near(FURNACE):
            if has["stone"] < 4:
                return self._collect(STONE)
            return self._place(PLACE_FURNACE, Goal.PLACE_FURNACE)
        return Goal(f"make {tool.replace('_', ' ')}"), ACTIONS.index(f"make_{tool}")

    def _is_at_edge(self) -> bool:
        """Return whether the player is at the left or upper edge, where nothing can be made."""
        ground, here = self.memory.ground, self.memory.here
        return ground[here - STRIDE] == 0 or ground[here - 1] == 0

    def _is_table_near(self) -> bool:
        memory = self.memory
        at = memory.ground.find(TABLE)
        while at >= 0:
            if memory.distance(at) <= _NEAR:
                return True
            at = memory.ground.find(TABLE, at + 1)
        return False

    def _reach_table(self) -> Choice | None:
        if self._is_table_near() and not self._is_at_edge():
            choice = self._go_to(TABLE, limit=20)
            if choice:
                return choice
        if self.memory.inventory["wood"] >= 3 and not self._is_at_edge():
            return self._place(PLACE_TABLE, Goal.PLACE_TABLE)
        return self._go_to(TABLE)

    def _go_to(self, material: int, limit: int = 1000) -> Choice | None:
        memory = self.memory
        if not memory.has_seen(material):
            return None
        ground = memory.ground

        def goal(cell: int) -> int:
            if ground[cell - STRIDE] == 0 or ground[cell - 1] == 0:
                return 0
            for column in (cell - STRIDE, cell, cell + STRIDE):
                if material in ground[column - 1 : column + 2]:
                    return cell
            return 0

        action = self.walker.approach(f"go {material} {limit}", goal, limit=limit)
        if action is None or action == ARRIVED:
            return None
        return Goal.GO_TO_TABLE, action

    def _place(self, action: int, goal: Goal) -> Choice | None:
        ground = self.memory.ground
        table = action == PLACE_FURNACE and self.memory.is_near(TABLE)

        def keep_near(cell: int) -> bool:
            return not table or any(
                TABLE in ground[column - 1 : column + 2]
                for column in (cell - STRIDE, cell, cell + STRIDE)
            )

        room = self.walker.make_room(keep_near)
        if room is None:
            return None
        return goal, action if room == ARRIVED else room

    def _place_first_furnace(self) -> Choice | None:
        ready = self.memory.inventory["stone"] > 5 and self.memory.inventory["stone_pickaxe"]
        return self._place_furnace() if ready else None

    def _place_furnace(self) -> Choice | None:
        if "place_furnace" in self.memory.done:
            return None
        if self.memory.inventory["stone"] < 4:
            return self._collect(STONE)
        return self._place(PLACE_FURNACE, Goal.PLACE_FURNACE)

    def _place_stone(self) -> Choice | None:
        if not self.memory.inventory["stone"] or "place_stone" in self.memory.done:
            return None
        room = self.walker.make_room(lambda cell: True)
        if room is None:
            return None
        return Goal.PLACE_STONE, PLACE_STONE if room == ARRIVED else room
