"""Tokenizers: words of the training data, or the byte pairs of a pretrained model.

A tokenizer is independent of any model. `pieces` has the text of each token, so that a grammar
can tell which tokens may follow. GGUF files are read only with the quantisations that SmolLM2's
file uses.
"""

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError


class Tokenizer(Protocol):
    """Converts text to token ids and back."""

    @property
    def pieces(self) -> Sequence[str | None]:
        """Text of each token; None for special tokens, which do not occur in text."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids, without special tokens."""
        ...


_WORD: Final = re.compile(
    r'<tool_call>\n\{"name": "\w+", "arguments": '
    r"|\}\n</tool_call>"
    r"| ?[A-Za-z_]+\d{0,2}"
    r"| ?\d"
    r"|(?:(?!\}\n</tool_call>)[^\w\s])+"
    r"|\s|."
)
"""Words with up to two trailing digits, digits, punctuation, and the frame of a call."""


class WordTokenizer:
    """Vocabulary of words, of phrases that always occur together, and of single characters.

    In a line without spaces, such as a row of a map, each character is a word. An unknown word
    is spelled; an unknown character is `UNKNOWN`.
    """

    SIGNS: Final = (
        "<pad>",
        "<unknown>",
        "<end>",
        "<user>",
        "<tool>",
        "<assistant>",
        "<system>",
    )
    PAD: Final = 0
    UNKNOWN: Final = 1
    END: Final = 2

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        """Text of each token, after the special tokens."""
        first = len(self.SIGNS)
        self._ids = {piece: first + i for i, piece in enumerate(self.vocabulary)}
        self._longest = max((len(_WORD.findall(piece)) for piece in self.vocabulary), default=1)
        self._encode_cached = lru_cache(maxsize=10_000)(self._encode_phrases)

    @classmethod
    def build(cls, texts: Iterable[str], lines: Iterable[str]) -> "WordTokenizer":
        """Build the vocabulary from generated texts and from lines that the model reads.

        Words that almost always occur together become one token.
        """
        written, read = Counter(texts), Counter(lines)
        characters = set(map(chr, range(32, 127))) | {"\n"}
        for text in (*written, *read):
            characters.update(text)
        counted_words = [(_WORD.findall(text), times) for text, times in written.items()]
        counted_words += [
            (_WORD.findall(line), times) for line, times in read.items() if " " in line
        ]
        words = _sum_counts((word, times) for text, times in counted_words for word in text)
        frequent = {word for word, times in words.items() if len(word) > 1 and times > 2}
        joined = _find_joined_words(
            counted_words, minimum=max(3, written.total() // _TEXTS_PER_PAIR)
        )
        return cls([*sorted(characters), *sorted(frequent | joined)])

    @cached_property
    def pieces(self) -> Sequence[str | None]:
        """The vocabulary, with None for each special token."""
        return (*(None for _ in self.SIGNS), *self.vocabulary)

    def get_special_token(self, role: str) -> int:
        """Return the special token that starts a message of this role."""
        get_special_token = f"<{role}>"
        return (
            self.SIGNS.index(get_special_token)
            if get_special_token in self.SIGNS
            else self.UNKNOWN
        )

    def encode(self, text: str) -> list[int]:
        """Encode word by word, with the longest known phrase at each place."""
        return list(self._encode_cached(text))

    def encode_line(self, line: str) -> list[int]:
        """Encode like `encode`, but character by character if the line has no space."""
        return self.encode(line) if " " in line else list(self._spell(line))

    def _encode_phrases(self, text: str) -> tuple[int, ...]:
        words, index, ids = _WORD.findall(text), 0, list[int]()
        while index < len(words):
            for count in range(min(self._longest, len(words) - index), 0, -1):
                number = self._ids.get("".join(words[index : index + count]))
                if number is not None:
                    ids.append(number)
                    break
            else:
                count = 1
                ids += self._spell(words[index])
            index += count
        return tuple(ids)

    def _spell(self, characters: str) -> Iterator[int]:
        return (self._ids.get(character, self.UNKNOWN) for character in characters)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids."""
        return "".join(self.pieces[number] or "" for number in ids)


_Item = TypeVar("_Item")
_MIN_SHARE_TOGETHER: Final = 0.9
"""Minimum share of the occurrences of the rarer word that are next to the other word."""
_TEXTS_PER_PAIR: Final = 1000
"""Two words are joined only if they occur together at least once in this many texts."""


def _find_joined_words(texts: Sequence[tuple[list[str], int]], minimum: int) -> set[str]:
    """Join words that almost always occur together, repeatedly; texts are given with counts."""
    joined: set[str] = set()
    while True:
        words = _sum_counts((word, times) for text, times in texts for word in text)
        pairs = _sum_counts((pair, times) for text, times in texts for pair in pairwise(text))
        pairs_found = {
            pair
            for pair, times in pairs.items()
            if times >= max(minimum, _MIN_SHARE_TOGETHER * min(words[pair[0]], words[pair[1]]))
        }
        if not pairs_found:
            return joined
        joined |= {left + right for left, right in pairs_found}
        texts = [(_join_pairs(text, pairs_found), times) for text, times in texts]


def _sum_counts(counted: Iterable[tuple[_Item, int]]) -> Counter[_Item]:
    counts: Counter[_Item] = Counter()
    for item, times in counted:
        counts[item] += times
    return counts


def _join_pairs(text: list[str], pairs: set[tuple[str, str]]) -> list[str]:
    """Join the pairs in a text; words joined now are considered again in the next round."""
    joined: list[str] = []
    index = 0
    while index < len(text):
        count = 2 if tuple(text[index : index + 2]) in pairs else 1
        joined.append("".join(text[index : index + count]))
        index += count
    return joined


_PIECE: Final = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+", re.UNICODE
)
"""Splits a text as GPT-2 does; digits are split off before."""


@lru_cache(maxsize=1)
def _map_bytes_to_letters() -> dict[int, str]:
    """Return the printable character that GPT-2's vocabularies use for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {
        byte: chr(256 + i) for i, byte in enumerate(rest)
    }


