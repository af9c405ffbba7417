"""`trxl`: latents read tokens, a Transformer-XL looks back at what was read before."""

from typing import TYPE_CHECKING

from ..network_sizes import LATENTS, MEMORY
from ..token_environment import TokenSpace
from .perceiver import count_heads, count_perceiver
from .seam import Capacity, LayerCount, register

if TYPE_CHECKING:
    from torch import Generator

    from ..networks.seam import Network

__all__ = ["Trxl"]


@register
class Trxl:
    """The same perceiver into one block of a Transformer-XL."""

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
        from ..networks.trxl import TrxlNetwork

        return TrxlNetwork(space, width, generator)
