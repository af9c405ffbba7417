"""The language model: a decoder-only transformer with the Llama architecture.

One class for models of any size. The caller passes the position of each token: either one index
along the text, applied by rotary embeddings, or several, such as message, line and column, each
with a learned table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

_GROWTH_TOKENS: Final = 64
"""Number of tokens by which a full buffer grows."""
_ATTENTION_WITH_SUMS: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""Attention that also returns the log-sum-exp of its scores; has no gradients."""
_EMBEDDING_STD: Final = 0.1
"""Initial standard deviation of embeddings; 0.02 makes a narrow model take three times the
steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Dimensions of a model."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    """Inner width of a feed-forward layer."""
    tables: tuple[int, ...] = ()
    """Sizes of learned position tables; if empty, positions are rotary."""
    rope_base: float = 10_000.0
    epsilon: float = 1e-5


Layers = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of each layer."""


class Past(Protocol):
    """Keys and values of earlier tokens, by layer."""

    shared: Layers
    """Keys and values that precede every row of the batch, without batch axis; may be empty."""

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens; return all of them."""
        ...


class ConcatenatedPast:
    """Concatenates to new tensors, so that gradients reach earlier tokens."""

    def __init__(self, before: Layers = (), shared: Layers = ()) -> None:
        self._before, self.shared = before, shared
        self.kept: list[tuple[Tensor, Tensor]] = []
        """All keys and values, after a forward pass."""

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Concatenate the new keys and values to the earlier ones."""
        if self._before:
            old_keys, old_values = self._before[layer]
            keys, values = torch.cat([old_keys, keys], 2), torch.cat([old_values, values], 2)
        self.kept.append((keys, values))
        return keys, values


class BufferedPast:
    """Writes into preallocated tensors; not for training."""

    def __init__(self, before: Layers, shared: Layers = ()) -> None:
        self.shared = shared
        self._buffers = [_grow_buffer(torch.stack(pair)) for pair in before]
        self._used = before[0][0].shape[2]

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values after the earlier ones."""
        buffer, end = self._buffers[layer], self._used + keys.shape[2]
        if end > buffer.shape[3]:
            buffer = self._buffers[layer] = _grow_buffer(buffer)
        buffer[0, :, :, self._used : end], buffer[1, :, :, self._used : end] = keys, values
        if layer == len(self._buffers) - 1:
            self._used = end
        return buffer[0, :, :, :end], buffer[1, :, :, :end]

    def keep_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self._buffers = [buffer[:, rows] for buffer in self._buffers]


def _grow_buffer(buffer: Tensor) -> Tensor:
    return torch.cat(
        [buffer, buffer.new_empty(*buffer.shape[:3], _GROWTH_TOKENS, buffer.shape[4])], 3
    )


class _Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        width, head = shape.width, shape.width // shape.heads
        self.attention_norm = nn.RMSNorm(width, eps=shape.epsilon)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, head * shape.kv_heads, bias=False)
        self.v = nn.Linear(width, head * shape.kv_heads, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.inner_norm = nn.RMSNorm(width, eps=shape.epsilon)
        self.gate = nn.Linear(width, shape.inner, bias=False)
        self.up = nn.Linear(width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, width, bias=False)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        rotation: Tensor | None,
        past: Past,
        layer: int,
        last: int,
    ) -> Tensor:
        normalised = self.attention_norm(x)
        keys, values = self._split(self.k(normalised)), self._split(self.v(normalised))
        if rotation is not None:
            keys = _rotate(keys, rotation)
        keys, values = past.extend(layer, keys, values)
        x, normalised = x[:, -last:], normalised[:, -last:]
        batch, count, width = x.shape
        queries = self._split(self.q(normalised))
        if rotation is not None:
            queries = _rotate(queries, rotation[:, :, -last:])
        # Heads that share keys are stacked along the token axis, so that no key is copied.
        queries = queries.reshape(batch, self.kv_heads, -1, queries.shape[-1])
        attended = _attend(
            queries, keys, values, mask, past.shared[layer] if past.shared else None
        )
        attended = attended.reshape(batch, self.heads, count, -1).transpose(1, 2)
        x = x + self.o(attended.reshape(batch, count, width))
        inner = self.inner_norm(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))

    def _split(self, x: Tensor) -> Tensor:
        """Split into heads; the result has the axes batch, head, token and width."""
        batch, count, width = x.shape
        heads = width // (self.q.weight.shape[0] // self.heads)
        return x.view(batch, count, heads, -1).transpose(1, 2)


def _attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    shared: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Compute attention; keys shared by all rows are read once for the whole batch."""
    if shared is None:
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    batch, heads, count, width = queries.shape
    flat_queries = queries.transpose(0, 1).reshape(1, heads, batch * count, width)
    shared_output, shared_sums = _ATTENTION_WITH_SUMS(
        flat_queries, shared[0][None], shared[1][None]
    )
    own_output, own_sums = _ATTENTION_WITH_SUMS(queries, keys, values, attn_mask=mask)
    shared_output = shared_output.view(heads, batch, count, width).transpose(0, 1)
    shared_sums = shared_sums.reshape(heads, batch, count).transpose(0, 1)
    share = torch.sigmoid(shared_sums - own_sums.reshape(batch, heads, count))
    return own_output + share[..., None] * (shared_output - own_output)


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate pairs of adjacent values."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation).flatten(-2)


