"""Answers of a model: many requests at once, with calls that their schemas allow.

What requests begin with alike is computed once and kept. A reply follows from the request and
its seed; sums over larger batches are taken in another order, so that a close decision may
turn out differently beside other requests.
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
    """One question to a local model, in the shapes of the chat protocol."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 256
    tool_choice: Any = None
    """`none`, `auto`, `required`, or the tool that must be called."""
    constrained: bool = True
    """Where tools are offered, the reply is one call as its schema has it; else anything."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One answer."""

    message: Mapping[str, Any]
    """Of the assistant, with content and tool calls as the chat protocol has them."""
    finish_reason: str
    """stop, length or tool_calls."""
    prompt_tokens: int
    cached_tokens: int
    """Those of the prompt that were not computed for this reply."""
    completion_tokens: int


@dataclass(slots=True)
class _Row:
    """A reply that is being written."""

    place: int
    request: ModelRequest
    prompt: EncodedRow
    grammar: Grammar | None
    state: Any
    told: str
    """What names the prompt."""
    draw: torch.Generator
    ids: list[int] = field(default_factory=list)
    forced: list[int] = field(default_factory=list)
    """What completes a call that has no room for more."""
    done: str | None = None


class Generator:
    """A model that answers."""

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
        """Why a request cannot be answered, if it cannot."""
        if self._head is not None and head_key(request.messages, request.tools) != self._head:
            return (
                f"this model of {self.base} was trained with another system message or other "
                "tools; ask it as its rows do: the same --view, --history, "
                "--actions-per-turn and --prompt"
            )
        return None

    def replies(self, requests: Sequence[ModelRequest]) -> list[ModelReply]:
        """Answer all requests, each as if it was alone.

        Raises:
            UsageError: One cannot be answered; see `refusal`.
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
        """Write all replies; returns how many tokens of each prompt were known before."""
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
        """Add a token to each reply."""
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
        """Where the grammar stands now, and whether the rest must be the shortest."""
        row.state = grammar.step(row.state, self._pieces[token] or "")
        if grammar.is_complete(row.state):
            row.done = "stop"
            return
        left = row.request.max_tokens - len(row.ids)
        # The rest has no more tokens than characters, so most steps look no further.
        completion = grammar.completion(row.state)
        if left <= len(completion):
            forced = self._tokenizer.encode(completion)
            row.forced = forced if left <= len(forced) else []

    def _mask(self, grammar: Grammar, state: Any) -> Tensor:
        """0 for every token that may follow, and minus infinity for the others."""
        key = (id(grammar), state)  # grammars are kept, so no two have the same id
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
            # What a free model writes may look like a call and be none: then it is text.
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
    """The model that `train` left in a folder.

    Raises:
        UsageError: There is none, or it is damaged.
    """
    stored = StoredModel.read(folder)
    base = base_named(stored.base)
    tokenizer = base.tokenizer(stored.words)
    return Generator(
        base.name, stored.model(folder), tokenizer, base.template(tokenizer), stored.head
    )


def load_base(name: str) -> Generator:
    """A base model as it is before any training; `local/tiny` then says random things."""
    base = base_named(name)
    tokenizer = base.tokenizer(())
    model = base.model((), torch.Generator().manual_seed(0))
    return Generator(base.name, model, tokenizer, base.template(tokenizer), None)
