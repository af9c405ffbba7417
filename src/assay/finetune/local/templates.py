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
from assay.finetune.datasets.formats import RowContent, convert_to_text_messages, read_row
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
    omits_head: bool
    """Whether the model does not read the head."""
    tables: tuple[int, ...]
    """Sizes of the position tables; empty for rotary positions."""

    def encode(self, messages: Messages, tools: Tools, trained: Sequence[bool]) -> EncodedRow:
        """Encode a conversation; `trained` has one flag per message."""
        ...

    def encode_prompt(self, messages: Messages, tools: Tools) -> EncodedRow:
        """Encode a conversation up to the start of the reply."""
        ...

    def get_position(self, prompt: EncodedRow, index: int) -> tuple[int, ...]:
        """Return the positions of the reply token at index `index`."""
        ...

    def count_head_tokens(self, messages: Messages, tools: Tools) -> int:
        """Return the length of the head."""
        ...


def read_rows(rows: Sequence[Any]) -> list[RowContent]:
    """Parse rows in any format that `assay sft filter` writes.

    Raises:
        UsageError: A row has none of the formats, or nothing to train.
    """
    contents = []
    for number, row in enumerate(rows, 1):
        try:
            content = read_row(row)
        except UsageError as error:
            raise UsageError(f"row {number}: {error}") from error
        if not any(flag_trained_messages(content)):
            raise UsageError(f"row {number} has no answer to train on")
        contents.append(content)
    return contents


def flag_trained_messages(row: RowContent) -> list[bool]:
    """Return for each message whether it is trained."""
    return [
        message.get("role") == "assistant" and message.get("weight", 1) != 0 and i >= row.prompt
        for i, message in enumerate(row.messages)
    ]


def hash_head(messages: Messages, tools: Tools | None) -> str:
    """Return a hash that identifies a head."""
    texts = [format_message(message) for message in messages[: _count_head_messages(messages)]]
    return content_hash(canonical_json([texts, tools or []]))


def _count_head_messages(messages: Messages) -> int:
    """Return the number of messages in the head, 0 or 1."""
    first = messages[0].get("role") if messages else None
    return int(first in ("system", "developer"))


def format_message(message: Mapping[str, Any]) -> str:
    """Return the text of a message, including its tool calls.

    String arguments come first, so that a reason is written before the action it leads to.
    """
    return _convert_message(message, texts_first=True)["content"]


def _convert_message(
    message: Mapping[str, Any], *, texts_first: bool = False
) -> Mapping[str, str]:
    """Convert a message to role and text, with arguments formatted as in the call grammar."""
    calls = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": _format_arguments(call["function"], texts_first=texts_first),
            },
        }
        for call in message.get("tool_calls") or ()
    ]
    return convert_to_text_messages({**message, "tool_calls": calls}, None)[-1]


def _format_arguments(function: Mapping[str, Any], *, texts_first: bool) -> str:
    arguments = function.get("arguments", "")
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError):
        return str(arguments)
    if texts_first and isinstance(value, dict):
        value = dict(sorted(value.items(), key=lambda item: not isinstance(item[1], str)))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class WordTemplate:
    """For a model with its own vocabulary: positions are message, line and column.

    The head is left out; the model learns what it needs of it from the rows.
    """

    omits_head = True
    end = WordTokenizer.END
    tables: tuple[int, ...] = (64, 64, 128)
    """Number of distinct messages, lines and columns; positions beyond count as the last."""

    def __init__(self, words: WordTokenizer) -> None:
        self.words = words

    def encode(self, messages: Messages, tools: Tools, trained: Sequence[bool]) -> EncodedRow:
        """Encode a conversation; the prefix is the first message after the head."""
        head = _count_head_messages(messages)
        first: list[tuple[int, ...]] = []
        rest: list[tuple[int, ...]] = []
        learned: list[bool] = []
        for index, message in enumerate(messages[head:]):
            tokens = list(self._encode_message(message, index))
            if index == 0 and message.get("role") != "assistant":
                first = tokens
                continue
            rest += tokens
            learned += [False] + [trained[head + index]] * (len(tokens) - 1)
        return EncodedRow(_make_array(first, 4), _make_array(rest, 4), np.array(learned, bool))

    def encode_prompt(self, messages: Messages, tools: Tools) -> EncodedRow:
        """Encode the messages and the special token that starts a reply."""
        row = self.encode(messages, tools, [False] * len(messages))
        count = len(messages) - _count_head_messages(messages)
        opening = _make_array([(self.words.get_special_token("assistant"), count, 0, 0)], 4)
        rest = np.concatenate([row.rest, opening])
        return EncodedRow(row.prefix, rest, np.zeros(len(rest), bool))

    def get_position(self, prompt: EncodedRow, index: int) -> tuple[int, ...]:
        """Return the position of the next token of a reply, which is a single line."""
        return int(prompt.rest[-1, 1]), 0, index + 1

    def count_head_tokens(self, messages: Messages, tools: Tools) -> int:
        """Return the number of tokens that the head would add."""
        head = [
            format_message(message) for message in messages[: _count_head_messages(messages)]
        ]
        return sum(len(self.words.encode(text)) for text in (*head, _format_tools(tools)))

    def _encode_message(
        self, message: Mapping[str, Any], index: int
    ) -> Iterator[tuple[int, ...]]:
        role = str(message.get("role"))
        yield self.words.get_special_token(role), index, 0, 0
        if role == "assistant":
            ids = [*self.words.encode(format_message(message)), self.end]
            yield from ((token, index, 0, column) for column, token in enumerate(ids, 1))
            return
        for number, line in enumerate(_get_content(message).split("\n")):
            for column, token in enumerate(self.words.encode_line(line), 1):
                yield token, index, number, column