class Decoder(nn.Module):
    """Predicts the next token; the output layer uses the weights of the token embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.tables = nn.ModuleList(nn.Embedding(size, shape.width) for size in shape.tables)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.register_buffer("turns", None, persistent=False)
        self.set_rotation_speeds()

    def set_rotation_speeds(self) -> None:
        """Compute the rotation per position for each pair; these values are not trained."""
        head = self.shape.width // self.shape.heads
        self.turns = self.shape.rope_base ** (-torch.arange(0, head, 2) / head)

    def initialise(self, generator: torch.Generator) -> None:
        """Initialise all weights at random."""
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                scale = 1 / math.sqrt(weight.shape[1]) if "blocks" in name else _EMBEDDING_STD
                if name.endswith(("o.weight", "down.weight")):
                    scale /= math.sqrt(2 * self.shape.layers)
                nn.init.normal_(weight, std=scale, generator=generator)

    def forward(
        self, tokens: Tensor, mask: Tensor, past: Past, *, last: int | None = None
    ) -> Tensor:
        """Return the hidden states of the tokens, or of the last few.

        Args:
            tokens: Axes batch and token; the last axis has the token id and its positions.
            mask: Axes batch, 1, token, and the earlier and current tokens it attends to.
            past: Keys and values of earlier tokens; the new ones are added.
            last: Number of final tokens to compute; the last layer skips the others.
        """
        x, rotation = self.tokens(tokens[..., 0]), None
        if self.tables:
            for i, table in enumerate(self.tables, 1):
                x = x + table(tokens[..., i].clamp(max=table.num_embeddings - 1))
        else:
            angles = tokens[:, None, :, 1, None] * self.turns
            rotation = torch.polar(torch.ones_like(angles), angles)
        count, final = tokens.shape[1], len(self.blocks) - 1
        # Converted once to an additive mask; otherwise every layer would convert the booleans.
        additive = torch.where(mask, 0.0, -torch.inf).to(x.dtype)
        group = self.shape.heads // self.shape.kv_heads
        full_mask = additive.repeat(1, 1, group, 1)
        for layer, block in enumerate(self.blocks):
            if layer == final and last is not None:
                last_mask = additive[:, :, -last:].repeat(1, 1, group, 1)
                x = block(x, last_mask, rotation, past, layer, last)
            else:
                x = block(x, full_mask, rotation, past, layer, count)
        return self.norm(x)

    def compute_logits(self, states: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return functional.linear(states, self.tokens.weight)


class _Lora(nn.Module):
    """A frozen layer with a trainable low-rank update (LoRA: Hu et al., 2021)."""

    def __init__(self, layer: Any, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        outputs, inputs = layer.weight.shape
        self.weight = layer.weight
        self.scale = alpha / rank
        bound = 1 / math.sqrt(inputs)
        lora_a = torch.empty(rank, inputs).uniform_(-bound, bound, generator=generator)
        self.lora_a, self.lora_b = (
            nn.Parameter(lora_a),
            nn.Parameter(torch.zeros(outputs, rank)),
        )

    def forward(self, x: Tensor) -> Tensor:
        update = functional.linear(functional.linear(x, self.lora_a), self.lora_b)
        return functional.linear(x, self.weight) + self.scale * update

    def merge(self) -> nn.Linear:
        """Return a plain layer with the update merged into the weights, which is faster."""
        outputs, inputs = self.weight.shape
        layer = nn.Linear(inputs, outputs, bias=False, device="meta")
        merged_weight = self.weight + self.scale * self.lora_b @ self.lora_a
        layer.weight = nn.Parameter(merged_weight.detach(), requires_grad=False)
        return layer


def merge_lora(model: Decoder) -> None:
    """Merge low-rank updates into the weights, for a model that is used only for inference."""
    for block in model.blocks:
        for name, layer in list(block.named_children()):
            if isinstance(layer, _Lora):
                setattr(block, name, layer.merge())


def add_lora(model: Decoder, rank: int, alpha: float, generator: torch.Generator) -> None:
    """Freeze a model and add trainable low-rank updates to its attention layers."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for block in model.blocks:
        for name in ("q", "k", "v", "o"):
            setattr(block, name, _Lora(getattr(block, name), rank, alpha, generator))
