"""Ways through what can be seen: which cells can be walked to, and how. Remembers nothing."""

from collections.abc import Collection
from typing import Final

from assay.crafter.rules import VIEW, WALKABLE
from assay.crafter.text import Observation
from assay.crafter.text.observation import CENTER, DIRECTIONS, STEPS

__all__ = ["HEADINGS", "Sight"]

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
