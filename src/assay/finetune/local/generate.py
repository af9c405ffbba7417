"""Inference: replies to batches of requests, with tool calls that conform to their schemas.

Common prefixes of prompts are computed once and cached. A reply is determined by the request
and its seed, with one exception: larger batches sum in another order, so a close decision may
differ if the request is batched with others.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from assay.errors import UsageError
from assay.finetune.datasets.formats import with_calls
from assay.finetune.local.bases import base_named
from assay.finetune.local.batches import causal, padded
from assay.finetune.local.checkpoints import StoredModel
from assay.finetune.local.decoder import Appended, Buffered, Decoder, merge_lora
from assay.finetune.local.grammar import Grammar, call_grammar
from assay.finetune.local.prefixes import PrefixCache
from assay.finetune.local.templates import EncodedRow, Template, head_key
from assay.finetune.local.tokens import Tokenizer

_GRAMMARS: Final = 64
_MASKS: Final = 2000


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
class _Row:
    """A reply that is being generated."""

    place: int
    request: ModelRequest
    prompt: EncodedRow
    grammar: Grammar | None
    state: Any
    told: str
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
        self._context = base_named(base).defaults.context
        self._prefixes = PrefixCache(self._model)
        self._grammars: dict[str, Grammar] = {}
        self._allowed: dict[tuple[int, Any], Tensor] = {}
        self._pieces = tokenizer.pieces

    def refusal(self, request: ModelRequest) -> str | None:
        """Return the reason why a request cannot be answered, or None."""
        if self._head is not None and head_key(request.messages, request.tools) != self._head:
            return (
                f"this model of {self.base} was trained with another system message or other "
                "tools; ask it as its rows do: the same --view, --history, "
                "--actions-per-turn and --prompt"
            )
        return None

    def replies(self, requests: Sequence[ModelRequest]) -> list[ModelReply]:
        """Answer all requests, each independently of the others.

        Raises:
            UsageError: A request cannot be answered (see `refusal`) or is too long.
        """
        rows = [self._row(place, request) for place, request in enumerate(requests)]
        if not rows:
            return []
        with torch.inference_mode():
            reused = self._write(rows)
        return [self._reply(row, reused[row.place]) for row in rows]

    def _row(self, place: int, request: ModelRequest) -> _Row:
        problem = self.refusal(request)
        if problem is not None:
            raise UsageError(problem)
        prompt = self._template.prompt(request.messages, request.tools)
        length = len(prompt.prefix) + len(prompt.rest)
        if length + request.max_tokens > self._context:
            raise UsageError(
                f"the request has {length:,} tokens and asks for {request.max_tokens:,} more; "
                f"{self.base} takes {self._context:,} together"
            )
        grammar = None
        if request.constrained and request.tools and request.tool_choice != "none":
            grammar = self._grammar(request)
        told = hashlib.sha256(prompt.prefix.tobytes() + prompt.rest.tobytes()).digest()
        seed = int.from_bytes(told[:8], "big") ^ (request.seed & (2**63 - 1))
        draw = torch.Generator().manual_seed(seed % 2**63)
        state = None if grammar is None else grammar.start
        return _Row(place, request, prompt, grammar, state, told.hex()[:20], draw)

    def _grammar(self, request: ModelRequest) -> Grammar:
        key = json.dumps([request.tools, request.tool_choice], sort_keys=True)
        if key not in self._grammars:
            if len(self._grammars) >= _GRAMMARS:
                self._grammars.clear()
                self._allowed.clear()
            self._grammars[key] = call_grammar(request.tools, request.tool_choice)
        return self._grammars[key]

    def _write(self, rows: list[_Row]) -> tuple[int, ...]:
        """Generate all replies; return the number of cached tokens of each prompt."""
        before = self._prefixes.before([row.prompt for row in rows])
        tokens, real = padded([row.prompt.rest[row.prompt.opening :] for row in rows])
        kept = Appended(before.past, before.shared)
        known = self._model(tokens, causal(real, before.real), kept, last=1)
        buffered = Buffered(kept.kept, before.shared)
        seen = real if before.real is None else torch.cat([before.real, real], 1)
        live = rows
        while True:
            self._choose(live, self._model.logits(known[:, -1]))
            going = [i for i, row in enumerate(live) if row.done is None]
            if not going:
                return before.reused
            if len(going) < len(live):
                keep = torch.tensor(going)
                buffered.keep(keep)
                seen, live = seen[keep], [live[i] for i in going]
            seen = torch.cat([seen, torch.ones(len(live), 1, dtype=torch.bool)], 1)
            told = [
                (row.ids[-1], *self._template.position(row.prompt, len(row.ids) - 1))
                for row in live
            ]
            known = self._model(torch.tensor(told)[:, None], seen[:, None, None], buffered)

    def _choose(self, rows: Sequence[_Row], logits: Tensor) -> None:
        """Append a token to each reply."""
        for row, scores in zip(rows, logits, strict=True):
            if row.forced:
                row.ids.append(row.forced.pop(0))
                row.done = None if row.forced else "stop"
                continue
            token = self._drawn(row, scores)
            if token == self._template.end:
                row.done = "stop"
                continue
            row.ids.append(token)
            if row.grammar is not None:
                self._follow(row, row.grammar, token)
            elif len(row.ids) >= row.request.max_tokens:
                row.done = "length"

    def _drawn(self, row: _Row, scores: Tensor) -> int:
        if row.grammar is not None:
            scores = scores + self._mask(row.grammar, row.state)
        if row.request.temperature <= 0:
            return int(scores.argmax())
        shares = torch.softmax(scores.double() / row.request.temperature, -1)
        return int(torch.multinomial(shares, 1, generator=row.draw))

    def _follow(self, row: _Row, grammar: Grammar, token: int) -> None:
        """Update the grammar state, and force the shortest completion if the limit is near."""
        row.state = grammar.step(row.state, self._pieces[token] or "")
        if grammar.is_complete(row.state):
            row.done = "stop"
            return
        left = row.request.max_tokens - len(row.ids)
        # A completion never has more tokens than characters, so most steps need no encoding.
        completion = grammar.completion(row.state)
        if left <= len(completion):
            forced = self._tokenizer.encode(completion)
            row.forced = forced if left <= len(forced) else []

    def _mask(self, grammar: Grammar, state: Any) -> Tensor:
        """Return a mask: 0 for every allowed token, minus infinity for all others."""
        key = (id(grammar), state)  # grammars are cached, so their ids are unique
        mask = self._allowed.get(key)
        if mask is None:
            if len(self._allowed) >= _MASKS:
                self._allowed.clear()
            allowed = [
                piece is not None and bool(piece and grammar.step(state, piece))
                for piece in self._pieces
            ]
            mask = torch.where(torch.tensor(allowed), 0.0, -torch.inf)
            self._allowed[key] = mask
        return mask

    def _reply(self, row: _Row, reused: int) -> ModelReply:
        text = self._tokenizer.decode(row.ids)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if row.request.tools and row.request.tool_choice != "none":
            # Without a grammar, text that looks like a call may be invalid; then it stays text.
            with suppress(ValueError):
                message = with_calls(message)
        for number, call in enumerate(message.get("tool_calls") or ()):
            call["id"] = f"call_{row.told}{number or ''}"
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
    base = base_named(stored.base)
    tokenizer = base.tokenizer(stored.words)
    return Generator(
        base.name, stored.model(folder), tokenizer, base.template(tokenizer), stored.head
    )


def load_base(name: str) -> Generator:
    """Load an untrained base model; `local/tiny` then generates random text."""
    base = base_named(name)
    tokenizer = base.tokenizer(())
    model = base.model((), torch.Generator().manual_seed(0))
    return Generator(base.name, model, tokenizer, base.template(tokenizer), None)
