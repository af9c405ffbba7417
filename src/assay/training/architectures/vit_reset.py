"""`vit_reset`: latents read tokens, an LSTM remembers, and forgets at the end of an episode."""

from typing import TYPE_CHECKING

from ..network_sizes import LATENTS
from ..token_environment import TokenSpace
from .perceiver import count_heads, count_perceiver
from .seam import Capacity, LayerCount, register

if TYPE_CHECKING:
    from torch import Generator

    from ..networks.seam import Network

__all__ = ["VitReset"]


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
        from ..networks.vit_reset import VitResetNetwork

        return VitResetNetwork(space, width, generator)
