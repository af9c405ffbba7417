"""Encoding of conversations as tokens, with a mask of the tokens to train.

The head of a conversation is its system message and its tools, which are identical in every
request of a run. The prefix is the part that many rows share; it is computed once for all.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from assay.core.canonical_json import canonical_json, content_hash
from assay.errors import UsageError
from assay.finetune.datasets.formats import RowContent, in_words, read_row
from assay.finetune.local.tokens import BytePairs, WordTokenizer

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]
_Tokens = NDArray[np.int32]
"""One line per token: its id, then its positions."""


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """A conversation as tokens."""

    prefix: _Tokens
    """Part that other conversations begin with, too."""
    rest: _Tokens
    trained: NDArray[np.bool_]
    """Mask of the tokens in `rest` to train."""
    opening: int = 0
    """Number of tokens in `rest` that later requests of the conversation begin with, too."""


class Template(Protocol):
    """Chat template of one kind of model."""

    end: int
    """Token that ends a reply."""
    leaves_out_head: bool
    """Whether the model does not read the head."""
    tables: tuple[int, ...]
    """Sizes of the position tables; empty for rotary positions."""

    def encode(self, messages: Messages, tools: Tools, trained: Sequence[bool]) -> EncodedRow:
        """Encode a conversation; `trained` has one flag per message."""
        ...

    def prompt(self, messages: Messages, tools: Tools) -> EncodedRow:
        """Encode a conversation up to the start of the reply."""
        ...

    def position(self, prompt: EncodedRow, place: int) -> tuple[int, ...]:
        """Return the positions of the reply token at index `place`."""
        ...

    def head_tokens(self, messages: Messages, tools: Tools) -> int:
        """Return the length of the head."""
        ...


def read_rows(rows: Sequence[Any]) -> list[RowContent]:
    """Parse rows in any format that `assay sft filter` writes.

    Raises:
        UsageError: A row has none of the formats, or nothing to train.
    """
    read = []
    for number, row in enumerate(rows, 1):
        try:
            content = read_row(row)
        except UsageError as error:
            raise UsageError(f"row {number}: {error}") from error
        if not any(trained_messages(content)):
            raise UsageError(f"row {number} has no answer to learn from")
        read.append(content)
    return read


def trained_messages(row: RowContent) -> list[bool]:
    """Return for each message whether it is trained."""
    return [
        message.get("role") == "assistant" and message.get("weight", 1) != 0 and i >= row.prompt
        for i, message in enumerate(row.messages)
    ]


def head_key(messages: Messages, tools: Tools | None) -> str:
    """Return a hash that identifies a head."""
    told = [text_of(message) for message in messages[: _head(messages)]]
    return content_hash(canonical_json([told, tools or []]))


def _head(messages: Messages) -> int:
    """Return the number of messages in the head, 0 or 1."""
    first = messages[0].get("role") if messages else None
    return int(first in ("system", "developer"))


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, including its tool calls.

    String arguments come first, so that a reason is written before the action it leads to.
    """
    return _in_words(message, texts_first=True)["content"]


def _in_words(message: Mapping[str, Any], *, texts_first: bool = False) -> Mapping[str, str]:
    """Convert a message to role and text, with arguments formatted as in the call grammar."""
    calls = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": _compact(call["function"], texts_first=texts_first),
            },
        }
        for call in message.get("tool_calls") or ()
    ]
    return in_words({**message, "tool_calls": calls}, None)[-1]


