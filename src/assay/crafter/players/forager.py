"""Ways through what can be seen: which cells can be walked to, and how. Remembers nothing.

The forager: lives off the land and makes its first tools.

Sees one observation at a time. All it keeps from turn to turn are a few words in its notes:
where it was heading, and what it has done once and need not do again. It fights a zombie
beside it, eats, drinks and sleeps when it must. Now and then it works: it plants, and makes
tools up to a stone pickaxe. Otherwise it strolls. It mines nothing deeper, builds no shelter
and remembers no places.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from assay.crafter.rules import MAKE, MAX_ITEM, PLACE, VIEW, WALKABLE
from assay.crafter.text.observation import CENTER, DIRECTIONS, STEPS, Observation

_ACROSS, _DOWN = VIEW
HEADINGS: Final = dict(zip(DIRECTIONS, ((-1, 0), (1, 0), (0, -1), (0, 1)), strict=True))
"""The four directions as steps to the right and down."""
_NEIGHBOURS: Final = tuple(
    tuple(
        (way, i + STEPS[way])
        for way, (dx, dy) in HEADINGS.items()
        if 0 <= i % _ACROSS + dx < _ACROSS and 0 <= i // _ACROSS + dy < _DOWN
    )
    for i in range(_ACROSS * _DOWN)
)
_MOVES: Final = {way: f"move_{way}" for way in DIRECTIONS}


class Sight:
    """One observation, searched once from the player's cell outwards."""

    def __init__(self, seen: Observation) -> None:
        self.seen = seen
        self._way_in: dict[int, str] = {CENTER: ""}
        order = [CENTER]
        for cell in order:
            for way, beyond in _NEIGHBOURS[cell]:
                ground = seen.cells[beyond]
                if (
                    beyond not in self._way_in
                    and ground.thing is None
                    and ground.material in WALKABLE
                ):
                    self._way_in[beyond] = way
                    order.append(beyond)
        self._order = order

    def route(self, cell: int) -> list[str]:
        """The directions that lead to a cell that can be walked to."""
        ways: list[str] = []
        while cell != CENTER:
            way = self._way_in[cell]
            ways.append(way)
            cell -= STEPS[way]
        return ways[::-1]

    def approach(self, kinds: Collection[str], within: int = 99) -> list[str] | None:
        """The moves after which the nearest of some kinds is in front; None if there is none.

        Being there already takes no moves. What is farther than `within` cells is left alone.
        """
        if self.seen.ahead.kind in kinds:
            return []
        for cell in self._order:
            for way, beyond in _NEIGHBOURS[cell]:
                if beyond == CENTER or self.seen.cells[beyond].kind not in kinds:
                    continue
                ways = self.route(cell)
                if len(ways) >= within:
                    return None
                # Walking into what is not free turns the player without moving it.
                if not ways or ways[-1] != way:
                    ways.append(way)
                return [_MOVES[way] for way in ways]
        return None

    def ahead_after(self, moves: int, heading: str) -> list[str]:
        """The moves that lead farthest in a direction; none if no cell is farther."""
        across, down = HEADINGS[heading]
        best, gain = CENTER, 0
        for cell in self._order:
            x, y = cell % _ACROSS - _ACROSS // 2, cell // _ACROSS - _DOWN // 2
            if across * x + down * y > gain:
                best, gain = cell, across * x + down * y
        return [_MOVES[way] for way in self.route(best)][:moves]

    def in_view(self, *kinds: str) -> bool:
        """Whether anything of some kinds can be seen."""
        return any(cell.kind in kinds for cell in self.seen.cells)


_PLANTED: Final = "planted"
_WALLED: Final = "placed stone"
_HEADING: Final = "heading "
_HUNGRY, _THIRSTY, _TIRED = 6, 6, 3
_STROLLS: Final = 4
"""It works in one of so many turns, and strolls in the others."""
_WOOD_TOOLS: Final = ("wood_pickaxe", "wood_sword")
_TABLE: Final = PLACE["table"].uses["wood"]


class _Errand(NamedTuple):
    reasoning: str
    actions: list[str]


class ForagerTurn(NamedTuple):
    """What the forager does next."""

    actions: tuple[str, ...]
    reasoning: str
    notes: str
    """What it wants to be told in its next turn."""


def forage(
    seen: Observation, told: str, limit: int, draw: Callable[[int, int], list[int]]
) -> ForagerTurn:
    """One turn of the forager.

    Args:
        seen: What it sees.
        told: Its notes of the turn before; empty in its first.
        limit: The most actions it may choose.
        draw: Gives numbers from 0 to below the first argument, as many as the second says.
    """
    forager = _Forager(seen, told, limit, draw)
    plan = forager.plan()
    return ForagerTurn(tuple(plan.actions[: forager.limit]), plan.reasoning, forager.notes())


