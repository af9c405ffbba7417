"""`mlp`: the small baseline, without memory."""

from typing import TYPE_CHECKING

from ..token_environment import TokenSpace
from .seam import Capacity, LayerCount, register

if TYPE_CHECKING:
    from torch import Generator

    from ..networks.seam import Network

__all__ = ["Mlp"]


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
        from ..networks.mlp import MlpNetwork

        return MlpNetwork(space, width, generator)
