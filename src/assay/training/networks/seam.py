"""What every network does: read observations in order, and say what to do.

Sequences are (T, N, ...): T steps of N worlds. What is remembered is one flat tensor (N, S), so
that whoever keeps it need not know what is in it; S is 0 where nothing is remembered. A step
that starts an episode is read as if nothing had been before.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Network", "PolicyOutput", "linear"]


class PolicyOutput(NamedTuple):
    """What a network says of a sequence."""

    logits: Tensor
    """(T, N, actions)"""
    values: Tensor
    """(T, N): the return that is expected."""
    memory: Tensor
    """(N, S), after the last step."""


class Network(nn.Module):
    """The base of all networks."""

    remembers: int = 0
    """S, the numbers that are remembered of a world."""

    def blank(self, worlds: int) -> Tensor:
        """What is remembered before anything was seen, (N, S)."""
        return torch.zeros(worlds, self.remembers)

    def forward(self, tokens: Tensor, starts: Tensor, memory: Tensor) -> PolicyOutput:
        """Read a sequence.

        Args:
            tokens: (T, N, tokens, 3), whole numbers.
            starts: (T, N), whether an episode starts with this step.
            memory: (N, S), from before the first step.
        """
        raise TypeError(f"{type(self).__name__} does not say how it reads")


def linear(
    inside: int,
    outside: int,
    generator: torch.Generator,
    gain: float = 2**0.5,
    *,
    bias: bool = True,
) -> nn.Linear:
    """A layer with orthogonal weights of this gain and no bias at first."""
    layer = nn.Linear(inside, outside, bias=bias)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