class _Forager:
    """One turn."""

    def __init__(
        self, seen: Observation, told: str, limit: int, draw: Callable[[int, int], list[int]]
    ) -> None:
        self.seen, self.sight, self.draw = seen, Sight(seen), draw
        words = told.split("; ")
        self.planted, self.walled = _PLANTED in words, _WALLED in words
        headings = [word.removeprefix(_HEADING) for word in words if _HEADING in word]
        self.heading = headings[0] if headings and headings[0] in HEADINGS else ""
        self.limit = self._careful(limit)

    def notes(self) -> str:
        """What the next turn should know."""
        words = [f"{_HEADING}{self.heading}"] if self.heading else []
        words += [_PLANTED] if self.planted else []
        words += [_WALLED] if self.walled else []
        return "; ".join(words)

    def _careful(self, limit: int) -> int:
        """Fewer actions at once where something may come in between."""
        if self.sight.in_view("lava"):
            return 1
        return min(limit, 2) if self.sight.in_view("zombie", "skeleton", "arrow") else limit

    def plan(self) -> _Errand:
        """The first thing there is to do."""
        if self.seen.sleeping:
            return _Errand("I am asleep.", ["sleep"] * self.limit)
        return next(plan for plan in self._wishes() if plan)

    def _wishes(self) -> Iterator[_Errand | None]:
        count = self.seen.count
        yield self._use("fight", ("zombie",), 5, within=1)
        if count("drink") <= _THIRSTY:
            yield self._use("drink", ("water",), MAX_ITEM - count("drink"))
        if count("food") <= _HUNGRY:
            yield self._use("eat", ("cow",), 3)
        if count("energy") <= _TIRED:
            yield _Errand("I am tired.", ["sleep"] * self.limit)
        if not self.draw(_STROLLS, 2)[1]:
            yield from self._planting()
            yield from self._crafting()
            yield from self._gathering()
        yield self._wander()

    def _use(self, what: str, kinds: tuple[str, ...], times: int, **how: int) -> _Errand | None:
        """Go to the nearest of some kinds and use it."""
        moves = self.sight.approach(kinds, **how)
        if moves is None:
            return None
        return _Errand(f"I want to {what}: {kinds[0]}.", [*moves, *["do"] * times])

    def _planting(self) -> Iterator[_Errand | None]:
        if self.seen.count("sapling"):
            moves = self.sight.approach(("grass",))
            if moves is not None:
                self.planted = True
                yield _Errand("I plant the sapling.", [*moves, "place_plant"])
        elif not self.planted and self.seen.ahead.kind == "grass":
            yield _Errand("I look for a sapling.", ["do"] * self.limit)

    def _crafting(self) -> Iterator[_Errand | None]:
        """Make what can be made, at a table that is near or that there is wood for."""
        missing = self._missing()
        if not missing:
            return
        wood = sum(MAKE[tool].uses["wood"] for tool in missing)
        makes = [f"make_{tool}" for tool in missing]
        if self.seen.count("wood") >= wood:
            moves = self.sight.approach(("table",))
            if moves is not None:
                yield _Errand("I work at the table.", [*moves, *makes])
        if self.seen.count("wood") >= wood + _TABLE:
            moves = self.sight.approach(PLACE["table"].where)
            if moves is not None:
                yield _Errand("I set up a table.", [*moves, "place_table", *makes])

    def _missing(self) -> list[str]:
        """The tools to make next."""
        has = self.seen.count
        missing = [tool for tool in _WOOD_TOOLS if not has(tool)]
        if not missing and not has("stone_pickaxe") and has("stone"):
            missing = ["stone_pickaxe"]
        return missing

    def _gathering(self) -> Iterator[_Errand | None]:
        has = self.seen.count
        if has("wood_pickaxe"):
            if has("stone") and not self.walled:
                moves = self.sight.approach(PLACE["stone"].where)
                if moves is not None:
                    self.walled = True
                    yield _Errand("I place a stone.", [*moves, "place_stone"])
            if has("stone") < 2:
                yield self._use("gather", ("stone",), 1)
        if has("wood") < _TABLE + 2 and not has("stone_pickaxe"):
            yield self._use("gather", ("tree",), 1)

    def _wander(self) -> _Errand:
        """Walk on; where that leads no farther, choose another direction."""
        order = list(HEADINGS)
        turned = self.draw(len(order), 1)[0]
        others = [way for way in order[turned:] + order[:turned] if way != self.heading]
        for way in (self.heading, *others):
            moves = self.sight.ahead_after(self.limit, way) if way else []
            if moves:
                self.heading = way
                return _Errand(f"I explore: {way}.", moves)
        free = self.sight.approach(("tree", "stone"))
        return _Errand("I am stuck.", [*(free or []), "do"])
