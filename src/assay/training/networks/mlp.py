"""The network of `mlp`."""

import torch
from torch import Tensor, nn

from ..token_environment import TokenSpace
from .seam import Network, PolicyOutput, linear

__all__ = ["MlpNetwork"]


class MlpNetwork(Network):
    """Rows of tokens, summed: a layer on a one-hot vector, at a third of its time."""

    def __init__(self, space: TokenSpace, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("rows", torch.from_numpy(space.row_table), persistent=False)
        self.table = nn.EmbeddingBag(space.rows, width, mode="sum", padding_idx=0)
        nn.init.normal_(self.table.weight, std=space.tokens**-0.5, generator=generator)
        self.bias = nn.Parameter(torch.zeros(width))
        self.inner = linear(width, width, generator)
        self.actor = linear(width, len(space.actions), generator, 0.01)
        self.critic = linear(width, 1, generator, 1.0)

    def forward(self, tokens: Tensor, starts: Tensor, memory: Tensor) -> PolicyOutput:
        """Read each step on its own."""
        steps, worlds, count, _ = tokens.shape
        seen = tokens.view(steps * worlds, count, 3).long()
        attribute, place, value = seen.unbind(2)
        first, stride = self.rows[attribute].unbind(2)
        inside = torch.tanh(self.table(first + stride * place + value) + self.bias)
        inside = torch.tanh(self.inner(inside))
        logits = self.actor(inside).view(steps, worlds, -1)
        return PolicyOutput(logits, self.critic(inside).view(steps, worlds), memory)