class BytePairs:
    """Byte-pair encoding of GPT-2, from the metadata of a GGUF file."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        tokens: list[str] = values["tokenizer.ggml.tokens"]
        kinds: list[int] = values["tokenizer.ggml.token_type"]
        merges: list[str] = values["tokenizer.ggml.merges"]
        self._signs = {token for token, kind in zip(tokens, kinds, strict=True) if kind != 1}
        self._ids = {token: i for i, token in enumerate(tokens)}
        self._rank = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        self._letters = _map_bytes_to_letters()
        self._tokens = tokens
        self._bytes = {letter: byte for byte, letter in self._letters.items()}
        self._encode_piece = lru_cache(maxsize=100_000)(self._merge_pairs)

    def get_special_token(self, name: str) -> int:
        """Return the id of a special token such as `<|im_end|>`."""
        return self._ids[name]

    @cached_property
    def pieces(self) -> Sequence[str | None]:
        """Text of each token; None for special tokens and incomplete characters."""
        return [
            None if token in self._signs else self._decode_token(token)
            for token in self._tokens
        ]

    def _decode_token(self, token: str) -> str | None:
        try:
            return bytes(self._bytes[letter] for letter in token).decode()
        except (UnicodeDecodeError, KeyError):
            return None

    def encode(self, text: str) -> list[int]:
        """Encode a text; digits are separate tokens, and special tokens are treated as text."""
        ids: list[int] = []
        for part in re.split(r"(\d)", text):
            pieces = [part] if part.isdigit() else _PIECE.findall(part)
            for piece in pieces:
                ids += self._encode_piece(piece)
        return ids

    def _merge_pairs(self, piece: str) -> tuple[int, ...]:
        parts = [self._letters[byte] for byte in piece.encode()]
        last = len(self._rank)
        while len(parts) > 1:
            ranks = [self._rank.get(pair, last) for pair in pairwise(parts)]
            best = min(ranks)
            if best == last:
                break
            index = ranks.index(best)
            parts[index : index + 2] = ["".join(parts[index : index + 2])]
        return tuple(self._ids[part] for part in parts)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids; invalid UTF-8 becomes U+FFFD."""
        letters = "".join(self._tokens[i] for i in ids if self._tokens[i] not in self._signs)
        return bytes(self._bytes[letter] for letter in letters).decode(errors="replace")


