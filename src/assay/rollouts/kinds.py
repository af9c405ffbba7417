"""What values a setting of a run may have, whoever gives them: a file, a command, a program.

A kind turns what was given into the one type used inside, and says in words what it takes.
Reading a value twice gives the same as reading it once. Kinds do not know who gave it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from assay._util.names import unknown_name
from assay._util.secret import Secret
from assay.crafter import DIFFICULTIES, Difficulty
from assay.crafter.difficulty import resolve_difficulty
from assay.errors import UsageError
from assay.metrics.tally import OUTCOMES

__all__ = [
    "Address",
    "Choice",
    "File",
    "Files",
    "Flag",
    "Key",
    "Kind",
    "Label",
    "Location",
    "Names",
    "OptionalLocation",
    "Outcome",
    "Rates",
    "Real",
    "Whole",
    "World",
    "file_text",
]

LONGEST_NAME = 200
DEFAULT_OUTCOME = "achievements"


class Kind(Protocol):
    """Reads values; what it does not take raises ValueError, with a reason if there is one."""

    @property
    def allowed(self) -> str:
        """What it takes, as the end of the sentence that begins with "give"."""
        ...

    def read(self, value: Any) -> Any:
        """The value in the type used inside."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds; 0 may stand for none at all."""

    low: int
    high: int
    zero_is_none: bool = False

    @property
    def allowed(self) -> str:
        """The bounds."""
        none = ", or 0 for none" if self.zero_is_none else ""
        return f"a whole number from {self.low} to {self.high}{none}"

    def read(self, value: Any) -> int | None:
        """The number; True and False are none."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError
        if self.zero_is_none and value == 0:
            return None
        if not self.low <= value <= self.high:
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number within bounds; 0 may stand for none at all."""

    low: float
    high: float
    zero_is_none: bool = False

    @property
    def allowed(self) -> str:
        """The bounds."""
        none = ", or 0 for none" if self.zero_is_none else ""
        return f"a number from {self.low:g} to {self.high:g}{none}"

    def read(self, value: Any) -> float | None:
        """The number as a float."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError
        if self.zero_is_none and value == 0:
            return None
        if not self.low <= value <= self.high or math.isnan(value):
            raise ValueError
        return float(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no."""

    allowed: str = "true or false"

    def read(self, value: Any) -> bool:
        """The flag; numbers and words are none."""
        if not isinstance(value, bool):
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The words."""
        return " or ".join(repr(word) for word in self.words)

    def read(self, value: Any) -> str:
        """The word."""
        if value not in self.words:
            raise ValueError
        return str(value)


@dataclass(frozen=True, slots=True)
class Label:
    """A short text on one line; an empty one stands for none at all."""

    allowed: str = f"a text of at most {LONGEST_NAME} characters, on one line"

    def read(self, value: Any) -> str | None:
        """The text without blanks around it."""
        if value == "":
            return None
        return _label(value)


@dataclass(frozen=True, slots=True)
class Names:
    """One name or several, each once."""

    allowed: str = "one or more names, each once, such as ['builtin/random', 'builtin/forager']"

    def read(self, value: Any) -> tuple[str, ...]:
        """The names in their order."""
        names = tuple(_label(item) for item in _several(value))
        if not names:
            raise ValueError("there is no name in it")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is there twice")
        return names


@dataclass(frozen=True, slots=True)
class Location:
    """A path of something that need not exist."""

    allowed: str = "a path"

    def read(self, value: Any) -> Path:
        """The path, with a leading ~ resolved."""
        if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
            raise ValueError
        try:
            return Path(value).expanduser()
        except RuntimeError as error:
            raise ValueError("there is no such home folder") from error


@dataclass(frozen=True, slots=True)
class OptionalLocation:
    """A path of something that need not exist; an empty one stands for none at all."""

    allowed: str = "a path"

    def read(self, value: Any) -> Path | None:
        """The path, with a leading ~ resolved."""
        return None if value == "" else Location().read(value)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One of the numbers that an episode earns; true alone stands for achievements."""

    allowed: str = "the name of an outcome, such as achievements or reward"

    def read(self, value: Any) -> str | None:
        """The name; an option without a value is an empty list."""
        if isinstance(value, (list, tuple)):
            value = value[0] if len(value) == 1 else True if not value else None
        if value is True:
            return DEFAULT_OUTCOME
        if value is False or value == "":
            return None
        if not isinstance(value, str):
            raise ValueError
        if value not in OUTCOMES:
            short = [name for name in OUTCOMES if "/" in value or "/" not in name]
            raise UsageError(unknown_name("outcome", value, short))
        return value


