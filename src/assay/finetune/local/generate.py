"""Inference: replies to batches of requests, with tool calls that conform to their schemas.

Common prefixes of prompts are computed once and cached: the head of a run, and the opening of
an episode. The keys and values of an opening do not include the head before it, so that a
hundred openings after one head store the head only once.

A reply is determined by the request and its seed, with one exception: larger batches sum in
another order, so a close decision may differ if the request is batched with others.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import UsageError
from assay.finetune.datasets.formats import parse_calls_in_text
from assay.finetune.local.bases import find_base
from assay.finetune.local.batches import make_causal_mask, pad_left
from assay.finetune.local.checkpoints import StoredModel
from assay.finetune.local.decoder import (
    BufferedPast,
    ConcatenatedPast,
    Decoder,
    Layers,
    merge_lora,
)
from assay.finetune.local.grammar import Grammar, make_call_grammar
from assay.finetune.local.templates import EncodedRow, Template, hash_head
from assay.finetune.local.tokens import Tokenizer

_MAX_GRAMMARS: Final = 64
_MAX_MASKS: Final = 2000
_MAX_PREFIX_BYTES: Final = 2**30


class PreparedPrefixes(NamedTuple):
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
        self._prefixes: OrderedDict[bytes, Layers] = OrderedDict()
        self._bytes = 0

    def prepare(self, prompts: Sequence[EncodedRow]) -> PreparedPrefixes:
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
                key: index
                for index, (key, part) in reversed([*enumerate(zip(keys, parts, strict=True))])
                if len(part) and key not in self._prefixes
            }
            new: dict[bytes, Layers] = {}
            if missing:
                indices = list(missing.values())
                computed = self._compute(
                    [parts[index] for index in indices], [chains[index] for index in indices]
                )
                new = dict(zip(missing, computed, strict=True))
            for index, (key, part) in enumerate(zip(keys, parts, strict=True)):
                if len(part):
                    chains[index].append(new.get(key) or self._prefixes[key])
                    reused[index] += 0 if missing.get(key) == index else len(part)
            self._store(new, used=[key for key in keys if key in self._prefixes])
        return PreparedPrefixes(*_split_shared(chains), tuple(reused))

    def _compute(
        self, parts: Sequence[NDArray[np.int32]], chains: Sequence[Sequence[Layers]]
    ) -> list[Layers]:
        tokens, real = pad_left(parts)
        shared, past, before = _split_shared(chains)
        cache = ConcatenatedPast(past, shared)
        self._model(tokens, make_causal_mask(real, before), cache, last=1)
        lengths = real.sum(1).tolist()
        return [
            [
                (keys[row, :, -length:].clone(), values[row, :, -length:].clone())
                for keys, values in cache.kept
            ]
            for row, length in enumerate(lengths)
        ]

    def _store(self, new: dict[bytes, Layers], used: Sequence[bytes]) -> None:
        for key in used:
            self._prefixes.move_to_end(key)
        for key, layers in new.items():
            self._prefixes[key] = layers
            self._bytes += _count_bytes(layers)
        while self._bytes > _MAX_PREFIX_BYTES and self._prefixes:
            self._bytes -= _count_bytes(self._prefixes.popitem(last=False)[1])


def _count_bytes(layers: Layers) -> int:
    return sum(tensor.nbytes for pair in layers for tensor in pair)


def _split_shared(chains: Sequence[Sequence[Layers]]) -> tuple[Layers, Layers, Tensor | None]:
    """Return the shared prefix, the parts after it, and the mask of their real tokens."""
    first = chains[0][0] if chains[0] else None
    if first is not None and all(chain and chain[0] is first for chain in chains):
        return first, *_stack_parts([chain[1:] for chain in chains])
    return [], *_stack_parts(chains)


def _stack_parts(chains: Sequence[Sequence[Layers]]) -> tuple[Layers, Tensor | None]:
    """Stack rows of several parts into a left-padded batch."""
    lengths = [sum(layers[0][0].shape[1] for layers in chain) for chain in chains]
    longest = max(lengths)
    if not longest:
        return [], None
    example = next(chain[0] for chain in chains if chain)
    real = torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]
    past = []
    for layer, (sample, _) in enumerate(example):
        heads, _, width = sample.shape
        buffer = sample.new_zeros(2, len(chains), heads, longest, width)
        for row, (chain, length) in enumerate(zip(chains, lengths, strict=True)):
            start = longest - length
            for layers in chain:
                keys, values = layers[layer]
                end = start + keys.shape[1]
                buffer[0, row, :, start:end], buffer[1, row, :, start:end] = keys, values
                start = end
        past.append((buffer[0], buffer[1]))
    return past, real


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request to a local model, in the form of the chat protocol."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 256
    tool_choice: Any = None
    """`none`, `auto`, `required`, or the tool that must be called."""
    constrained: bool = True
    """If tools are offered, restrict the reply to one call that conforms to its schema."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply of a local model."""

    message: Mapping[str, Any]
    """Assistant message, with content and tool calls in the form of the chat protocol."""
    finish_reason: str
    """stop, length or tool_calls."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that did not have to be computed for this reply."""
    completion_tokens: int


