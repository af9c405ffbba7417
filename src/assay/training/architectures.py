"""The architectures: how big each is, and how its network is made.

    @register
    class Mine:
        name = "mine"
        width = 64

        def capacity(self, space, width): ...
        def network(self, space, width, generator): ...

To say how big a network is takes no torch, so that a plan can be printed without it. A test
compares what is said with what is made. The sizes of `vit_reset` and `trxl` follow the recipe
that `docs/train.md` names, at half its width, so that runs of 150,000 steps take minutes on
one core.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.training.environments import ENVIRONMENTS, space_of
from assay.training.network_sizes import ATTRIBUTE, FEATURES, LATENTS, LAYERS, MEMORY
from assay.training.token_environment import TokenSpace

if TYPE_CHECKING:
    from torch import Generator

    from assay.training.networks import Network


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
    """Return the width that brings an architecture nearest to a number of `size`."""
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


@register
class Mlp:
    """A row of weights for each token there can be, summed, and two layers on it."""

    name = "mlp"
    width = 256
    step = 8

    def capacity(self, space: TokenSpace, width: int) -> Capacity:
        """How big it is at this width."""
        count = LayerCount()
        count.table(space.rows, width)
        count.parameters += width
        count.linear(width, width)
        count.linear(width, len(space.actions))
        count.linear(width, 1)
        return count.capacity()

    def network(self, space: TokenSpace, width: int, generator: "Generator") -> "Network":
        """One with first weights."""
        from assay.training.networks import MlpNetwork

        return MlpNetwork(space, width, generator)


def count_perceiver(count: LayerCount, space: TokenSpace, width: int) -> None:
    """Add the reading of tokens by latents."""
    count.table(1 + len(space.attributes), ATTRIBUTE)
    count.table(LATENTS, width)
    for _ in range(LAYERS):
        count.norm(width)
        count.linear(width, width, LATENTS)
        count.linear(FEATURES, 2 * width, space.tokens)
        count.attention(LATENTS, space.tokens, width)
        count.linear(width, width, LATENTS)
        count.norm(width)
        count.linear(width, 2 * width, LATENTS)
        count.linear(2 * width, width, LATENTS)


def count_heads(count: LayerCount, space: TokenSpace, inside: int, width: int) -> None:
    """Add the layers that choose an action and that value a state."""
    count.linear(inside, 4 * width)
    count.linear(4 * width, len(space.actions))
    count.linear(inside, 4 * width)
    count.linear(4 * width, 1)


@register
class Trxl:
    """A perceiver as in `vit_reset`, into one block of a Transformer-XL."""

    name = "trxl"
    width = 32
    step = 8

    def capacity(self, space: TokenSpace, width: int) -> Capacity:
        """How big it is at this width."""
        count, inside = LayerCount(), 2 * width
        count_perceiver(count, space, width)
        count.linear(LATENTS * width, inside)
        count.norm(inside)
        count.linear(inside, inside)
        count.linear(inside, 2 * inside)
        count.linear(inside, inside, 0, bias=False)  # of distances, whatever is seen
        count.parameters += 2 * inside
        count.attention(1, MEMORY + 1, inside)
        count.flops += 2 * (MEMORY + 1) * inside
        count.linear(inside, inside)
        count.norm(inside)
        count.linear(inside, 5 * inside)
        count.linear(5 * inside, inside)
        count_heads(count, space, inside, width)
        return count.capacity()

    def network(self, space: TokenSpace, width: int, generator: "Generator") -> "Network":
        """One with first weights."""
        from assay.training.networks import TrxlNetwork

        return TrxlNetwork(space, width, generator)


@register
class VitReset:
    """A perceiver into an LSTM."""

    name = "vit_reset"
    width = 32
    step = 8

    def capacity(self, space: TokenSpace, width: int) -> Capacity:
        """How big it is at this width."""
        count = LayerCount()
        count_perceiver(count, space, width)
        count.linear(LATENTS * width, 8 * width)
        count.linear(2 * width, 8 * width, bias=False)
        count_heads(count, space, 2 * width, width)
        return count.capacity()

    def network(self, space: TokenSpace, width: int, generator: "Generator") -> "Network":
        """One with first weights."""
        from assay.training.networks import VitResetNetwork

        return VitResetNetwork(space, width, generator)
