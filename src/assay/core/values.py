"""Types of values: for settings, and for fields of external data.

`ValueType` converts a value from a file, a command or a program to the internal type;
converting the result again has no effect. A type does not depend on the origin of a value or on
its setting. It does not use pydantic: the help of a command needs the types, too, and must not
wait 130 ms for an import.

The annotated types at the end are for pydantic models of external data. They are strict,
because a bare `int` would accept "7" and true, and their bounds are those of the database
columns. They do not import pydantic, so that code which only writes does not load it.
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
    """The values that a setting accepts."""

    read: Callable[[Any], Any]
    """Converts a value to the internal type. Raises ValueError for one that is not allowed,
    with a reason if there is one, or a UsageError with the complete message."""
    allowed: str
    """Description of allowed values, as the end of a sentence that begins with "give"."""
    hint: str = ""
    """Short description for a comment; empty if an example is sufficient."""
    option: type = str
    """Type to which the command line converts a word."""
    words: Literal["", "?", "+"] = ""
    """Number of words of an option, as in argparse: one, zero or one, one or more."""
    none: tuple[Any, ...] = ("",)
    """Values that mean None in files and options, if a setting is optional."""
    choices: tuple[str, ...] = ()
    """All words that an option accepts, if they are few."""

    def is_none(self, value: Any) -> bool:
        """Return whether a value means None; types must match, because False equals 0."""
        return any(type(value) is type(none) and value == none for none in self.none)


def value_type(allowed: str, **more: Any) -> Callable[[Callable[[Any], Any]], ValueType]:
    """Return a decorator that makes a function the `read` of a `ValueType`."""
    return lambda read: ValueType(read, allowed, **more)


def whole(low: int, high: int) -> ValueType:
    """Return the type of integers within bounds."""
    span = f"from {low} to {high}"
    read = partial(_read_number, int, low, high)
    return ValueType(read, f"a whole number {span}", span, option=int, none=(0,))


def real(low: float, high: float) -> ValueType:
    """Return the type of numbers within bounds; integers become floats."""
    span = f"from {low:g} to {high:g}"
    read = partial(_read_number, float, low, high)
    return ValueType(read, f"a number {span}", span, option=float, none=(0, 0.0))


def _read_number(kind: type[float], low: float, high: float, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise ValueError
    if not low <= value <= high:
        raise ValueError
    return kind(value)


def choice(*words: str) -> ValueType:
    """Return the type of a choice among a few words."""
    hint = " or ".join(f'"{word}"' for word in words)

    @value_type(" or ".join(map(repr, words)), hint=hint, choices=words)
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return read


def text(longest: int) -> ValueType:
    """Return the type of non-blank texts."""

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
    """Check a boolean."""
    if not isinstance(value, bool):
        raise ValueError
    return value


@value_type(f"a text of at most {_LONGEST_LABEL} characters, on one line")
def label(value: Any) -> str:
    """Check a short text on one line, and strip it."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    stripped = value.strip()
    if not 0 < len(stripped) <= _LONGEST_LABEL:
        raise ValueError
    return stripped


@value_type("a path", option=Path)
def path(value: Any) -> Path:
    """Convert to a path that need not exist, with a leading ~ expanded."""
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        raise ValueError
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError("the home folder does not exist") from error


@value_type("the path of a text file", option=Path)
def text_file(value: Any) -> Path:
    """Convert to the path of a readable text file."""
    file = path.read(value)
    file_text(file)
    return Path(file)


def file_text(file: Path) -> str:
    """Return the text of a file named by the user; raise UsageError if it cannot be read."""
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        reason = "the file does not exist"
    except UnicodeDecodeError:
        reason = "the file is not text in UTF-8"
    except OSError as error:
        reason = error.strerror or str(error)
    raise UsageError(f"cannot read {str(file)!r}: {reason}")


@value_type(
    "one or more names, each once, such as ['builtin/random', 'builtin/forager']", words="+"
)
def names(value: Any) -> tuple[str, ...]:
    """Convert to one or more names, each once, in order."""
    labels = _read_several(label, value)
    if not labels:
        raise ValueError("it contains no name")
    return labels


@value_type("one or more paths of text files, each once", option=Path, words="+")
def text_files(value: Any) -> tuple[Path, ...]:
    """Convert to paths of readable text files, each once, in order."""
    return _read_several(text_file, value)


def _read_several(element: ValueType, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (str, Path, list, tuple)):
        raise ValueError
    items = tuple(map(element.read, value if isinstance(value, (list, tuple)) else (value,)))
    repeated = next((item for item in items if items.count(item) > 1), None)
    if repeated is not None:
        raise ValueError(f"{str(repeated)!r} is given twice")
    return items


@value_type(
    "IN/OUT in dollars per million tokens, such as 0.15/0.60; a third number between them is "
    "for cached tokens"
)
def rates(value: Any) -> str:
    """Check the prices of input and output tokens."""
    parts = value.split("/") if isinstance(value, str) else ()
    if len(parts) not in (2, 3) or not all(0 <= float(part) <= 1e6 for part in parts):
        raise ValueError
    return str(value)


@value_type(
    "a URL such as http://localhost:8901, without a user name, a password or a query; set keys "
    "in environment variables"
)
def url(value: Any) -> str:
    """Check the URL of a service, and remove a trailing slash."""
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
    """Convert to the secret key of a service."""
    revealed = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(revealed, str) or not revealed.isascii() or not revealed.isprintable():
        raise ValueError
    if " " in revealed:
        raise ValueError
    return Secret(revealed)


class _Limits:
    """Limits of a field, as in the core schema of pydantic."""

    def __init__(self, **limits: Any) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "strict": True, **self._limits}


Name: TypeAlias = Annotated[str, _Limits(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
"""One line of 1 to 200 characters."""
Count: TypeAlias = Annotated[int, _Limits(ge=0, lt=2**31)]
Ordinal: TypeAlias = Annotated[int, _Limits(ge=1, lt=2**31)]
Priority: TypeAlias = Annotated[int, _Limits(ge=-(2**31), lt=2**31)]
Seed: TypeAlias = Annotated[int, _Limits(ge=-(2**63), lt=2**63)]
Real: TypeAlias = Annotated[float, _Limits(allow_inf_nan=False)]
Flag: TypeAlias = Annotated[bool, _Limits()]
Moment: TypeAlias = Annotated[float, _Limits(ge=0, lt=253_402_300_800, allow_inf_nan=False)]
"""Seconds since 1970."""
Seconds: TypeAlias = Annotated[float, _Limits(ge=0, lt=1e12, allow_inf_nan=False)]
"""Duration."""
