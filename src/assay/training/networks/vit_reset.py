"""The network of `vit_reset`."""

import torch
from torch import Tensor

from ..network_sizes import LATENTS
from ..token_environment import TokenSpace
from .perceiver import Heads, Perceiver
from .seam import Network, PolicyOutput, linear

__all__ = ["VitResetNetwork"]


class VitResetNetwork(Network):
    """A perceiver, an LSTM that forgets where an episode starts, and two heads."""

    def __init__(self, space: TokenSpace, width: int, generator: torch.Generator) -> None:
        super().__init__()
        hidden = 2 * width
        self.remembers = 2 * hidden
        self.perceiver = Perceiver(space, width, generator)
        self.seen = linear(LATENTS * width, 4 * hidden, generator, 1.0)
        self.before = linear(hidden, 4 * hidden, generator, 1.0, bias=False)
        self.heads = Heads(space, hidden, width, generator)

    def forward(self, tokens: Tensor, starts: Tensor, memory: Tensor) -> PolicyOutput:
        """Read step by step; only what the LSTM does needs the step before."""
        steps, worlds = starts.shape
        seen = self.seen(self.perceiver(tokens.flatten(0, 1))).unflatten(0, (steps, worlds))
        kept = 1 - starts.unsqueeze(2).to(seen.dtype)
        hidden, cell = memory.chunk(2, 1)
        told = []
        for step in range(steps):
            hidden, cell = hidden * kept[step], cell * kept[step]
            gates = seen[step] + self.before(hidden)
            enters, stays, new, leaves = gates.chunk(4, 1)
            # A forget gate is open at first: 1 is added to what it is given.
            cell = torch.sigmoid(stays + 1) * cell + torch.sigmoid(enters) * torch.tanh(new)
            hidden = torch.sigmoid(leaves) * torch.tanh(cell)
            told.append(hidden)
        logits, values = self.heads(torch.stack(told))
        return PolicyOutput(logits, values, torch.cat([hidden, cell], 1))
