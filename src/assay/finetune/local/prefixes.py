"""Cache of common prompt prefixes: the head of a run, and the opening of an episode.

The keys and values of an opening do not include the head before it, so that a hundred openings
after one head store the head only once.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.finetune.local.batches import causal, padded
from assay.finetune.local.decoder import Appended, Decoder, Layers
from assay.finetune.local.templates import EncodedRow

_MOST_BYTES: Final = 2**30


class Beginnings(NamedTuple):
    """Cached state of a batch, before the rest of each prompt is read."""

    shared: Layers
    """Prefix that all prompts have in common; empty if they differ."""
    past: Layers
    """Prefixes after the shared one, left-padded; empty if there are none."""
    real: Tensor | None
    """Mask of the tokens in `past` that are not padding."""
    reused: tuple[int, ...]
    """Number of cached tokens of each prompt."""


class PrefixCache:
    """Prefixes that a model has read; the least recently used are dropped."""

    def __init__(self, model: Decoder) -> None:
        self._model = model
        self._kept: OrderedDict[bytes, Layers] = OrderedDict()
        self._bytes = 0

    def before(self, prompts: Sequence[EncodedRow]) -> Beginnings:
        """Return the state before the rest of these prompts, computing the missing parts."""
        chains: list[list[Layers]] = [[] for _ in prompts]
        reused = [0] * len(prompts)
        for level in range(2):
            parts = [(p.prefix, p.rest[: p.opening])[level] for p in prompts]
            keys = [
                prompt.prefix.tobytes() + prompt.rest[: level * prompt.opening].tobytes()
                for prompt in prompts
            ]
            missing = {
                key: place
                for place, (key, part) in reversed([*enumerate(zip(keys, parts, strict=True))])
                if len(part) and key not in self._kept
            }
            fresh: dict[bytes, Layers] = {}
            if missing:
                places = list(missing.values())
                computed = self._computed(
                    [parts[place] for place in places], [chains[place] for place in places]
                )
                fresh = dict(zip(missing, computed, strict=True))
            for place, (key, part) in enumerate(zip(keys, parts, strict=True)):
                if len(part):
                    chains[place].append(fresh.get(key) or self._kept[key])
                    reused[place] += 0 if missing.get(key) == place else len(part)
            self._keep(fresh, used=[key for key in keys if key in self._kept])
        return Beginnings(*_joined(chains), tuple(reused))

    def _computed(
        self, parts: Sequence[NDArray[np.int32]], chains: Sequence[Sequence[Layers]]
    ) -> list[Layers]:
        tokens, real = padded(parts)
        shared, past, before = _joined(chains)
        known = Appended(past, shared)
        self._model(tokens, causal(real, before), known, last=1)
        lengths = real.sum(1).tolist()
        return [
            [
                (keys[row, :, -length:].clone(), values[row, :, -length:].clone())
                for keys, values in known.kept
            ]
            for row, length in enumerate(lengths)
        ]

    def _keep(self, fresh: dict[bytes, Layers], used: Sequence[bytes]) -> None:
        for key in used:
            self._kept.move_to_end(key)
        for key, layers in fresh.items():
            self._kept[key] = layers
            self._bytes += _size(layers)
        while self._bytes > _MOST_BYTES and self._kept:
            self._bytes -= _size(self._kept.popitem(last=False)[1])


def _size(layers: Layers) -> int:
    return sum(each.nbytes for both in layers for each in both)


def _joined(chains: Sequence[Sequence[Layers]]) -> tuple[Layers, Layers, Tensor | None]:
    """Return the shared prefix, the parts after it, and the mask of their real tokens."""
    first = chains[0][0] if chains[0] else None
    if first is not None and all(chain and chain[0] is first for chain in chains):
        return first, *_stacked([chain[1:] for chain in chains])
    return [], *_stacked(chains)


def _stacked(chains: Sequence[Sequence[Layers]]) -> tuple[Layers, Tensor | None]:
    """Stack rows of several parts into a left-padded batch."""
    lengths = [sum(layers[0][0].shape[1] for layers in chain) for chain in chains]
    longest = max(lengths)
    if not longest:
        return [], None
    example = next(chain[0] for chain in chains if chain)
    real = torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]
    past = []
    for layer, (some, _) in enumerate(example):
        heads, _, width = some.shape
        both = some.new_zeros(2, len(chains), heads, longest, width)
        for row, (chain, length) in enumerate(zip(chains, lengths, strict=True)):
            start = longest - length
            for layers in chain:
                keys, values = layers[layer]
                end = start + keys.shape[1]
                both[0, row, :, start:end], both[1, row, :, start:end] = keys, values
                start = end
        past.append((both[0], both[1]))
    return past, real
