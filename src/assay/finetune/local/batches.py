"""Rows in batches: those with the same prefix together, those of like length together.

The order follows from the seed and the epoch alone, so that training resumes anywhere.
"""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from .decoder import Appended, Decoder
from .templates import EncodedRow

__all__ = ["Batch", "Learned", "batches_of", "causal", "learn", "padded"]

_SHARING: Final = 8
"""Rows that share one computed prefix."""
_LIKE: Final = 12
"""Rows whose lengths differ by less count as equally long."""
_WINDOW: Final = 16
"""Batches among which rows are sorted by length."""

Batch = list[list[EncodedRow]]
"""Rows; those of each inner list have the same prefix."""


def batches_of(rows: Sequence[EncodedRow], size: int, seed: str) -> list[Batch]:
    """All rows in a random order."""
    draw = random.Random(seed)
    by_prefix: dict[bytes, list[EncodedRow]] = {}
    for row in rows:
        by_prefix.setdefault(row.prefix.tobytes(), []).append(row)
    sharing = min(_SHARING, size)
    chunks: Batch = []
    for group in by_prefix.values():
        draw.shuffle(group)
        group.sort(key=lambda row: len(row.rest) // _LIKE)
        chunks += [group[i : i + sharing] for i in range(0, len(group), sharing)]
    draw.shuffle(chunks)
    per_batch = size // sharing
    batches: list[Batch] = []
    for start in range(0, len(chunks), per_batch * _WINDOW):
        window = chunks[start : start + per_batch * _WINDOW]
        window.sort(key=lambda chunk: max(len(row.rest) for row in chunk))
        batches += [window[i : i + per_batch] for i in range(0, len(window), per_batch)]
    draw.shuffle(batches)
    return batches


def padded(tokens: Sequence[NDArray[np.int32]]) -> tuple[Tensor, Tensor]:
    """Tokens of equal length, with padding before them, and which of them are none."""
    length = max(len(each) for each in tokens)
    width = tokens[0].shape[1]
    together = np.zeros((len(tokens), length, width), np.int64)
    real = np.zeros((len(tokens), length), bool)
    for row, each in enumerate(tokens):
        if len(each):
            together[row, -len(each) :] = each
            real[row, -len(each) :] = True
    return torch.from_numpy(together), torch.from_numpy(real)


def causal(real: Tensor, before: Tensor | None = None) -> Tensor:
    """The mask of tokens that see themselves and what is real before them."""
    count = real.shape[1]
    seen = torch.ones(count, count, dtype=torch.bool).tril() & real[:, None, :]
    # Padding sees itself, because attention to nothing at all is not a number.
    seen |= torch.eye(count, dtype=torch.bool)
    if before is not None:
        seen = torch.cat([before[:, None, :].expand(-1, count, -1), seen], 2)
    return seen[:, None]


class Learned(NamedTuple):
    """What a model makes of a batch; one value for each token to be learned."""

    losses: Tensor
    right: Tensor
    """Whether the likeliest token is the right one."""
    tokens: int
    """How many were read, padding and shared ones counted once."""


def learn(model: Decoder, batch: Batch) -> Learned:
    """The losses of a batch; each prefix is computed once."""
    rows = [row for chunk in batch for row in chunk]
    tokens, real = padded([row.rest for row in rows])
    before, before_real = padded([chunk[0].prefix for chunk in batch])
    place = torch.tensor([i for i, chunk in enumerate(batch) for _ in chunk])
    shared = Appended()
    if before.shape[1]:
        model(before, causal(before_real), shared, last=1)
    past = Appended([(keys[place], values[place]) for keys, values in shared.kept])
    trained = torch.zeros_like(real)
    for i, row in enumerate(rows):
        trained[i, real.shape[1] - len(row.rest) :] = torch.from_numpy(row.trained)
    # What comes before the first token to be learned need not be known in the last layer.
    last = real.shape[1] - int(trained.any(0).nonzero()[0])
    mask = causal(real, before_real[place] if before.shape[1] else None)
    known = model(tokens[:, :-1], mask[:, :, :-1, :-1], past, last=last)
    wanted = trained[:, -last:]
    right = tokens[:, -last:, 0][wanted]
    logits = model.logits(known[wanted])
    losses = functional.cross_entropy(logits, right, reduction="none")
    count = sum(len(row.rest) for row in rows) + sum(len(chunk[0].prefix) for chunk in batch)
    return Learned(losses, logits.argmax(-1) == right, count)
