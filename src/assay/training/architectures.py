"""Registry of network architectures: the size of each, and how to create its network.

    @register
    class Mine:
        name = "mine"
        width = 64

        def capacity(self, space, width): ...
        def network(self, space, width, generator): ...

Computing a size does not need torch, so that a plan can be printed without it. A test compares
computed sizes with the networks. The sizes of `vit_reset` and `trxl` follow the recipe named in
`docs/train.md` at half its width, so that runs of 150,000 steps take minutes on one core.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.training.environments import ENVIRONMENTS, TokenSpace, space_of

if TYPE_CHECKING:
    from torch import Generator

    from assay.training.networks import Network


ATTRIBUTE: Final = 8
"""Length of the embedding of an attribute."""
FREQUENCIES: Final = 3
"""Frequencies of the position encoding, for each of two axes."""
FEATURES: Final = ATTRIBUTE + 4 * FREQUENCIES + 1
"""Features of a token: its attribute, position and value."""
LATENTS: Final = 8
LAYERS: Final = 2
HEADS: Final = 4
MEMORY: Final = 32
"""Number of earlier steps a transformer attends to."""


class Capacity(NamedTuple):
    """Size of a network."""

    parameters: int
    flops: int
    """Operations for one observation; a multiply-add counts as two. Operations
    shared by all observations of a batch are not counted."""

    def training_flops(self, epochs: int) -> int:
        """Return operations per training step; learning costs three passes per epoch."""
        return self.flops * (1 + 3 * epochs)


class Architecture(Protocol):
    """A kind of network."""

    name: str
    width: int
    """Default width; a multiple of `step`."""
    step: int
    """Widths are multiples of this."""

    def capacity(self, space: TokenSpace, width: int) -> Capacity:
        """Compute the size at this width; a pure function."""
        ...

    def network(self, space: TokenSpace, width: int, generator: "Generator") -> "Network":
        """Create a network with initial weights drawn from the generator."""
        ...


ARCHITECTURES: Final[dict[str, Architecture]] = {}
"""Registered architectures by name."""

A = TypeVar("A", bound=type[Architecture])


def register(architecture: A) -> A:
    """Register an architecture under its name."""
    ARCHITECTURES[architecture.name] = architecture()
    return architecture


def architecture_named(name: str) -> Architecture:
    """Return the architecture registered under this name."""
    if name not in ARCHITECTURES:
        raise UsageError(unknown_name("architecture", name, ARCHITECTURES))
    return ARCHITECTURES[name]


@dataclass
class LayerCount:
    """Sum of parameters and operations over layers; smaller operations are not counted."""

    parameters: int = 0
    flops: int = 0

    def add_table(self, rows: int, width: int) -> None:
        """Add a lookup table, which costs no operations."""
        self.parameters += rows * width

    def add_linear(
        self, inputs: int, outputs: int, times: int = 1, *, bias: bool = True
    ) -> None:
        """Add a linear layer, applied `times` times per observation."""
        self.parameters += (inputs + bias) * outputs
        self.flops += 2 * inputs * outputs * times

    def add_norm(self, width: int) -> None:
        """Add a layer norm."""
        self.parameters += 2 * width

    def add_attention(self, queries: int, keys: int, width: int) -> None:
        """Add the products of queries with keys, and of weights with values."""
        self.flops += 4 * queries * keys * width

    def capacity(self) -> Capacity:
        """Return the sums."""
        return Capacity(self.parameters, self.flops)


_MAX_WIDTH: Final = 4096
_CLOSE_SHARE: Final = 0.1
"""Two capacities that differ by at most this share are called equal."""


class CapacityMatch(NamedTuple):
    """The width whose size is nearest to a number of parameters or FLOPs."""

    width: int
    capacity: Capacity
    wanted: float
    size: str
    """The size that was matched: "parameters" or "flops"."""

    @property
    def parameters(self) -> int:
        """Parameters at this width."""
        return self.capacity.parameters

    @property
    def difference(self) -> float:
        """Relative difference from the wanted number."""
        return float(getattr(self.capacity, self.size) / self.wanted - 1)

    @property
    def close(self) -> bool:
        """Whether it differs by at most 10 %."""
        return abs(self.difference) <= _CLOSE_SHARE


def matching_width(
    architecture: Architecture, space: TokenSpace, wanted: float, size: str = "parameters"
) -> CapacityMatch:
    """Return the width whose number of `size` is nearest to the wanted one."""
    widths = range(architecture.step, _MAX_WIDTH + 1, architecture.step)
    sizes = ((width, architecture.capacity(space, width)) for width in widths)
    width, capacity = min(sizes, key=lambda entry: abs(getattr(entry[1], size) - wanted))
    return CapacityMatch(width, capacity, wanted, size)


def find_width_for_runs(
    configurations: Sequence[Mapping[str, Any]], wanted: float, size: str = "parameters"
) -> CapacityMatch | None:
    """Return the width at which runs of the built-in trainer would match; None for other runs.

    The runs must all have the same architecture, environment and width, all known here, and the
    number of parameters that such a network has here.
    """
    names = ("architecture", "environment", "width", "parameters")
    kinds = {tuple(map(str, map(configuration.get, names))) for configuration in configurations}
    if len(kinds) != 1:
        return None
    first = configurations[0]
    name, environment, width = map(first.get, names[:3])
    if name not in ARCHITECTURES or environment not in ENVIRONMENTS or type(width) is not int:
        return None
    architecture, space = ARCHITECTURES[name], space_of(environment)
    if architecture.capacity(space, width).parameters != first.get("parameters"):
        return None
    return matching_width(architecture, space, wanted, size)


@register
class Mlp:
    """A sum of one embedding per token, followed by two layers."""

    name = "mlp"
    width = 256
    step = 8

    def capacity(self, space: TokenSpace, width: int) -> Capacity:
        """Compute the size at this width."""
        count = LayerCount()
        count.add_table(space.rows, width)
        count.parameters += width
        count.add_linear(width, width)
        count.add_linear(width, len(space.actions))
        count.add_linear(width, 1)
        return count.capacity()

    def network(self, space: TokenSpace, width: int, generator: "Generator") -> "Network":
        """Create a network with initial weights."""
        from assay.training.networks import MlpNetwork

        return MlpNetwork(space, width, generator)


def count_perceiver(count: LayerCount, space: TokenSpace, width: int) -> None:
    """Add the layers that read tokens into latents."""
    count.add_table(1 + len(space.attributes), ATTRIBUTE)
    count.add_table(LATENTS, width)
    for _ in range(LAYERS):
        count.add_norm(width)
        count.add_linear(width, width, LATENTS)
        count.add_linear(FEATURES, 2 * width, space.tokens)
        count.add_attention(LATENTS, space.tokens, width)
        count.add_linear(width, width, LATENTS)
        count.add_norm(width)
        count.add_linear(width, 2 * width, LATENTS)
        count.add_linear(2 * width, width, LATENTS)


def count_heads(count: LayerCount, space: TokenSpace, inputs: int, width: int) -> None:
    """Add the policy head and the value head."""
    count.add_linear(inputs, 4 * width)
    count.add_linear(4 * width, len(space.actions))
    count.add_linear(inputs, 4 * width)
    count.add_linear(4 * width, 1)


@register
class Trxl:
    """A perceiver as in `vit_reset`, followed by one block of a Transformer-XL."""

    name = "trxl"
    width = 32
    step = 8

    def capacity(self, space: TokenSpace, width: int) -> Capacity:
        """Compute the size at this width."""
        count, inputs = LayerCount(), 2 * width
        count_perceiver(count, space, width)
        count.add_linear(LATENTS * width, inputs)
        count.add_norm(inputs)
        count.add_linear(inputs, inputs)
        count.add_linear(inputs, 2 * inputs)
        count.add_linear(inputs, inputs, 0, bias=False)  # the same for all observations
        count.parameters += 2 * inputs
        count.add_attention(1, MEMORY + 1, inputs)
        count.flops += 2 * (MEMORY + 1) * inputs
        count.add_linear(inputs, inputs)
        count.add_norm(inputs)
        count.add_linear(inputs, 5 * inputs)
        count.add_linear(5 * inputs, inputs)
        count_heads(count, space, inputs, width)
        return count.capacity()

    def network(self, space: TokenSpace, width: int, generator: "Generator") -> "Network":
        """Create a network with initial weights."""
        from assay.training.networks import TrxlNetwork

        return TrxlNetwork(space, width, generator)


@register
class VitReset:
    """A perceiver followed by an LSTM."""

    name = "vit_reset"
    width = 32
    step = 8

    def capacity(self, space: TokenSpace, width: int) -> Capacity:
        """Compute the size at this width."""
        count = LayerCount()
        count_perceiver(count, space, width)
        count.add_linear(LATENTS * width, 8 * width)
        count.add_linear(2 * width, 8 * width, bias=False)
        count_heads(count, space, 2 * width, width)
        return count.capacity()

    def network(self, space: TokenSpace, width: int, generator: "Generator") -> "Network":
        """Create a network with initial weights."""
        from assay.training.networks import VitResetNetwork

        return VitResetNetwork(space, width, generator)
