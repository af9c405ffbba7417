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
        self._of_text = lru_cache(maxsize=10_000)(self._together)

    @classmethod
    def of(cls, texts: Iterable[str], lines: Iterable[str]) -> "WordTokenizer":
        """Build the vocabulary from texts to be written and lines to be read.

        Words that almost always occur together become one token.
        """
        written, read = Counter(texts), Counter(lines)
        characters = set(map(chr, range(32, 127))) | {"\n"}
        for text in (*written, *read):
            characters.update(text)
        told = [(_WORD.findall(text), times) for text, times in written.items()]
        told += [(_WORD.findall(line), times) for line, times in read.items() if " " in line]
        words = _counted((word, times) for text, times in told for word in text)
        known = {word for word, times in words.items() if len(word) > 1 and times > 2}
        joined = _joined(told, least=max(3, written.total() // _OFTEN))
        return cls([*sorted(characters), *sorted(known | joined)])

    @cached_property
    def pieces(self) -> Sequence[str | None]:
        """The vocabulary, with None for each special token."""
        return (*(None for _ in self.SIGNS), *self.vocabulary)

    def sign(self, role: str) -> int:
        """Return the special token that starts a message of this role."""
        sign = f"<{role}>"
        return self.SIGNS.index(sign) if sign in self.SIGNS else self.UNKNOWN

    def encode(self, text: str) -> list[int]:
        """Encode word by word, with the longest known phrase at each place."""
        return list(self._of_text(text))

    def encode_line(self, line: str) -> list[int]:
        """Encode like `encode`, but character by character if the line has no space."""
        return self.encode(line) if " " in line else list(self._spelt(line))

    def _together(self, text: str) -> tuple[int, ...]:
        words, place, ids = _WORD.findall(text), 0, list[int]()
        while place < len(words):
            for count in range(min(self._longest, len(words) - place), 0, -1):
                number = self._ids.get("".join(words[place : place + count]))
                if number is not None:
                    ids.append(number)
                    break
            else:
                count = 1
                ids += self._spelt(words[place])
            place += count
        return tuple(ids)

    def _spelt(self, characters: str) -> Iterator[int]:
        return (self._ids.get(character, self.UNKNOWN) for character in characters)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids."""
        return "".join(self.pieces[number] or "" for number in ids)


_Thing = TypeVar("_Thing")
_TOGETHER: Final = 0.9
"""Minimum share of the occurrences of the rarer word that are next to the other word."""
_OFTEN: Final = 1000
"""Two words are joined only if they occur together at least once in this many texts."""


def _joined(texts: Sequence[tuple[list[str], int]], least: int) -> set[str]:
    """Join words that almost always occur together, repeatedly; texts are given with counts."""
    joined: set[str] = set()
    while True:
        words = _counted((word, times) for text, times in texts for word in text)
        pairs = _counted((pair, times) for text, times in texts for pair in pairwise(text))
        found = {
            pair
            for pair, times in pairs.items()
            if times >= max(least, _TOGETHER * min(words[pair[0]], words[pair[1]]))
        }
        if not found:
            return joined
        joined |= {left + right for left, right in found}
        texts = [(_with_joined(text, found), times) for text, times in texts]


def _counted(found: Iterable[tuple[_Thing, int]]) -> Counter[_Thing]:
    counts: Counter[_Thing] = Counter()
    for thing, times in found:
        counts[thing] += times
    return counts


def _with_joined(text: list[str], pairs: set[tuple[str, str]]) -> list[str]:
    """Join the pairs in a text; words joined now are considered again in the next round."""
    made: list[str] = []
    place = 0
    while place < len(text):
        count = 2 if tuple(text[place : place + 2]) in pairs else 1
        made.append("".join(text[place : place + count]))
        place += count
    return made


_PIECE: Final = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+", re.UNICODE
)
"""Splits a text as GPT-2 does; digits are split off before."""


@lru_cache(maxsize=1)
def _byte_letters() -> dict[int, str]:
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
        self._letters = _byte_letters()
        self._tokens = tokens
        self._bytes = {letter: byte for byte, letter in self._letters.items()}
        self._of_piece = lru_cache(maxsize=100_000)(self._merged)

    def sign(self, name: str) -> int:
        """Return the id of a special token such as `<|im_end|>`."""
        return self._ids[name]

    @cached_property
    def pieces(self) -> Sequence[str | None]:
        """Text of each token; None for special tokens and incomplete characters."""
        return [None if token in self._signs else self._text(token) for token in self._tokens]

    def _text(self, token: str) -> str | None:
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
                ids += self._of_piece(piece)
        return ids

    def _merged(self, piece: str) -> tuple[int, ...]:
        parts = [self._letters[byte] for byte in piece.encode()]
        last = len(self._rank)
        while len(parts) > 1:
            ranks = [self._rank.get(pair, last) for pair in pairwise(parts)]
            best = min(ranks)
            if best == last:
                break
            at = ranks.index(best)
            parts[at : at + 2] = ["".join(parts[at : at + 2])]
        return tuple(self._ids[part] for part in parts)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids; invalid UTF-8 becomes U+FFFD."""
        told = "".join(self._tokens[i] for i in ids if self._tokens[i] not in self._signs)
        return bytes(self._bytes[letter] for letter in told).decode(errors="replace")


_SIMPLE: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"} | {
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT, _ARRAY = 8, 9
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

    def text(self) -> str:
        return self.file.read(self.read("Q")).decode()

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            inner, count = self.read("I"), self.read("Q")
            return [self.value(inner) for _ in range(count)]
        return self.read(_SIMPLE[kind])

    def header(self) -> tuple[int, dict[str, Any]]:
        if self.file.read(4) != b"GGUF":
            raise UsageError("is not a GGUF file")
        _version, tensors, count = self.read("I"), self.read("Q"), self.read("Q")
        return tensors, {self.text(): self.value(self.read("I")) for _ in range(count)}


def read_values(file: IO[bytes]) -> dict[str, Any]:
    """Return the metadata at the start of a file."""
    return _Reader(file).header()[1]


def read_gguf(path: Path) -> Gguf:
    """Read a GGUF file.

    Raises:
        UsageError: The file is not a GGUF file, or has an unsupported quantisation.
    """
    with path.open("rb") as file:
        reader = _Reader(file)
        count, values = reader.header()
        layout = []
        for _ in range(count):
            name = reader.text()
            shape = tuple(reader.read("Q") for _ in range(reader.read("I")))
            layout.append((name, shape[::-1], reader.read("I"), reader.read("Q")))
        start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    content = np.memmap(path, np.uint8, "r", offset=start)
    tensors = {}
    for name, shape, kind, offset in layout:
        if kind not in _KINDS:
            raise UsageError(f"{path}: {name} has the quantisation {kind}, which is unknown")
        size, numbers = int(np.prod(shape)), _KINDS[kind]
        stored = content[offset : offset + size // _BLOCK * numbers.size]
        tensors[name] = numbers.decode(stored).reshape(shape)
    return Gguf(values, tensors)


class _Kind(NamedTuple):
    size: int
    """Size of a block in bytes, including scales."""
    decode: Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def _f32(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    return stored.view("<f4").astype(np.float32)


def _q8_0(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode blocks of a half-precision scale and 32 signed bytes."""
    blocks = stored.reshape(-1, 2 + _BLOCK)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return (blocks[:, 2:].copy().view(np.int8) * scale).ravel()


def _q4_1(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode blocks of a half-precision scale and minimum, then 32 4-bit values."""
    blocks = stored.reshape(-1, 4 + _BLOCK // 2)
    scale, least = blocks[:, :4].copy().view("<f2").astype(np.float32).T[:, :, None]
    packed = blocks[:, 4:]
    numbers = np.concatenate([packed & 15, packed >> 4], axis=1)
    return (numbers * scale + least).ravel()


_KINDS: Final = {0: _Kind(4 * _BLOCK, _f32), 3: _Kind(20, _q4_1), 8: _Kind(34, _q8_0)}
