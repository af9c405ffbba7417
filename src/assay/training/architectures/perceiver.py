"""What `vit_reset` and `trxl` have in common: tokens are read by a few latents.

The sizes follow the recipe that `docs/train.md` names, at half its width, so that runs of
150,000 steps take minutes on one core.
"""

from ..network_sizes import ATTRIBUTE, FEATURES, LATENTS, LAYERS
from ..token_environment import TokenSpace
from .seam import LayerCount

__all__ = ["count_heads", "count_perceiver"]


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
