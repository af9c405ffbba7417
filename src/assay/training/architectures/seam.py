"""The seam of architectures: how big one is, and how its network is made.

    @register
    class Mine:
        name = "mine"
        width = 64

        def capacity(self, space, width): ...
        def network(self, space, width, generator): ...

To say how big a network is takes no torch, so that a plan can be printed without it. A test
compares what is said with what is made.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from assay._util.names import unknown_name
from assay.errors import UsageError

from ..token_environment import TokenSpace

if TYPE_CHECKING:
    from torch import Generator

    from ..networks.seam import Network

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Capacity",
    "LayerCount",
    "architecture_named",
    "register",
]


class Capacity(NamedTuple):
    """How big a network is."""

    parameters: int
    flops: int
    """Operations to answer one observation, a multiplication and an addition being two; those
    that are the same for all observations of a batch do not count."""

    def training_flops(self, epochs: int) -> int:
        """Operations for a step of training: played once, then learned from so often."""
        return self.flops * (1 + 3 * epochs)


class Architecture(Protocol):
    """A kind of network."""

    name: str
    width: int
    """What it has where none is asked for; a multiple of `step`."""
    step: int
    """Widths are multiples of this."""

    def capacity(self, space: TokenSpace, width: int) -> Capacity:
        """How big it is at this width; a pure function."""
        ...

    def network(self, space: TokenSpace, width: int, generator: "Generator") -> "Network":
        """One with first weights drawn from the generator."""
        ...


ARCHITECTURES: Final[dict[str, Architecture]] = {}
"""All that are registered, by name."""

A = TypeVar("A", bound=type[Architecture])


def register(architecture: A) -> A:
    """Make an architecture known by its name."""
    ARCHITECTURES[architecture.name] = architecture()
    return architecture


def architecture_named(name: str) -> Architecture:
    """The architecture of that name."""
    if name not in ARCHITECTURES:
        raise UsageError(unknown_name("architecture", name, ARCHITECTURES))
    return ARCHITECTURES[name]


@dataclass
class LayerCount:
    """Adds up parameters and operations, layer by layer; what is smaller is left out."""

    parameters: int = 0
    flops: int = 0

    def table(self, rows: int, width: int) -> None:
        """Rows that are looked up, and not multiplied."""
        self.parameters += rows * width

    def linear(self, inside: int, outside: int, times: int = 1, *, bias: bool = True) -> None:
        """A matrix, used so many times for an observation."""
        self.parameters += (inside + bias) * outside
        self.flops += 2 * inside * outside * times

    def norm(self, width: int) -> None:
        """A layer norm."""
        self.parameters += 2 * width

    def attention(self, queries: int, keys: int, width: int) -> None:
        """Products of queries with keys, and of weights with values."""
        self.flops += 4 * queries * keys * width

    def capacity(self) -> Capacity:
        """The sums."""
        return Capacity(self.parameters, self.flops)