@dataclass(frozen=True, slots=True)
class Rates:
    """What tokens cost, read and written; an empty text stands for none at all."""

    allowed: str = (
        "IN/OUT in dollars per million tokens, such as 0.15/0.60; a third number between "
        "them is for cached tokens"
    )

    def read(self, value: Any) -> str | None:
        """The numbers with a slash between them."""
        if value == "":
            return None
        parts = value.split("/") if isinstance(value, str) else ()
        if len(parts) not in (2, 3):
            raise ValueError
        numbers = [float(part) for part in parts]
        if not all(0 <= number <= 1e6 for number in numbers):
            raise ValueError
        return str(value)


@dataclass(frozen=True, slots=True)
class File:
    """The path of a text file; an empty one stands for none at all."""

    allowed: str = "the path of a text file"

    def read(self, value: Any) -> Path | None:
        """The path, of a file that can be read."""
        if value == "":
            return None
        path = Location().read(value)
        file_text(path)
        return path


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of text files, each once."""

    allowed: str = "one or more paths of text files, each once"

    def read(self, value: Any) -> tuple[Path, ...]:
        """The paths in their order."""
        paths = tuple(Location().read(item) for item in _several(value))
        for path in paths:
            if paths.count(path) > 1:
                raise ValueError(f"{str(path)!r} is there twice")
            file_text(path)
        return paths


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of a service; an empty one stands for none at all."""

    allowed: str = "a URL such as http://localhost:8901, without a name or password in it"

    def read(self, value: Any) -> str | None:
        """The URL without a slash at its end."""
        if value == "":
            return None
        if not isinstance(value, str) or not value.isprintable() or " " in value:
            raise ValueError
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError
        if parts.port is not None and parts.port == 0:
            raise ValueError
        return value.rstrip("/")


@dataclass(frozen=True, slots=True)
class World:
    """A difficulty by name, or a table of its numbers."""

    allowed: str = f"one of {', '.join(DIFFICULTIES)}, or a table of numbers"

    def read(self, value: Any) -> Difficulty:
        """The numbers."""
        return resolve_difficulty(value)


@dataclass(frozen=True, slots=True)
class Key:
    """A key for a service; an empty one stands for none at all."""

    allowed: str = "a text of printable ASCII characters without blanks"

    def read(self, value: Any) -> Secret | None:
        """The key, hidden."""
        if value == "":
            return None
        text = value.reveal() if isinstance(value, Secret) else value
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise ValueError
        if " " in text:
            raise ValueError
        return value if isinstance(value, Secret) else Secret(text)


def file_text(path: Path) -> str:
    """The text of a file that the user named; UsageError where there is none."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        reason = "there is no such file"
    except UnicodeDecodeError:
        reason = "the file is not text in UTF-8"
    except OSError as error:
        reason = error.strerror or str(error)
    raise UsageError(f"cannot read {str(path)!r}: {reason}")


def _several(value: Any) -> Iterable[Any]:
    if isinstance(value, (str, Path)):
        return (value,)
    if not isinstance(value, (list, tuple)):
        raise ValueError
    return value


def _label(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    text = value.strip()
    if not 0 < len(text) <= LONGEST_NAME:
        raise ValueError
    return text
