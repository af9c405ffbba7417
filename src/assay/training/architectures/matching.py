"""Which width gives an architecture the capacity of another one."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..environments import ENVIRONMENTS, space_of
from ..token_environment import TokenSpace
from .seam import ARCHITECTURES, Architecture, Capacity

__all__ = ["CapacityMatch", "matching_width", "width_for_runs"]

_WIDEST: Final = 4096
_CLOSE: Final = 0.1
"""Two capacities that differ by no more than this share are called equal."""


class CapacityMatch(NamedTuple):
    """The width that comes nearest to a number of parameters, or of FLOPs."""

    width: int
    capacity: Capacity
    wanted: float
    size: str
    """What was matched: parameters or flops."""

    @property
    def parameters(self) -> int:
        """How many it has."""
        return self.capacity.parameters

    @property
    def difference(self) -> float:
        """By what share of the wanted number it differs."""
        return float(getattr(self.capacity, self.size) / self.wanted - 1)

    @property
    def close(self) -> bool:
        """Whether it differs by 10 % at most."""
        return abs(self.difference) <= _CLOSE


def matching_width(
    architecture: Architecture, space: TokenSpace, wanted: float, size: str = "parameters"
) -> CapacityMatch:
    """The width at which an architecture has as many parameters, as nearly as it can.

    Args:
        architecture: What gets another width.
        space: What it observes, and how it acts.
        wanted: How many.
        size: Of what: parameters, or flops.
    """
    widths = range(architecture.step, _WIDEST + 1, architecture.step)
    sizes = ((width, architecture.capacity(space, width)) for width in widths)
    width, capacity = min(sizes, key=lambda each: abs(getattr(each[1], size) - wanted))
    return CapacityMatch(width, capacity, wanted, size)


def width_for_runs(
    configurations: Sequence[Mapping[str, Any]], wanted: float, size: str = "parameters"
) -> CapacityMatch | None:
    """The width with which runs of our trainer would match; None for those of another.

    Runs are ours if all have one architecture, environment and width that are known here, and
    the parameters that such a network has here.
    """
    names = ("architecture", "environment", "width", "parameters")
    kinds = {tuple(map(str, map(each.get, names))) for each in configurations}
    if len(kinds) != 1:
        return None
    ours = configurations[0]
    name, place, width = (ours.get(each) for each in names[:3])
    if name not in ARCHITECTURES or place not in ENVIRONMENTS or type(width) is not int:
        return None
    architecture, space = ARCHITECTURES[name], space_of(place)
    if architecture.capacity(space, width).parameters != ours.get("parameters"):
        return None
    return matching_width(architecture, space, wanted, size)
