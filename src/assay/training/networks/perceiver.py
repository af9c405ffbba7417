"""Tokens read by latents, and what is chosen from it: shared by networks with a memory."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..network_sizes import ATTRIBUTE, FEATURES, FREQUENCIES, HEADS, LATENTS, LAYERS
from ..token_environment import TokenSpace
from .seam import linear

__all__ = ["Heads", "Perceiver"]


class Perceiver(nn.Module):
    """Latents that look at tokens, twice; (B, tokens, 3) becomes (B, latents * width)."""

    def __init__(self, space: TokenSpace, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.attributes = nn.Embedding(1 + len(space.attributes), ATTRIBUTE)
        nn.init.normal_(self.attributes.weight, generator=generator)
        self.latents = nn.Parameter(torch.randn(LATENTS, width, generator=generator))
        self.layers = nn.ModuleList(_Layer(width, generator) for _ in range(LAYERS))
        self.register_buffer("places", _waves(*space.view), persistent=False)
        self.register_buffer("scales", torch.from_numpy(space.scales), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """What the latents have seen."""
        attribute, place, value = tokens.long().unbind(2)
        amount = (value * self.scales[attribute]).unsqueeze(2)
        features = torch.cat([self.attributes(attribute), self.places[place], amount], 2)
        missing = torch.zeros(attribute.shape).masked_fill_(attribute == 0, -1e9)
        latents = self.latents.expand(len(tokens), -1, -1)
        for layer in self.layers:
            latents = layer(latents, features, missing[:, None, None, :])
        return latents.flatten(1)


class _Layer(nn.Module):
    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.query = linear(width, width, generator, 1.0)
        self.token = linear(FEATURES, 2 * width, generator, 1.0)
        self.out = linear(width, width, generator, 1.0)
        self.between = nn.LayerNorm(width)
        self.wide = linear(width, 2 * width, generator)
        self.narrow = linear(2 * width, width, generator, 1.0)

    def forward(self, latents: Tensor, features: Tensor, missing: Tensor) -> Tensor:
        query = _heads(self.query(self.before(latents)))
        keys, values = self.token(features).chunk(2, 2)
        keys, values = _heads(keys), _heads(values)
        weights = query @ keys.transpose(2, 3) / math.sqrt(query.shape[3]) + missing
        seen = torch.softmax(weights, 3) @ values
        latents = latents + self.out(seen.transpose(1, 2).flatten(2))
        return latents + self.narrow(F.relu(self.wide(self.between(latents))))


def _heads(x: Tensor) -> Tensor:
    """(B, L, width) as (B, heads, L, width / heads)."""
    return x.unflatten(2, (HEADS, -1)).transpose(1, 2)


def _waves(across: int, down: int) -> Tensor:
    """(places, 4 * frequencies): where a place is, as waves of growing frequency."""
    x = torch.linspace(-1, 1, across).repeat_interleave(down)
    y = torch.linspace(-1, 1, down).repeat(across)
    angles = [math.pi * 2**k / 2 * axis for axis in (x, y) for k in range(FREQUENCIES)]
    return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)


class Heads(nn.Module):
    """Chooses an action, and values a state."""

    def __init__(
        self, space: TokenSpace, inside: int, width: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.actor = linear(inside, 4 * width, generator)
        self.action = linear(4 * width, len(space.actions), generator, 0.01)
        self.critic = linear(inside, 4 * width, generator)
        self.value = linear(4 * width, 1, generator, 1.0)

    def forward(self, inside: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values."""
        logits = self.action(torch.tanh(self.actor(inside)))
        return logits, self.value(torch.tanh(self.critic(inside))).squeeze(-1)
