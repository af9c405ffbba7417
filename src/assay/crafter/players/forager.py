"""The forager: a scripted player that survives and makes its first tools.

It uses one observation at a time. Between turns it keeps only a few words in its notes: its
heading, and what it has already done once. It fights adjacent zombies, eats, drinks and sleeps
when necessary. Now and then it works: it plants, and makes tools up to a stone pickaxe.
Otherwise it walks around. It does not mine deeper, build shelters or remember places.

`LocalPaths` finds paths over the visible cells. It has no memory either.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from assay.crafter.rules import MAKE, MAX_ITEM, PLACE, VIEW, WALKABLE
from assay.crafter.text.observation import CENTER, DIRECTIONS, STEPS, Observation

_ACROSS, _DOWN = VIEW
HEADINGS: Final = dict(zip(DIRECTIONS, ((-1, 0), (1, 0), (0, -1), (0, 1)), strict=True))
"""The four directions as (right, down) steps."""
_NEIGHBOURS: Final = tuple(
    tuple(
        (way, i + STEPS[way])
        for way, (dx, dy) in HEADINGS.items()
        if 0 <= i % _ACROSS + dx < _ACROSS and 0 <= i // _ACROSS + dy < _DOWN
    )
    for i in range(_ACROSS * _DOWN)
)
_MOVES: Final = {way: f"move_{way}" for way in DIRECTIONS}


class LocalPaths:
    """Shortest paths from the player's cell over the free cells of one observation."""

    def __init__(self, seen: Observation) -> None:
        self.seen = seen
        self._direction_into: dict[int, str] = {CENTER: ""}
        order = [CENTER]
        for cell in order:
            for way, beyond in _NEIGHBOURS[cell]:
                ground = seen.cells[beyond]
                if (
                    beyond not in self._direction_into
                    and ground.thing is None
                    and ground.material in WALKABLE
                ):
                    self._direction_into[beyond] = way
                    order.append(beyond)
        self._order = order

    def find_path(self, cell: int) -> list[str]:
        """Return the directions from the player to a reachable cell."""
        ways: list[str] = []
        while cell != CENTER:
            way = self._direction_into[cell]
            ways.append(way)
            cell -= STEPS[way]
        return ways[::-1]

    def approach(self, kinds: Collection[str], within: int = 99) -> list[str] | None:
        """Return the moves after which the nearest cell of some kinds is in front, or None.

        No moves are needed if it is already in front. Cells farther than `within` are ignored.
        """
        if self.seen.ahead.kind in kinds:
            return []
        for cell in self._order:
            for way, beyond in _NEIGHBOURS[cell]:
                if beyond == CENTER or self.seen.cells[beyond].kind not in kinds:
                    continue
                ways = self.find_path(cell)
                if len(ways) >= within:
                    return None
                # Moving towards a cell that is not free only turns the player.
                if not ways or ways[-1] != way:
                    ways.append(way)
                return [_MOVES[way] for way in ways]
        return None

    def find_path_in_direction(self, moves: int, heading: str) -> list[str]:
        """Return the moves that lead farthest in a direction, or no moves if none does."""
        across, down = HEADINGS[heading]
        best, gain = CENTER, 0
        for cell in self._order:
            x, y = cell % _ACROSS - _ACROSS // 2, cell // _ACROSS - _DOWN // 2
            if across * x + down * y > gain:
                best, gain = cell, across * x + down * y
        return [_MOVES[way] for way in self.find_path(best)][:moves]

    def is_visible(self, *kinds: str) -> bool:
        """Return whether anything of some kinds is visible."""
        return any(cell.kind in kinds for cell in self.seen.cells)


_PLANTED: Final = "planted"
_STONE_PLACED: Final = "placed stone"
_HEADING: Final = "heading "
_HUNGRY, _THIRSTY, _TIRED = 6, 6, 3
_WORK_EVERY: Final = 4
"""It works in one of this many turns, and walks around in the others."""
_WOOD_TOOLS: Final = ("wood_pickaxe", "wood_sword")
_TABLE: Final = PLACE["table"].uses["wood"]


class _ForagerPlan(NamedTuple):
    reasoning: str
    actions: list[str]


class ForagerTurn(NamedTuple):
    """The forager's decision for one turn."""

    actions: tuple[str, ...]
    reasoning: str
    notes: str
    """Notes for its next turn."""


def forage(
    seen: Observation, notes: str, limit: int, draw: Callable[[int, int], list[int]]
) -> ForagerTurn:
    """Choose the actions of one turn.

    Args:
        seen: The current observation.
        notes: Its notes from the turn before; empty in the first turn.
        limit: Maximum number of actions.
        draw: Returns random numbers: `draw(n, count)` gives `count` numbers from 0 to n - 1.
    """
    forager = _Forager(seen, notes, limit, draw)
    plan = forager.plan()
    return ForagerTurn(tuple(plan.actions[: forager.limit]), plan.reasoning, forager.notes())


