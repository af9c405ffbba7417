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

_ROOM: Final = 64
"""Number of tokens by which a full buffer grows."""
_WITH_WEIGHTS: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""Attention that also returns the log-sum-exp of its scores; has no gradients."""
_EMBEDDED: Final = 0.1
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


class Appended:
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


class Buffered:
    """Writes into preallocated tensors; not for training."""

    def __init__(self, before: Layers, shared: Layers = ()) -> None:
        self.shared = shared
        self._buffers = [_with_room(torch.stack(each)) for each in before]
        self._used = before[0][0].shape[2]

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values after the earlier ones."""
        both, end = self._buffers[layer], self._used + keys.shape[2]
        if end > both.shape[3]:
            both = self._buffers[layer] = _with_room(both)
        both[0, :, :, self._used : end], both[1, :, :, self._used : end] = keys, values
        if layer == len(self._buffers) - 1:
            self._used = end
        return both[0, :, :, :end], both[1, :, :, :end]

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self._buffers = [both[:, rows] for both in self._buffers]


def _with_room(both: Tensor) -> Tensor:
    return torch.cat([both, both.new_empty(*both.shape[:3], _ROOM, both.shape[4])], 3)


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
        known = self.attention_norm(x)
        keys, values = self._split(self.k(known)), self._split(self.v(known))
        if rotation is not None:
            keys = _rotated(keys, rotation)
        keys, values = past.extend(layer, keys, values)
        x, known = x[:, -last:], known[:, -last:]
        batch, count, width = x.shape
        queries = self._split(self.q(known))
        if rotation is not None:
            queries = _rotated(queries, rotation[:, :, -last:])
        # Heads that share keys are stacked along the token axis, so that no key is copied.
        queries = queries.reshape(batch, self.kv_heads, -1, queries.shape[-1])
        mixed = _attention(
            queries, keys, values, mask, past.shared[layer] if past.shared else None
        )
        mixed = mixed.reshape(batch, self.heads, count, -1).transpose(1, 2)
        x = x + self.o(mixed.reshape(batch, count, width))
        inner = self.inner_norm(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))

    def _split(self, x: Tensor) -> Tensor:
        """Split into heads; the result has the axes batch, head, token and width."""
        batch, count, width = x.shape
        heads = width // (self.q.weight.shape[0] // self.heads)
        return x.view(batch, count, heads, -1).transpose(1, 2)


def _attention(
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
    alike = queries.transpose(0, 1).reshape(1, heads, batch * count, width)
    far, far_weight = _WITH_WEIGHTS(alike, shared[0][None], shared[1][None])
    near, near_weight = _WITH_WEIGHTS(queries, keys, values, attn_mask=mask)
    far = far.view(heads, batch, count, width).transpose(0, 1)
    far_weight = far_weight.reshape(heads, batch, count).transpose(0, 1)
    share = torch.sigmoid(far_weight - near_weight.reshape(batch, heads, count))
    return near + share[..., None] * (far - near)


def _rotated(x: Tensor, rotation: Tensor) -> Tensor:
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
        self.set_turns()

    def set_turns(self) -> None:
        """Compute the rotation per position for each pair; these values are not trained."""
        head = self.shape.width // self.shape.heads
        self.turns = self.shape.rope_base ** (-torch.arange(0, head, 2) / head)

    def initialise(self, generator: torch.Generator) -> None:
        """Initialise all weights at random."""
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                scale = 1 / math.sqrt(weight.shape[1]) if "blocks" in name else _EMBEDDED
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
        added = torch.where(mask, 0.0, -torch.inf).to(x.dtype)
        group = self.shape.heads // self.shape.kv_heads
        of_all = added.repeat(1, 1, group, 1)
        for layer, block in enumerate(self.blocks):
            if layer == final and last is not None:
                of_last = added[:, :, -last:].repeat(1, 1, group, 1)
                x = block(x, of_last, rotation, past, layer, last)
            else:
                x = block(x, of_all, rotation, past, layer, count)
        return self.norm(x)

    def logits(self, known: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return functional.linear(known, self.tokens.weight)


class _Lora(nn.Module):
    """A frozen layer with a trainable low-rank update (LoRA: Hu et al., 2021)."""

    def __init__(self, layer: Any, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        out, given = layer.weight.shape
        self.weight = layer.weight
        self.scale = alpha / rank
        bound = 1 / math.sqrt(given)
        lora_a = torch.empty(rank, given).uniform_(-bound, bound, generator=generator)
        self.lora_a, self.lora_b = nn.Parameter(lora_a), nn.Parameter(torch.zeros(out, rank))

    def forward(self, x: Tensor) -> Tensor:
        change = functional.linear(functional.linear(x, self.lora_a), self.lora_b)
        return functional.linear(x, self.weight) + self.scale * change

    def merged(self) -> nn.Linear:
        """Return a plain layer with the update merged into the weights, which is faster."""
        out, given = self.weight.shape
        layer = nn.Linear(given, out, bias=False, device="meta")
        changed = self.weight + self.scale * self.lora_b @ self.lora_a
        layer.weight = nn.Parameter(changed.detach(), requires_grad=False)
        return layer


def merge_lora(model: Decoder) -> None:
    """Merge low-rank updates into the weights, for a model that is used only for inference."""
    for block in model.blocks:
        for name, layer in list(block.named_children()):
            if isinstance(layer, _Lora):
                setattr(block, name, layer.merged())


def add_lora(model: Decoder, rank: int, alpha: float, generator: torch.Generator) -> None:
    """Freeze a model and add trainable low-rank updates to its attention layers."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for block in model.blocks:
        for name in ("q", "k", "v", "o"):
            setattr(block, name, _Lora(getattr(block, name), rank, alpha, generator))
