"""The network of `trxl`: Transformer-XL (Dai et al., 2019), one block, without dropout.

What is remembered are keys and values, where the paper keeps what they are made from: so a step
costs no more than one of `vit_reset`. They are those of the weights at the time.

Dropout is left out because PPO compares the chances of an action at two times, and dropout
would count as a change of policy.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..network_sizes import LATENTS, MEMORY
from ..token_environment import TokenSpace
from .perceiver import Heads, Perceiver
from .seam import Network, PolicyOutput, linear

__all__ = ["TrxlNetwork"]

_HEADS = 2


class TrxlNetwork(Network):
    """A perceiver, a block that looks back up to 32 steps of the episode, and two heads."""

    def __init__(self, space: TokenSpace, width: int, generator: torch.Generator) -> None:
        super().__init__()
        inside = 2 * width
        # Keys and values of each of the last steps, and whether it is of this episode.
        self.remembers = MEMORY * (2 * inside + 1)
        self.perceiver = Perceiver(space, width, generator)
        self.enter = linear(LATENTS * width, inside, generator, 1.0)
        self.before = nn.LayerNorm(inside)
        self.query = linear(inside, inside, generator, 1.0)
        self.past = linear(inside, 2 * inside, generator, 1.0)
        self.distance = linear(inside, inside, generator, 1.0, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(inside))
        self.distance_bias = nn.Parameter(torch.zeros(inside))
        self.out = linear(inside, inside, generator, 1.0)
        self.between = nn.LayerNorm(inside)
        self.wide = linear(inside, 5 * inside, generator)
        self.narrow = linear(5 * inside, inside, generator, 1.0)
        self.heads = Heads(space, inside, width, generator)
        self.register_buffer("waves", _waves(inside), persistent=False)

    def forward(self, tokens: Tensor, starts: Tensor, memory: Tensor) -> PolicyOutput:
        """Read a sequence at once: each step sees itself and those before it."""
        steps, worlds = starts.shape
        read = self.enter(self.perceiver(tokens.flatten(0, 1)))
        read = read.unflatten(0, (steps, worlds)).transpose(0, 1)
        known, kept = memory.split([memory.shape[1] - MEMORY, MEMORY], 1)
        read_before = self.before(read)
        past = torch.cat([known.unflatten(1, (MEMORY, -1)), self.past(read_before)], 1)
        # Which episode a step is of, counted in this sequence; what is not kept is of none.
        now = starts.t().long().cumsum(1)
        episode = torch.cat([kept.long() - 1, now], 1)
        told = self._looked_back(self.query(read_before), past, episode, now)
        inside = read + self.out(told)
        inside = inside + self.narrow(F.relu(self.wide(self.between(inside))))
        logits, values = self.heads(inside.transpose(0, 1))
        same = (episode == now[:, -1:])[:, -MEMORY:].to(memory.dtype)
        remembered = torch.cat([past[:, -MEMORY:].flatten(1), same], 1)
        return PolicyOutput(logits, values, remembered)

    def _looked_back(self, query: Tensor, past: Tensor, episode: Tensor, now: Tensor) -> Tensor:
        """(N, T, width): what each step makes of itself and the steps before it."""
        steps = query.shape[1]
        keys, values = past.chunk(2, 2)
        back = torch.arange(steps).unsqueeze(1) + MEMORY - torch.arange(MEMORY + steps)
        near = (back >= 0) & (back <= MEMORY)
        seen = near & (episode.unsqueeze(1) == now.unsqueeze(2))
        by_content = _heads(query + self.content_bias) @ _heads(keys).transpose(2, 3)
        waves = _heads(self.distance(self.waves).unsqueeze(0))
        by_distance = _heads(query + self.distance_bias) @ waves.transpose(2, 3)
        index = back.clamp(0, MEMORY).expand(*by_content.shape)
        weights = by_content + by_distance.gather(3, index)
        weights = weights / math.sqrt(keys.shape[2] / _HEADS)
        weights = weights.masked_fill(~seen.unsqueeze(1), -1e9)
        return (torch.softmax(weights, 3) @ _heads(values)).transpose(1, 2).flatten(2)


def _heads(x: Tensor) -> Tensor:
    """(B, L, width) as (B, heads, L, width / heads)."""
    return x.unflatten(2, (_HEADS, -1)).transpose(1, 2)


def _waves(width: int) -> Tensor:
    """(1 + MEMORY, width): how many steps ago, as waves of falling frequency."""
    steps = torch.arange(MEMORY + 1).unsqueeze(1)
    angles = steps * 10_000 ** (-torch.arange(0, width, 2) / width)
    return torch.cat([angles.sin(), angles.cos()], 1)