class ChatMlTemplate:
    """For SmolLM2: ChatML, with tools and calls in the style of Hermes."""

    omits_head = False
    tables: tuple[int, ...] = ()
    _DEFAULT: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

    def __init__(self, pairs: BytePairs) -> None:
        self.pairs = pairs
        self.end = pairs.get_special_token("<|im_end|>")
        self._start = pairs.get_special_token("<|im_start|>")

    def encode(self, messages: Messages, tools: Tools, trained: Sequence[bool]) -> EncodedRow:
        """Encode a conversation; the prefix is the head."""
        head, prefix = _count_head_messages(messages), self._encode_head(messages, tools)
        rest: list[int] = []
        learned: list[bool] = []
        for message, is_trained in zip(messages[head:], trained[head:], strict=True):
            converted = _convert_message(message)
            opening, ids = (
                self._encode_opening(converted["role"]),
                self.pairs.encode(converted["content"]),
            )
            rest += [*opening, *ids, self.end, *self.pairs.encode("\n")]
            learned += [False] * len(opening) + [is_trained] * (len(ids) + 1) + [False]
        return EncodedRow(
            _add_positions(prefix, 0),
            _add_positions(rest, len(prefix)),
            np.array(learned, bool),
        )

    def encode_prompt(self, messages: Messages, tools: Tools) -> EncodedRow:
        """Encode the messages and the line that starts a reply."""
        row = self.encode(messages, tools, [False] * len(messages))
        ids = [*row.rest[:, 0].tolist(), *self._encode_opening("assistant")]
        head = _count_head_messages(messages)
        first = self.encode(messages[: head + 1], tools, [False] * (head + 1))
        return EncodedRow(
            row.prefix,
            _add_positions(ids, len(row.prefix)),
            np.zeros(len(ids), bool),
            opening=len(first.rest),
        )

    def get_position(self, prompt: EncodedRow, index: int) -> tuple[int, ...]:
        """Return the next index along the text."""
        return (len(prompt.prefix) + len(prompt.rest) + index,)

    def count_head_tokens(self, messages: Messages, tools: Tools) -> int:
        """Return the length of the prefix."""
        return len(self._encode_head(messages, tools))

    def _encode_head(self, messages: Messages, tools: Tools) -> list[int]:
        system = (
            messages[0]
            if _count_head_messages(messages)
            else {"role": "system", "content": self._DEFAULT}
        )
        converted = convert_to_text_messages(
            {**system, "role": "system"}, _format_tools(tools) if tools else None
        )
        text = converted[-1]["content"]
        return [
            *self._encode_opening("system"),
            *self.pairs.encode(text),
            self.end,
            *self.pairs.encode("\n"),
        ]

    def _encode_opening(self, role: str) -> list[int]:
        return [self._start, *self.pairs.encode(f"{role}\n")]


def _get_content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else format_message(message)


def _format_tools(tools: Tools) -> str:
    return canonical_json(list(tools)).decode()


def _make_array(tokens: Sequence[tuple[int, ...]], width: int) -> _Tokens:
    return np.array(tokens, np.int32).reshape(-1, width)


def _add_positions(ids: Sequence[int], first: int) -> _Tokens:
    return np.stack([np.array(ids, np.int32), np.arange(first, first + len(ids))], 1).astype(
        np.int32
    )