_STRUCT_CODES: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"} | {
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT_TYPE, _ARRAY_TYPE = 8, 9
_ALIGNMENT: Final = 32
_BLOCK: Final = 32
"""Number of values that share a scale."""


class Gguf(NamedTuple):
    """Content of a GGUF file."""

    values: dict[str, Any]
    tensors: dict[str, NDArray[np.float32]]
    """Tensors by name, with the outermost dimension first."""


class _Reader:
    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.file.read(struct.calcsize(f"<{form}")))[0]

    def read_text(self) -> str:
        return self.file.read(self.read("Q")).decode()

    def read_value(self, kind: int) -> Any:
        if kind == _TEXT_TYPE:
            return self.read_text()
        if kind == _ARRAY_TYPE:
            inner, count = self.read("I"), self.read("Q")
            return [self.read_value(inner) for _ in range(count)]
        return self.read(_STRUCT_CODES[kind])

    def read_header(self) -> tuple[int, dict[str, Any]]:
        if self.file.read(4) != b"GGUF":
            raise UsageError("is not a GGUF file")
        _version, tensors, count = self.read("I"), self.read("Q"), self.read("Q")
        return tensors, {
            self.read_text(): self.read_value(self.read("I")) for _ in range(count)
        }


def read_metadata(file: IO[bytes]) -> dict[str, Any]:
    """Return the metadata at the start of a file."""
    return _Reader(file).read_header()[1]


def read_gguf(path: Path) -> Gguf:
    """Read a GGUF file.

    Raises:
        UsageError: The file is not a GGUF file, or has an unsupported quantisation.
    """
    with path.open("rb") as file:
        reader = _Reader(file)
        count, values = reader.read_header()
        layout = []
        for _ in range(count):
            name = reader.read_text()
            shape = tuple(reader.read("Q") for _ in range(reader.read("I")))
            layout.append((name, shape[::-1], reader.read("I"), reader.read("Q")))
        start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    content = np.memmap(path, np.uint8, "r", offset=start)
    tensors = {}
    for name, shape, kind, offset in layout:
        if kind not in _QUANTISATIONS:
            raise UsageError(f"{path}: {name} has the unsupported quantisation {kind}")
        size, numbers = int(np.prod(shape)), _QUANTISATIONS[kind]
        stored = content[offset : offset + size // _BLOCK * numbers.size]
        tensors[name] = numbers.decode(stored).reshape(shape)
    return Gguf(values, tensors)


class _Quantisation(NamedTuple):
    size: int
    """Size of a block in bytes, including scales."""
    decode: Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def _decode_f32(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    return stored.view("<f4").astype(np.float32)


def _decode_q8_0(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode blocks of a half-precision scale and 32 signed bytes."""
    blocks = stored.reshape(-1, 2 + _BLOCK)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return (blocks[:, 2:].copy().view(np.int8) * scale).ravel()


def _decode_q4_1(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode blocks of a half-precision scale and minimum, then 32 4-bit values."""
    blocks = stored.reshape(-1, 4 + _BLOCK // 2)
    scale, least = blocks[:, :4].copy().view("<f2").astype(np.float32).T[:, :, None]
    packed = blocks[:, 4:]
    numbers = np.concatenate([packed & 15, packed >> 4], axis=1)
    return (numbers * scale + least).ravel()


_QUANTISATIONS: Final = {
    0: _Quantisation(4 * _BLOCK, _decode_f32),
    3: _Quantisation(20, _decode_q4_1),
    8: _Quantisation(34, _decode_q8_0),
}