class _Forager:
    """Planner for one turn."""

    def __init__(
        self,
        seen: Observation,
        notes: str,
        limit: int,
        draw: Callable[[int, int], list[int]],
    ) -> None:
        self.seen, self.paths, self.draw = seen, LocalPaths(seen), draw
        words = notes.split("; ")
        self.planted, self.stone_placed = _PLANTED in words, _STONE_PLACED in words
        headings = [word.removeprefix(_HEADING) for word in words if _HEADING in word]
        self.heading = headings[0] if headings and headings[0] in HEADINGS else ""
        self.limit = self._limit_actions(limit)

    def notes(self) -> str:
        """Return the notes for the next turn."""
        words = [f"{_HEADING}{self.heading}"] if self.heading else []
        words += [_PLANTED] if self.planted else []
        words += [_STONE_PLACED] if self.stone_placed else []
        return "; ".join(words)

    def _limit_actions(self, limit: int) -> int:
        """Allow fewer actions at once if a danger is visible."""
        if self.paths.is_visible("lava"):
            return 1
        return min(limit, 2) if self.paths.is_visible("zombie", "skeleton", "arrow") else limit

    def plan(self) -> _ForagerPlan:
        """Return the first plan that applies."""
        if self.seen.sleeping:
            return _ForagerPlan("I am asleep.", ["sleep"] * self.limit)
        return next(plan for plan in self._list_plans() if plan)

    def _list_plans(self) -> Iterator[_ForagerPlan | None]:
        count = self.seen.count
        yield self._use("fight", ("zombie",), 5, within=1)
        if count("drink") <= _THIRSTY:
            yield self._use("drink", ("water",), MAX_ITEM - count("drink"))
        if count("food") <= _HUNGRY:
            yield self._use("eat", ("cow",), 3)
        if count("energy") <= _TIRED:
            yield _ForagerPlan("I am tired.", ["sleep"] * self.limit)
        if not self.draw(_WORK_EVERY, 2)[1]:
            yield from self._plan_planting()
            yield from self._plan_crafting()
            yield from self._plan_gathering()
        yield self._plan_walk()

    def _use(
        self, what: str, kinds: tuple[str, ...], times: int, **how: int
    ) -> _ForagerPlan | None:
        """Plan to go to the nearest cell of some kinds and use it."""
        moves = self.paths.approach(kinds, **how)
        if moves is None:
            return None
        return _ForagerPlan(f"I want to {what}: {kinds[0]}.", [*moves, *["do"] * times])

    def _plan_planting(self) -> Iterator[_ForagerPlan | None]:
        if self.seen.count("sapling"):
            moves = self.paths.approach(("grass",))
            if moves is not None:
                self.planted = True
                yield _ForagerPlan("I plant the sapling.", [*moves, "place_plant"])
        elif not self.planted and self.seen.ahead.kind == "grass":
            yield _ForagerPlan("I look for a sapling.", ["do"] * self.limit)

    def _plan_crafting(self) -> Iterator[_ForagerPlan | None]:
        """Make missing tools, at a nearby table or at a new one if there is enough wood."""
        missing = self._find_missing_tools()
        if not missing:
            return
        wood = sum(MAKE[tool].uses["wood"] for tool in missing)
        makes = [f"make_{tool}" for tool in missing]
        if self.seen.count("wood") >= wood:
            moves = self.paths.approach(("table",))
            if moves is not None:
                yield _ForagerPlan("I work at the table.", [*moves, *makes])
        if self.seen.count("wood") >= wood + _TABLE:
            moves = self.paths.approach(PLACE["table"].where)
            if moves is not None:
                yield _ForagerPlan("I set up a table.", [*moves, "place_table", *makes])

    def _find_missing_tools(self) -> list[str]:
        """Return the tools to make next."""
        has = self.seen.count
        missing = [tool for tool in _WOOD_TOOLS if not has(tool)]
        if not missing and not has("stone_pickaxe") and has("stone"):
            missing = ["stone_pickaxe"]
        return missing

    def _plan_gathering(self) -> Iterator[_ForagerPlan | None]:
        has = self.seen.count
        if has("wood_pickaxe"):
            if has("stone") and not self.stone_placed:
                moves = self.paths.approach(PLACE["stone"].where)
                if moves is not None:
                    self.stone_placed = True
                    yield _ForagerPlan("I place a stone.", [*moves, "place_stone"])
            if has("stone") < 2:
                yield self._use("gather", ("stone",), 1)
        if has("wood") < _TABLE + 2 and not has("stone_pickaxe"):
            yield self._use("gather", ("tree",), 1)

    def _plan_walk(self) -> _ForagerPlan:
        """Continue in the current direction; if that is not possible, choose another one."""
        order = list(HEADINGS)
        first = self.draw(len(order), 1)[0]
        others = [way for way in order[first:] + order[:first] if way != self.heading]
        for way in (self.heading, *others):
            moves = self.paths.find_path_in_direction(self.limit, way) if way else []
            if moves:
                self.heading = way
                return _ForagerPlan(f"I explore: {way}.", moves)
        free = self.paths.approach(("tree", "stone"))
        return _ForagerPlan("I am stuck.", [*(free or []), "do"])
