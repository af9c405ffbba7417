"""What the keys of a row may hold. Knows one row at a time, and no file."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Final

from assay._util.names import unknown_name
from assay._util.secret import Secret
from assay.errors import UsageError

from .access import is_address
from .registry import Price

__all__ = ["MODEL_KEYS", "PROVIDER_KEYS", "Reader", "is_name", "read_row"]

_LONGEST: Final = 200
_SENT: Final = ("temperature", "seed")
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_OURS: Final = ("model", "messages", "tools", "stream", "n", *_SENT, *_LIMITS)
"""Fields that every request has anyway, or that would change how it is answered."""
_HIDDEN: Final = ("key", "key_variable", "base_url")
"""Keys whose values may be secrets, given in the right place or in a wrong one."""
_VARIABLE_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*\Z")

Reader = Callable[[Any], Any]
"""Turns what stands in a file into the type used inside, or raises ValueError."""


def read_row(
    row: Mapping[str, Any], keys: Mapping[str, tuple[Reader, str]], place: str
) -> dict[str, Any]:
    """The values of a row, each in the type used inside.

    Args:
        row: What stands in the file.
        keys: How each key is read, and what it takes.
        place: Where the row stands, for messages.

    Raises:
        UsageError: A key is not known, or a value not allowed.
    """
    values = {}
    for key, raw in row.items():
        if key not in keys:
            raise UsageError(f"{place} {unknown_name('key', key, keys)}")
        read, allowed = keys[key]
        try:
            values[key] = read(raw)
        except (ValueError, TypeError) as error:
            shown = "this" if key in _HIDDEN else f"{raw!r}"
            raise UsageError(
                f"{place} {key}: {shown} is not allowed; give {str(error) or allowed}"
            ) from None
    return values


def is_name(text: object) -> bool:
    """Whether a model or a provider can be called this."""
    return (
        isinstance(text, str)
        and text.isprintable()
        and text == text.strip()
        and 0 < len(text) <= _LONGEST
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
        raise ValueError
    return value


def _variable(value: Any) -> str | None:
    text = _text(value)
    if text and not _VARIABLE_NAME.match(text):
        raise ValueError
    return text or None


def _named(value: Any) -> str:
    if not is_name(value):
        raise ValueError
    return str(value)


def _url(value: Any) -> str:
    if not isinstance(value, str) or not is_address(value):
        raise ValueError
    return value.rstrip("/")


def _path(value: Any) -> str:
    text = _text(value).rstrip("/")
    if text and not text.startswith("/"):
        raise ValueError
    return text


def _secret(value: Any) -> Secret:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError
    if not value or " " in value:
        raise ValueError
    return Secret(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def _day(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError
    return value


def _dollars(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    if not math.isfinite(value) or value < 0:
        raise ValueError
    return float(value)


def _limit(value: Any) -> str:
    if value not in _LIMITS:
        raise ValueError
    return str(value)


def _fields(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or any(one not in _SENT for one in value):
        raise ValueError
    return tuple(value)


def _beginnings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_named(one).lower() for one in value)


def _sent(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    for key, one in value.items():
        if key in _OURS:
            raise ValueError(f"other fields: {key!r} is filled in by assay")
        if not isinstance(one, (str, bool, int, float)):
            raise ValueError
    return value


def _price(value: Any) -> Price:
    kinds: dict[str, Reader] = {
        "input": _dollars,
        "output": _dollars,
        "cached": _dollars,
        "cache_write": _dollars,
        "up_to": _count,
        "dated": _day,
    }
    if not isinstance(value, dict):
        raise ValueError
    for key in value:
        if key not in kinds:
            raise ValueError(f"a price without this: {unknown_name('key', key, kinds)}")
    for key in ("input", "output", "dated"):
        if key not in value:
            raise ValueError(f"a price with {key!r} too, such as {_PRICE_EXAMPLE}")
    return Price(**{key: kinds[key](one) for key, one in value.items()})


_PRICE_EXAMPLE: Final = "{ input = 0.15, cached = 0.075, output = 0.60, dated = 2026-11-16 }"
_DAY: Final = "a day such as 2026-11-16, without quotes"
_VARIABLE: Final = "the name of an environment variable in capitals, or '' for none"

PROVIDER_KEYS: Final[Mapping[str, tuple[Reader, str]]] = {
    "base_url": (_url, "a URL such as http://localhost:8000/v1, without a name or password"),
    "base_url_variable": (_variable, _VARIABLE),
    "path": (_path, "the end of an address, such as '/v1'"),
    "key_variable": (_variable, _VARIABLE),
    "key_optional": (_flag, "true or false"),
    "key": (_secret, "printable ASCII characters without blanks"),
    "limit_field": (_limit, " or ".join(repr(one) for one in _LIMITS)),
    "unsupported": (_fields, f"a list of some of {', '.join(_SENT)}"),
    "fine_tuned": (_beginnings, "a list of texts that names of base models begin with"),
    "timeout_s": (_count, "a whole number from 1 on"),
    "note": (_text, f"a text of at most {_LONGEST} characters, on one line"),
}
"""How each key of a provider is read, and what it takes."""
MODEL_KEYS: Final[Mapping[str, tuple[Reader, str]]] = {
    "provider": (_named, "the name of a provider"),
    "remote_name": (_named, "the name that the provider has for it"),
    "price": (_price, f"dollars per million tokens, such as {_PRICE_EXAMPLE}"),
    "context": (_count, "a whole number of tokens"),
    "tools": (_flag, "true or false"),
    "requests_per_minute": (_count, "a whole number from 1 on"),
    "unsupported": (_fields, f"a list of some of {', '.join(_SENT)}"),
    "send": (
        _sent,
        "a table of fields and their values, such as { reasoning_effort = 'none' }",
    ),
    "retired": (_day, _DAY),
    "successor": (_named, "the name of another model"),
    "looked_up": (_day, _DAY),
    "note": (_text, f"a text of at most {_LONGEST} characters, on one line"),
}
"""How each key of a model is read, and what it takes."""
