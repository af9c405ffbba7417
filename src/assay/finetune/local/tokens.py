"""Texts as numbers: words of the data's own, or the byte pairs of a pretrained model.

A tokenizer knows no model. `pieces` says what each number stands for, so that a grammar can
tell which numbers may follow.

Of GGUF files, the quantisations that SmolLM2's file has are understood, and no other.
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
    """Texts to numbers and back."""

    @property
    def pieces(self) -> Sequence[str | None]:
        """The text of each number; None for signs, which no text contains."""
        ...

    def encode(self, text: str) -> list[int]:
        """The numbers of a text."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of numbers; signs are left out."""
        ...


_WORD: Final = re.compile(
    r'<tool_call>\n\{"name": "\w+", "arguments": '
    r"|\}\n</tool_call>"
    r"| ?[A-Za-z_]+\d{0,2}"
    r"| ?\d"
    r"|(?:(?!\}\n</tool_call>)[^\w\s])+"
    r"|\s|."
)
"""Words with up to two digits behind them, digits, signs in a row, and the frame of a call."""


class WordTokenizer:
    """Words of the data, those that always stand together as one, and single characters.

    Where a line has no space, such as a row of a map, each character is a word. A word that
    is not known is spelt; a character that is not known is `UNKNOWN`.
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
        """What each number stands for, after the signs."""
        first = len(self.SIGNS)
        self._ids = {piece: first + i for i, piece in enumerate(self.vocabulary)}
        self._longest = max((len(_WORD.findall(piece)) for piece in self.vocabulary), default=1)
        self._of_text = lru_cache(maxsize=10_000)(self._together)

    @classmethod
    def of(cls, texts: Iterable[str], lines: Iterable[str]) -> "WordTokenizer":
        """The words of texts that are to be written, and of lines that are to be read.

        Words that hardly ever stand apart are one.
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
        """The vocabulary, and None for each sign."""
        return (*(None for _ in self.SIGNS), *self.vocabulary)

    def sign(self, role: str) -> int:
        """The number that opens a message of a role."""
        sign = f"<{role}>"
        return self.SIGNS.index(sign) if sign in self.SIGNS else self.UNKNOWN

    def encode(self, text: str) -> list[int]:
        """Word by word, as many together as there is a number for."""
        return list(self._of_text(text))

    def encode_line(self, line: str) -> list[int]:
        """As `encode`, or character by character where there is no space."""
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
        """The words put together."""
        return "".join(self.pieces[number] or "" for number in ids)


_Thing = TypeVar("_Thing")
_TOGETHER: Final = 0.9
"""Of two words, the share of times at which the rarer one stands beside the other."""
_OFTEN: Final = 1000
"""They are one word if they stand together in one text of so many."""


def _joined(texts: Sequence[tuple[list[str], int]], least: int) -> set[str]:
    """Words that hardly ever stand apart, joined, again and again; texts with their times."""
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
    """A text with its pairs as one; what was just joined waits for the next round."""
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
"""As GPT-2 splits a text, where digits stand alone."""


@lru_cache(maxsize=1)
def _byte_letters() -> dict[int, str]:
    """The printable letter that GPT-2's vocabularies write for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {
        byte: chr(256 + i) for i, byte in enumerate(rest)
    }


class BytePairs:
    """Byte pairs as GPT-2 merges them, from the values of a GGUF file."""

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
        """The number of a sign, such as `<|im_end|>`."""
        return self._ids[name]

    @cached_property
    def pieces(self) -> Sequence[str | None]:
        """The text of each number; None for signs and parts of a character."""
        return [None if token in self._signs else self._text(token) for token in self._tokens]

    def _text(self, token: str) -> str | None:
        try:
            return bytes(self._bytes[letter] for letter in token).decode()
        except (UnicodeDecodeError, KeyError):
            return None

    def encode(self, text: str) -> list[int]:
        """Digits one by one, the rest in pieces that are merged; signs are mere text."""
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
        """The text; what is no UTF-8 becomes U+FFFD."""
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
"""Numbers that share a scale."""


class Gguf(NamedTuple):
    """What a file holds."""

    values: dict[str, Any]
    tensors: dict[str, NDArray[np.float32]]
    """By name, with the outermost dimension first."""


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
    """The named values at the start of a file."""
    return _Reader(file).header()[1]


def read_gguf(path: Path) -> Gguf:
    """All that a file holds.

    Raises:
        UsageError: It is no GGUF file, or has a quantisation that is not understood.
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
    """Bytes of a block, scales included."""
    decode: Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def _f32(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    return stored.view("<f4").astype(np.float32)


def _q8_0(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A scale as a half, then 32 signed bytes."""
    blocks = stored.reshape(-1, 2 + _BLOCK)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return (blocks[:, 2:].copy().view(np.int8) * scale).ravel()


def _q4_1(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A scale and a least value as halves, then 32 numbers of 4 bits, the low ones first."""
    blocks = stored.reshape(-1, 4 + _BLOCK // 2)
    scale, least = blocks[:, :4].copy().view("<f2").astype(np.float32).T[:, :, None]
    packed = blocks[:, 4:]
    numbers = np.concatenate([packed & 15, packed >> 4], axis=1)
    return (numbers * scale + least).ravel()


_KINDS: Final = {0: _Kind(4 * _BLOCK, _f32), 3: _Kind(20, _q4_1), 8: _Kind(34, _q8_0)}
