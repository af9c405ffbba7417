"""Which width gives an architecture the capacity of another one."""

from typing import Final, NamedTuple

from ..environments import TokenSpace
from .seam import Architecture

__all__ = ["CapacityMatch", "matching_width"]

_WIDEST: Final = 4096
_CLOSE: Final = 0.1
"""Two capacities that differ by no more than this share are called equal."""


class CapacityMatch(NamedTuple):
    """The width that comes nearest to a number of parameters."""

    width: int
    parameters: int
    wanted: int

    @property
    def difference(self) -> float:
        """By what share of the wanted number it differs."""
        return self.parameters / self.wanted - 1

    @property
    def close(self) -> bool:
        """Whether it differs by 10 % at most."""
        return abs(self.difference) <= _CLOSE


def matching_width(
    architecture: Architecture, space: TokenSpace, parameters: int
) -> CapacityMatch:
    """The width at which an architecture has as many parameters, as nearly as it can."""
    widths = range(architecture.step, _WIDEST + 1, architecture.step)
    sizes = ((width, architecture.capacity(space, width).parameters) for width in widths)
    width, size = min(sizes, key=lambda each: abs(each[1] - parameters))
    return CapacityMatch(width, size, parameters)