def _compact(function: Mapping[str, Any], *, texts_first: bool) -> str:
    arguments = function.get("arguments", "")
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError):
        return str(arguments)
    if texts_first and isinstance(value, dict):
        value = dict(sorted(value.items(), key=lambda item: not isinstance(item[1], str)))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class LinesOfWords:
    """For a model with its own vocabulary: positions are message, line and column.

    The head is left out; the model learns what it needs of it from the rows.
    """

    leaves_out_head = True
    end = WordTokenizer.END
    tables: tuple[int, ...] = (64, 64, 128)
    """Number of distinct messages, lines and columns; positions beyond count as the last."""

    def __init__(self, words: WordTokenizer) -> None:
        self.words = words

    def encode(self, messages: Messages, tools: Tools, trained: Sequence[bool]) -> EncodedRow:
        """Encode a conversation; the prefix is the first message after the head."""
        head = _head(messages)
        first: list[tuple[int, ...]] = []
        rest: list[tuple[int, ...]] = []
        learned: list[bool] = []
        for index, message in enumerate(messages[head:]):
            tokens = list(self._message(message, index))
            if index == 0 and message.get("role") != "assistant":
                first = tokens
                continue
            rest += tokens
            learned += [False] + [trained[head + index]] * (len(tokens) - 1)
        return EncodedRow(_array(first, 4), _array(rest, 4), np.array(learned, bool))

    def prompt(self, messages: Messages, tools: Tools) -> EncodedRow:
        """Encode the messages and the special token that starts a reply."""
        row = self.encode(messages, tools, [False] * len(messages))
        count = len(messages) - _head(messages)
        opening = _array([(self.words.sign("assistant"), count, 0, 0)], 4)
        rest = np.concatenate([row.rest, opening])
        return EncodedRow(row.prefix, rest, np.zeros(len(rest), bool))

    def position(self, prompt: EncodedRow, place: int) -> tuple[int, ...]:
        """Return the position of the next token of a reply, which is a single line."""
        return int(prompt.rest[-1, 1]), 0, place + 1

    def head_tokens(self, messages: Messages, tools: Tools) -> int:
        """Return the number of tokens that the head would add."""
        head = [text_of(message) for message in messages[: _head(messages)]]
        return sum(len(self.words.encode(text)) for text in (*head, _plain(tools)))

    def _message(self, message: Mapping[str, Any], index: int) -> Iterator[tuple[int, ...]]:
        role = str(message.get("role"))
        yield self.words.sign(role), index, 0, 0
        if role == "assistant":
            ids = [*self.words.encode(text_of(message)), self.end]
            yield from ((token, index, 0, column) for column, token in enumerate(ids, 1))
            return
        for number, line in enumerate(_content(message).split("\n")):
            for column, token in enumerate(self.words.encode_line(line), 1):
                yield token, index, number, column


class ChatMl:
    """For SmolLM2: ChatML, with tools and calls in the style of Hermes."""

    leaves_out_head = False
    tables: tuple[int, ...] = ()
    _DEFAULT: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

    def __init__(self, pairs: BytePairs) -> None:
        self.pairs = pairs
        self.end = pairs.sign("<|im_end|>")
        self._start = pairs.sign("<|im_start|>")

    def encode(self, messages: Messages, tools: Tools, trained: Sequence[bool]) -> EncodedRow:
        """Encode a conversation; the prefix is the head."""
        head, prefix = _head(messages), self._written_head(messages, tools)
        rest: list[int] = []
        learned: list[bool] = []
        for message, wanted in zip(messages[head:], trained[head:], strict=True):
            told = _in_words(message)
            opening, ids = self._opening(told["role"]), self.pairs.encode(told["content"])
            rest += [*opening, *ids, self.end, *self.pairs.encode("\n")]
            learned += [False] * len(opening) + [wanted] * (len(ids) + 1) + [False]
        return EncodedRow(
            _counted(prefix, 0), _counted(rest, len(prefix)), np.array(learned, bool)
        )

    def prompt(self, messages: Messages, tools: Tools) -> EncodedRow:
        """Encode the messages and the line that starts a reply."""
        row = self.encode(messages, tools, [False] * len(messages))
        ids = [*row.rest[:, 0].tolist(), *self._opening("assistant")]
        head = _head(messages)
        first = self.encode(messages[: head + 1], tools, [False] * (head + 1))
        return EncodedRow(
            row.prefix,
            _counted(ids, len(row.prefix)),
            np.zeros(len(ids), bool),
            opening=len(first.rest),
        )

    def position(self, prompt: EncodedRow, place: int) -> tuple[int, ...]:
        """Return the next index along the text."""
        return (len(prompt.prefix) + len(prompt.rest) + place,)

    def head_tokens(self, messages: Messages, tools: Tools) -> int:
        """Return the length of the prefix."""
        return len(self._written_head(messages, tools))

    def _written_head(self, messages: Messages, tools: Tools) -> list[int]:
        told = messages[0] if _head(messages) else {"role": "system", "content": self._DEFAULT}
        written = in_words({**told, "role": "system"}, _plain(tools) if tools else None)
        text = written[-1]["content"]
        return [
            *self._opening("system"),
            *self.pairs.encode(text),
            self.end,
            *self.pairs.encode("\n"),
        ]

    def _opening(self, role: str) -> list[int]:
        return [self._start, *self.pairs.encode(f"{role}\n")]


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else text_of(message)


def _plain(tools: Tools) -> str:
    return canonical_json(list(tools)).decode()


def _array(tokens: Sequence[tuple[int, ...]], width: int) -> _Tokens:
    return np.array(tokens, np.int32).reshape(-1, width)


def _counted(ids: Sequence[int], first: int) -> _Tokens:
    return np.stack([np.array(ids, np.int32), np.arange(first, first + len(ids))], 1).astype(
        np.int32
    )
