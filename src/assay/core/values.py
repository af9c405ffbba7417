"""What values a setting takes, whoever gives them: a file, a command, a program.

Reading turns what was given into the one type used inside; reading that gives it again. A type
knows neither who gave a value nor which setting it is for. Hand-made, and not of pydantic:
the help of a command needs the types too, and must not wait 130 ms for an import.

Types of the fields that come in from outside: what pydantic may take for them.

A number is declared as one of these, because a bare `int` would read "7" and true. The
bounds are those of the columns that hold the values. Imports nothing of pydantic, so that
whoever only writes does not load it.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from assay.core.secrets import Secret
from assay.errors import UsageError

_LONGEST_LABEL = 200


class ValueType(NamedTuple):
    """The values that a setting takes."""

    read: Callable[[Any], Any]
    """The value in the type used inside; what is not allowed raises ValueError, with a reason
    if there is one, or a UsageError that says it all."""
    allowed: str
    """What it takes, as the end of the sentence that begins with "give"."""
    hint: str = ""
    """The same in a few words, for a comment; empty where an example says enough."""
    option: type = str
    """What a word of the command line is parsed as."""
    words: Literal["", "?", "+"] = ""
    """How many words an option takes, as argparse writes it: one, none or one, one or more."""
    none: tuple[Any, ...] = ("",)
    """What stands for none in files and options, if a setting may be none."""
    choices: tuple[str, ...] = ()
    """All words that an option takes, if they are few."""

    def is_none(self, value: Any) -> bool:
        """Whether a value stands for none; to Python alone, False is 0."""
        return any(type(value) is type(none) and value == none for none in self.none)


def value_type(allowed: str, **more: Any) -> Callable[[Callable[[Any], Any]], ValueType]:
    """Make the function below it the reader of a type; takes what `ValueType` takes."""
    return lambda read: ValueType(read, allowed, **more)


def whole(low: int, high: int) -> ValueType:
    """A whole number within bounds."""
    span = f"from {low} to {high}"
    read = partial(_number, int, low, high)
    return ValueType(read, f"a whole number {span}", span, option=int, none=(0,))


def real(low: float, high: float) -> ValueType:
    """A number within bounds; whole ones become floats."""
    span = f"from {low:g} to {high:g}"
    read = partial(_number, float, low, high)
    return ValueType(read, f"a number {span}", span, option=float, none=(0, 0.0))


def _number(kind: type[float], low: float, high: float, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise ValueError
    if not low <= value <= high:
        raise ValueError
    return kind(value)


def choice(*words: str) -> ValueType:
    """One of a few words."""
    in_a_file = " or ".join(f'"{word}"' for word in words)

    @value_type(" or ".join(map(repr, words)), hint=in_a_file, choices=words)
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return read


def text(longest: int) -> ValueType:
    """A text that is not blank."""

    @value_type(f"a text that is not empty, of at most {longest:,} characters")
    def read(value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError
        if len(value) > longest:
            raise ValueError(f"it has {len(value):,} characters")
        return value

    return read


@value_type("true or false", hint="true or false", option=bool)
def flag(value: Any) -> bool:
    """Yes or no."""
    if not isinstance(value, bool):
        raise ValueError
    return value


@value_type(f"a text of at most {_LONGEST_LABEL} characters, on one line")
def label(value: Any) -> str:
    """A short text on one line, without blanks around it."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    stripped = value.strip()
    if not 0 < len(stripped) <= _LONGEST_LABEL:
        raise ValueError
    return stripped


@value_type("a path", option=Path)
def path(value: Any) -> Path:
    """A path of something that need not exist, with a leading ~ resolved."""
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        raise ValueError
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError("there is no such home folder") from error


@value_type("the path of a text file", option=Path)
def text_file(value: Any) -> Path:
    """The path of a file that can be read."""
    file = path.read(value)
    file_text(file)
    return Path(file)


def file_text(file: Path) -> str:
    """The text of a file that the user named; UsageError where there is none."""
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        reason = "there is no such file"
    except UnicodeDecodeError:
        reason = "the file is not text in UTF-8"
    except OSError as error:
        reason = error.strerror or str(error)
    raise UsageError(f"cannot read {str(file)!r}: {reason}")


@value_type(
    "one or more names, each once, such as ['builtin/random', 'builtin/forager']", words="+"
)
def names(value: Any) -> tuple[str, ...]:
    """One name or several, each once, in their order."""
    labels = _several(label, value)
    if not labels:
        raise ValueError("there is no name in it")
    return labels


@value_type("one or more paths of text files, each once", option=Path, words="+")
def text_files(value: Any) -> tuple[Path, ...]:
    """Paths of files that can be read, each once, in their order."""
    return _several(text_file, value)


def _several(element: ValueType, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (str, Path, list, tuple)):
        raise ValueError
    items = tuple(map(element.read, value if isinstance(value, (list, tuple)) else (value,)))
    twice = next((item for item in items if items.count(item) > 1), None)
    if twice is not None:
        raise ValueError(f"{str(twice)!r} is there twice")
    return items


@value_type(
    "IN/OUT in dollars per million tokens, such as 0.15/0.60; a third number between them is "
    "for cached tokens"
)
def rates(value: Any) -> str:
    """What tokens cost, read and written."""
    parts = value.split("/") if isinstance(value, str) else ()
    if len(parts) not in (2, 3) or not all(0 <= float(part) <= 1e6 for part in parts):
        raise ValueError
    return str(value)


@value_type(
    "a URL such as http://localhost:8901, without a name, a password or a query in it; keys "
    "belong into variables"
)
def url(value: Any) -> str:
    """The address of a service, without a slash at its end."""
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        raise ValueError
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError
    if parts.port == 0 or parts.query or parts.fragment:
        raise ValueError
    return value.rstrip("/")


@value_type("a text of printable ASCII characters without blanks")
def key(value: Any) -> Secret:
    """A key for a service, hidden."""
    revealed = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(revealed, str) or not revealed.isascii() or not revealed.isprintable():
        raise ValueError
    if " " in revealed:
        raise ValueError
    return Secret(revealed)


class _Takes:
    """Limits of a field, in the words of pydantic's core schema."""

    def __init__(self, **limits: Any) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "strict": True, **self._limits}


Name: TypeAlias = Annotated[str, _Takes(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
"""One line of 1 to 200 characters."""
Count: TypeAlias = Annotated[int, _Takes(ge=0, lt=2**31)]
Ordinal: TypeAlias = Annotated[int, _Takes(ge=1, lt=2**31)]
Priority: TypeAlias = Annotated[int, _Takes(ge=-(2**31), lt=2**31)]
Seed: TypeAlias = Annotated[int, _Takes(ge=-(2**63), lt=2**63)]
Real: TypeAlias = Annotated[float, _Takes(allow_inf_nan=False)]
Flag: TypeAlias = Annotated[bool, _Takes()]
Moment: TypeAlias = Annotated[float, _Takes(ge=0, lt=253_402_300_800, allow_inf_nan=False)]
"""Seconds since 1970."""
Seconds: TypeAlias = Annotated[float, _Takes(ge=0, lt=1e12, allow_inf_nan=False)]
"""How long something took."""