@dataclass(slots=True)
class _Generation:
    """A reply that is being generated."""

    index: int
    request: ModelRequest
    prompt: EncodedRow
    grammar: Grammar | None
    state: Any
    prompt_hash: str
    """Hash of the prompt."""
    draw: torch.Generator
    ids: list[int] = field(default_factory=list)
    forced: list[int] = field(default_factory=list)
    """Tokens that complete a call when the token limit is near."""
    done: str | None = None


class Generator:
    """A model that replies to requests."""

    def __init__(
        self,
        base: str,
        model: Decoder,
        tokenizer: Tokenizer,
        template: Template,
        head: str | None,
    ) -> None:
        self.base = base
        self._model, self._tokenizer, self._template = model.eval(), tokenizer, template
        merge_lora(self._model)
        self._head = head
        self._context = find_base(base).defaults.context
        self._prefixes = PrefixCache(self._model)
        self._grammars: dict[str, Grammar] = {}
        self._masks: dict[tuple[int, Any], Tensor] = {}
        self._pieces = tokenizer.pieces

    def find_refusal(self, request: ModelRequest) -> str | None:
        """Return the reason why a request cannot be answered, or None."""
        if self._head is not None and hash_head(request.messages, request.tools) != self._head:
            return (
                f"this model of {self.base} was trained with another system message or other "
                "tools; use the settings of its training rows: --view, --history, "
                "--actions-per-turn and --prompt"
            )
        return None

    def generate_replies(self, requests: Sequence[ModelRequest]) -> list[ModelReply]:
        """Answer all requests, each independently of the others.

        Raises:
            UsageError: A request cannot be answered (see `find_refusal`) or is too long.
        """
        rows = [self._prepare(index, request) for index, request in enumerate(requests)]
        if not rows:
            return []
        with torch.inference_mode():
            reused = self._generate(rows)
        return [self._make_reply(row, reused[row.index]) for row in rows]

    def _prepare(self, index: int, request: ModelRequest) -> _Generation:
        problem = self.find_refusal(request)
        if problem is not None:
            raise UsageError(problem)
        prompt = self._template.encode_prompt(request.messages, request.tools)
        length = len(prompt.prefix) + len(prompt.rest)
        if length + request.max_tokens > self._context:
            raise UsageError(
                f"the request has {length:,} tokens and allows {request.max_tokens:,} more; "
                f"the limit of {self.base} is {self._context:,} in total"
            )
        grammar = None
        if request.constrained and request.tools and request.tool_choice != "none":
            grammar = self._get_grammar(request)
        digest = hashlib.sha256(prompt.prefix.tobytes() + prompt.rest.tobytes()).digest()
        seed = int.from_bytes(digest[:8], "big") ^ (request.seed & (2**63 - 1))
        draw = torch.Generator().manual_seed(seed % 2**63)
        state = None if grammar is None else grammar.start
        return _Generation(index, request, prompt, grammar, state, digest.hex()[:20], draw)

    def _get_grammar(self, request: ModelRequest) -> Grammar:
        key = json.dumps([request.tools, request.tool_choice], sort_keys=True)
        if key not in self._grammars:
            if len(self._grammars) >= _MAX_GRAMMARS:
                self._grammars.clear()
                self._masks.clear()
            self._grammars[key] = make_call_grammar(request.tools, request.tool_choice)
        return self._grammars[key]

    def _generate(self, rows: list[_Generation]) -> tuple[int, ...]:
        """Generate all replies; return the number of cached tokens of each prompt."""
        prefixes = self._prefixes.prepare([row.prompt for row in rows])
        tokens, real = pad_left([row.prompt.rest[row.prompt.opening :] for row in rows])
        past = ConcatenatedPast(prefixes.past, prefixes.shared)
        states = self._model(tokens, make_causal_mask(real, prefixes.real), past, last=1)
        buffered = BufferedPast(past.kept, prefixes.shared)
        mask = real if prefixes.real is None else torch.cat([prefixes.real, real], 1)
        active = rows
        while True:
            self._append_tokens(active, self._model.compute_logits(states[:, -1]))
            unfinished = [i for i, row in enumerate(active) if row.done is None]
            if not unfinished:
                return prefixes.reused
            if len(unfinished) < len(active):
                keep = torch.tensor(unfinished)
                buffered.keep_rows(keep)
                mask, active = mask[keep], [active[i] for i in unfinished]
            mask = torch.cat([mask, torch.ones(len(active), 1, dtype=torch.bool)], 1)
            tokens_and_positions = [
                (row.ids[-1], *self._template.get_position(row.prompt, len(row.ids) - 1))
                for row in active
            ]
            states = self._model(
                torch.tensor(tokens_and_positions)[:, None], mask[:, None, None], buffered
            )

    def _append_tokens(self, rows: Sequence[_Generation], logits: Tensor) -> None:
        """Append a token to each reply."""
        for row, scores in zip(rows, logits, strict=True):
            if row.forced:
                row.ids.append(row.forced.pop(0))
                row.done = None if row.forced else "stop"
                continue
            token = self._draw_token(row, scores)
            if token == self._template.end:
                row.done = "stop"
                continue
            row.ids.append(token)
            if row.grammar is not None:
                self._advance_grammar(row, row.grammar, token)
            elif len(row.ids) >= row.request.max_tokens:
                row.done = "length"

    def _draw_token(self, row: _Generation, scores: Tensor) -> int:
        if row.grammar is not None:
            scores = scores + self._get_mask(row.grammar, row.state)
        if row.request.temperature <= 0:
            return int(scores.argmax())
        shares = torch.softmax(scores.double() / row.request.temperature, -1)
        return int(torch.multinomial(shares, 1, generator=row.draw))

    def _advance_grammar(self, row: _Generation, grammar: Grammar, token: int) -> None:
        """Update the grammar state, and force the shortest completion if the limit is near."""
        row.state = grammar.step(row.state, self._pieces[token] or "")
        if grammar.is_complete(row.state):
            row.done = "stop"
            return
        left = row.request.max_tokens - len(row.ids)
        # A completion never has more tokens than characters, so most steps need no encoding.
        completion = grammar.find_completion(row.state)
        if left <= len(completion):
            forced = self._tokenizer.encode(completion)
            row.forced = forced if left <= len(forced) else []

    def _get_mask(self, grammar: Grammar, state: Any) -> Tensor:
        """Return a mask: 0 for every allowed token, minus infinity for all others."""
        key = (id(grammar), state)  # grammars are cached, so their ids are unique
        mask = self._masks.get(key)
        if mask is None:
            if len(self._masks) >= _MAX_MASKS:
                self._masks.clear()
            allowed = [
                piece is not None and bool(piece and grammar.step(state, piece))
                for piece in self._pieces
            ]
            mask = torch.where(torch.tensor(allowed), 0.0, -torch.inf)
            self._masks[key] = mask
        return mask

    def _make_reply(self, row: _Generation, reused: int) -> ModelReply:
        text = self._tokenizer.decode(row.ids)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if row.request.tools and row.request.tool_choice != "none":
            # Without a grammar, text that looks like a call may be invalid; then it stays text.
            with suppress(ValueError):
                message = parse_calls_in_text(message)
        for number, call in enumerate(message.get("tool_calls") or ()):
            call["id"] = f"call_{row.prompt_hash}{number or ''}"
        return ModelReply(
            message=message,
            finish_reason="tool_calls" if message.get("tool_calls") else row.done or "stop",
            prompt_tokens=len(row.prompt.prefix) + len(row.prompt.rest),
            cached_tokens=reused,
            completion_tokens=len(row.ids),
        )


def load(folder: Path) -> Generator:
    """Load the model that `train` wrote to a folder.

    Raises:
        UsageError: The folder has no model, or the model is damaged.
    """
    stored = StoredModel.read(folder)
    base = find_base(stored.base)
    tokenizer = base.make_tokenizer(stored.words)
    return Generator(
        base.name,
        stored.load_model(folder),
        tokenizer,
        base.make_template(tokenizer),
        stored.head,
    )


def load_base(name: str) -> Generator:
    """Load an untrained base model; `local/tiny` then generates random text."""
    base = find_base(name)
    tokenizer = base.make_tokenizer(())
    model = base.make_model((), torch.Generator().manual_seed(0))
    return Generator(base.name, model, tokenizer, base.make_template(tokenizer), None)
