"""Texts as numbers: words of the data's own, or the byte pairs of a pretrained model.

A tokenizer knows no model. `pieces` says what each number stands for, so that a grammar can
tell which numbers may follow.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, Protocol

__all__ = ["BytePairs", "Tokenizer", "WordTokenizer"]


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
    """Words, frequent lines and single characters of the data.

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

    @classmethod
    def of(cls, texts: Iterable[str], lines: Iterable[str]) -> "WordTokenizer":
        """The words of texts that are to be written, and of lines that are to be read.

        A line with a space that is one in a hundred texts or more is a word of its own.
        """
        words: Counter[str] = Counter()
        characters = set(map(chr, range(32, 127))) | {"\n"}
        count = 0
        for text in texts:
            count += 1
            words.update(_WORD.findall(text))
            characters.update(text)
        read = Counter(lines)
        for line, times in read.items():
            characters.update(line)
            if " " in line:
                for word in _WORD.findall(line):
                    words[word] += times
        whole = {line for line, times in read.items() if " " in line and times > count / 100}
        known = {word for word, times in words.items() if len(word) > 1 and times > 2}
        return cls([*sorted(characters), *sorted(known | whole)])

    @cached_property
    def pieces(self) -> Sequence[str | None]:
        """The vocabulary, and None for each sign."""
        return (*(None for _ in self.SIGNS), *self.vocabulary)

    def sign(self, role: str) -> int:
        """The number that opens a message of a role."""
        sign = f"<{role}>"
        return self.SIGNS.index(sign) if sign in self.SIGNS else self.UNKNOWN

    def encode(self, text: str) -> list[int]:
        """Word by word."""
        return list(self._spelt(_WORD.findall(text)))

    def encode_line(self, line: str) -> list[int]:
        """The whole line where it is a frequent one, else its words, or its characters."""
        if line in self._ids:
            return [self._ids[line]]
        return list(self._spelt(_WORD.findall(line) if " " in line else line))

    def _spelt(self, words: Iterable[str]) -> Iterator[int]:
        for word in words:
            number = self._ids.get(word)
            if number is not None:
                yield number
            else:
                yield from (self._ids.get(character, self.UNKNOWN) for character in word)

    def decode(self, ids: Iterable[int]) -> str:
        """The words put together."""
        return "".join(self.pieces[number] or "" for number in ids)


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
