"""Policy networks of the architectures `mlp`, `vit_reset` and `trxl`.

Sequences are (T, N, ...): T steps of N worlds. The memory of a network is one flat tensor
(N, S), so that code that stores it does not depend on its layout; S is 0 without memory. At the
first step of an episode, the memory from before is ignored.

`trxl` is one block of Transformer-XL (Dai et al., 2019). Its memory contains keys and values,
computed with the weights at that time, where the paper keeps the hidden states they are
computed from; so a step costs no more than in `vit_reset`. It has no dropout, because PPO
compares the probabilities of an action at two times, and dropout would count as a change of
policy.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.training.architectures import (
    ATTRIBUTE,
    FEATURES,
    FREQUENCIES,
    HEADS,
    LATENTS,
    LAYERS,
    MEMORY,
)
from assay.training.environments import TokenSpace


class PolicyOutput(NamedTuple):
    """Output of a network for a sequence."""

    logits: Tensor
    """(T, N, actions)"""
    values: Tensor
    """(T, N): the expected return."""
    memory: Tensor
    """(N, S), after the last step."""


class Network(nn.Module):
    """The base class of all networks."""

    memory_size: int = 0
    """S, the length of the memory of a world."""

    def make_blank_memory(self, worlds: int) -> Tensor:
        """Return the memory before the first step, (N, S)."""
        return torch.zeros(worlds, self.memory_size)

    def forward(self, tokens: Tensor, starts: Tensor, memory: Tensor) -> PolicyOutput:
        """Process a sequence.

        Args:
            tokens: (T, N, tokens, 3), integers.
            starts: (T, N), whether an episode starts with this step.
            memory: (N, S), from before the first step.
        """
        raise TypeError(f"{type(self).__name__} does not implement forward")


def make_linear(
    inputs: int,
    outputs: int,
    generator: torch.Generator,
    gain: float = 2**0.5,
    *,
    bias: bool = True,
) -> nn.Linear:
    """Create a layer with orthogonal weights of this gain and zero bias."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class MlpNetwork(Network):
    """Summed token embeddings and two layers; thrice as fast as a layer on one-hot input."""

    def __init__(self, space: TokenSpace, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("rows", torch.from_numpy(space.row_table), persistent=False)
        self.table = nn.EmbeddingBag(space.rows, width, mode="sum", padding_idx=0)
        nn.init.normal_(self.table.weight, std=space.tokens**-0.5, generator=generator)
        self.bias = nn.Parameter(torch.zeros(width))
        self.inner = make_linear(width, width, generator)
        self.actor = make_linear(width, len(space.actions), generator, 0.01)
        self.critic = make_linear(width, 1, generator, 1.0)

    def forward(self, tokens: Tensor, starts: Tensor, memory: Tensor) -> PolicyOutput:
        """Process each step independently."""
        steps, worlds, count, _ = tokens.shape
        seen = tokens.view(steps * worlds, count, 3).long()
        attribute, place, value = seen.unbind(2)
        first, stride = self.rows[attribute].unbind(2)
        inputs = torch.tanh(self.table(first + stride * place + value) + self.bias)
        inputs = torch.tanh(self.inner(inputs))
        logits = self.actor(inputs).view(steps, worlds, -1)
        return PolicyOutput(logits, self.critic(inputs).view(steps, worlds), memory)


class Perceiver(nn.Module):
    """Latents that attend to tokens in two layers: (B, tokens, 3) to (B, latents * width)."""

    def __init__(self, space: TokenSpace, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.attributes = nn.Embedding(1 + len(space.attributes), ATTRIBUTE)
        nn.init.normal_(self.attributes.weight, generator=generator)
        self.latents = nn.Parameter(torch.randn(LATENTS, width, generator=generator))
        self.layers = nn.ModuleList(_Layer(width, generator) for _ in range(LAYERS))
        self.register_buffer("places", _encode_positions(*space.view), persistent=False)
        self.register_buffer("scales", torch.from_numpy(space.scales), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the latents after attending to the tokens."""
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
        self.query = make_linear(width, width, generator, 1.0)
        self.token = make_linear(FEATURES, 2 * width, generator, 1.0)
        self.out = make_linear(width, width, generator, 1.0)
        self.between = nn.LayerNorm(width)
        self.wide = make_linear(width, 2 * width, generator)
        self.narrow = make_linear(2 * width, width, generator, 1.0)

    def forward(self, latents: Tensor, features: Tensor, missing: Tensor) -> Tensor:
        query = _split_heads(self.query(self.before(latents)))
        keys, values = self.token(features).chunk(2, 2)
        keys, values = _split_heads(keys), _split_heads(values)
        weights = query @ keys.transpose(2, 3) / math.sqrt(query.shape[3]) + missing
        attended = torch.softmax(weights, 3) @ values
        latents = latents + self.out(attended.transpose(1, 2).flatten(2))
        return latents + self.narrow(F.relu(self.wide(self.between(latents))))


def _split_heads(x: Tensor) -> Tensor:
    """Reshape (B, L, width) to (B, heads, L, width / heads)."""
    return x.unflatten(2, (HEADS, -1)).transpose(1, 2)


def _encode_positions(across: int, down: int) -> Tensor:
    """Encode positions as sines and cosines of growing frequency, (places, 4 * frequencies)."""
    x = torch.linspace(-1, 1, across).repeat_interleave(down)
    y = torch.linspace(-1, 1, down).repeat(across)
    angles = [math.pi * 2**k / 2 * axis for axis in (x, y) for k in range(FREQUENCIES)]
    return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)


class Heads(nn.Module):
    """Policy head and value head."""

    def __init__(
        self, space: TokenSpace, inputs: int, width: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.actor = make_linear(inputs, 4 * width, generator)
        self.action = make_linear(4 * width, len(space.actions), generator, 0.01)
        self.critic = make_linear(inputs, 4 * width, generator)
        self.value = make_linear(4 * width, 1, generator, 1.0)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and values."""
        logits = self.action(torch.tanh(self.actor(inputs)))
        return logits, self.value(torch.tanh(self.critic(inputs))).squeeze(-1)


_MEMORY_HEADS = 2


class TrxlNetwork(Network):
    """A perceiver, a block that attends to up to 32 earlier steps, and two heads."""

    def __init__(self, space: TokenSpace, width: int, generator: torch.Generator) -> None:
        super().__init__()
        inputs = 2 * width
        # Keys and values of each of the last steps, and whether it belongs to this episode.
        self.memory_size = MEMORY * (2 * inputs + 1)
        self.perceiver = Perceiver(space, width, generator)
        self.enter = make_linear(LATENTS * width, inputs, generator, 1.0)
        self.before = nn.LayerNorm(inputs)
        self.query = make_linear(inputs, inputs, generator, 1.0)
        self.past = make_linear(inputs, 2 * inputs, generator, 1.0)
        self.distance = make_linear(inputs, inputs, generator, 1.0, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(inputs))
        self.distance_bias = nn.Parameter(torch.zeros(inputs))
        self.out = make_linear(inputs, inputs, generator, 1.0)
        self.between = nn.LayerNorm(inputs)
        self.wide = make_linear(inputs, 5 * inputs, generator)
        self.narrow = make_linear(5 * inputs, inputs, generator, 1.0)
        self.heads = Heads(space, inputs, width, generator)
        self.register_buffer("waves", _encode_distances(inputs), persistent=False)

    def forward(self, tokens: Tensor, starts: Tensor, memory: Tensor) -> PolicyOutput:
        """Process a sequence at once: each step attends to itself and earlier steps."""
        steps, worlds = starts.shape
        features = self.enter(self.perceiver(tokens.flatten(0, 1)))
        features = features.unflatten(0, (steps, worlds)).transpose(0, 1)
        stored, episode_flags = memory.split([memory.shape[1] - MEMORY, MEMORY], 1)
        normalised = self.before(features)
        past = torch.cat([stored.unflatten(1, (MEMORY, -1)), self.past(normalised)], 1)
        # Episode of each step, numbered within this sequence; -1 for unused memory.
        now = starts.t().long().cumsum(1)
        episode = torch.cat([episode_flags.long() - 1, now], 1)
        attended = self._attend_to_memory(self.query(normalised), past, episode, now)
        inputs = features + self.out(attended)
        inputs = inputs + self.narrow(F.relu(self.wide(self.between(inputs))))
        logits, values = self.heads(inputs.transpose(0, 1))
        same = (episode == now[:, -1:])[:, -MEMORY:].to(memory.dtype)
        new_memory = torch.cat([past[:, -MEMORY:].flatten(1), same], 1)
        return PolicyOutput(logits, values, new_memory)

    def _attend_to_memory(
        self, query: Tensor, past: Tensor, episode: Tensor, now: Tensor
    ) -> Tensor:
        """Return each step's attention output over itself and earlier steps, (N, T, width)."""
        steps = query.shape[1]
        keys, values = past.chunk(2, 2)
        back = torch.arange(steps).unsqueeze(1) + MEMORY - torch.arange(MEMORY + steps)
        near = (back >= 0) & (back <= MEMORY)
        seen = near & (episode.unsqueeze(1) == now.unsqueeze(2))
        by_content = _split_memory_heads(query + self.content_bias) @ _split_memory_heads(
            keys
        ).transpose(2, 3)
        waves = _split_memory_heads(self.distance(self.waves).unsqueeze(0))
        by_distance = _split_memory_heads(query + self.distance_bias) @ waves.transpose(2, 3)
        index = back.clamp(0, MEMORY).expand(*by_content.shape)
        weights = by_content + by_distance.gather(3, index)
        weights = weights / math.sqrt(keys.shape[2] / _MEMORY_HEADS)
        weights = weights.masked_fill(~seen.unsqueeze(1), -1e9)
        return (
            (torch.softmax(weights, 3) @ _split_memory_heads(values)).transpose(1, 2).flatten(2)
        )


def _split_memory_heads(x: Tensor) -> Tensor:
    """Reshape (B, L, width) to (B, heads, L, width / heads)."""
    return x.unflatten(2, (_MEMORY_HEADS, -1)).transpose(1, 2)


def _encode_distances(width: int) -> Tensor:
    """Encode distances in steps as waves of falling frequency, (1 + MEMORY, width)."""
    steps = torch.arange(MEMORY + 1).unsqueeze(1)
    angles = steps * 10_000 ** (-torch.arange(0, width, 2) / width)
    return torch.cat([angles.sin(), angles.cos()], 1)


class VitResetNetwork(Network):
    """A perceiver, an LSTM that is reset when an episode starts, and two heads."""

    def __init__(self, space: TokenSpace, width: int, generator: torch.Generator) -> None:
        super().__init__()
        hidden = 2 * width
        self.memory_size = 2 * hidden
        self.perceiver = Perceiver(space, width, generator)
        self.seen = make_linear(LATENTS * width, 4 * hidden, generator, 1.0)
        self.before = make_linear(hidden, 4 * hidden, generator, 1.0, bias=False)
        self.heads = Heads(space, hidden, width, generator)

    def forward(self, tokens: Tensor, starts: Tensor, memory: Tensor) -> PolicyOutput:
        """Process step by step; only the LSTM depends on the step before."""
        steps, worlds = starts.shape
        seen = self.seen(self.perceiver(tokens.flatten(0, 1))).unflatten(0, (steps, worlds))
        kept = 1 - starts.unsqueeze(2).to(seen.dtype)
        hidden, cell = memory.chunk(2, 1)
        outputs = []
        for step in range(steps):
            hidden, cell = hidden * kept[step], cell * kept[step]
            gates = seen[step] + self.before(hidden)
            input_gate, forget_gate, new, output_gate = gates.chunk(4, 1)
            # Adding 1 opens the forget gate initially.
            cell = torch.sigmoid(forget_gate + 1) * cell + torch.sigmoid(
                input_gate
            ) * torch.tanh(new)
            hidden = torch.sigmoid(output_gate) * torch.tanh(cell)
            outputs.append(hidden)
        logits, values = self.heads(torch.stack(outputs))
        return PolicyOutput(logits, values, torch.cat([hidden, cell], 1))
