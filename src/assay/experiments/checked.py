"""Values of JSON files that people write by hand, checked one by one.

Every problem is a UsageError that says where it is, what stands there, and what is allowed.
Knows nothing of what the values mean.
"""

import json
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from assay._util.text import cut, printable
from assay.errors import UsageError

__all__ = [
    "checked_flags",
    "checked_label",
    "checked_list",
    "checked_numbers",
    "checked_seeds",
    "read_object",
    "shown",
]

_LONGEST_LABEL = 300
_LONGEST_SHOWN = 60


def read_object(path: Path, largest: int) -> dict[str, Any]:
    """The JSON object in a file of at most `largest` bytes."""
    try:
        size = path.stat().st_size
        if size > largest:
            raise UsageError(
                f"{str(path)!r} has {size / 1e6:,.0f} MB, and at most {largest / 1e6:,.0f} MB "
                "are read; keep only what is to be compared in it"
            )
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be read: {error.strerror or error}; name a JSON file"
        ) from error
    try:
        value = json.loads(content.decode("utf-8-sig"), parse_constant=_not_a_number)
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not text in UTF-8; save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        reason = printable(str(error))[:200]
        raise UsageError(f"{str(path)!r} is not whole, valid JSON: {reason}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{str(path)!r} holds {shown(value)}; it must be a JSON object")
    return value


def checked_label(value: Any, where: str, key: str, longest: int = _LONGEST_LABEL) -> str:
    """A text of one to `longest` letters."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        _refuse(value, where, key, f"text of 1 to {longest} letters")
    return value


def checked_list(value: Any, where: str, key: str) -> list[Any]:
    """A list with something in it."""
    if not isinstance(value, list):
        _refuse(value, where, key, "a list with a value for each trial")
    if not value:
        raise UsageError(
            f"{where}: {key} is empty; give a value for each trial, or leave it out"
        )
    return value


def checked_numbers(
    values: list[Any], where: str, key: str, *, least: float | None = None
) -> list[float | None]:
    """Finite numbers; null stands for a trial without one."""
    return [
        None if value is None else _number(value, where, f"value {place} of {key}", least)
        for place, value in enumerate(values, start=1)
    ]


def checked_flags(values: list[Any], where: str, key: str) -> list[float | None]:
    """True and false, or 1 and 0, as 1 and 0; null stands for a trial without one."""
    for place, value in enumerate(values, start=1):
        if value is not None and value not in (0, 1):
            _refuse(value, where, f"value {place} of {key}", "true or false")
    return [None if value is None else float(value) for value in values]


def checked_seeds(values: list[Any], where: str, key: str) -> list[int | None]:
    """Whole numbers of 64 bits; null stands for a trial without a seed."""
    for place, value in enumerate(values, start=1):
        whole = type(value) is int and -(2**63) <= value < 2**63
        if value is not None and not whole:
            _refuse(value, where, f"value {place} of {key}", "a whole number")
    return values


def shown(value: Any) -> str:
    """A value of a file in a few words, safe to print."""
    match value:
        case dict():
            return f"an object of {len(value)}"
        case list():
            return f"a list of {len(value)}"
        case int() if abs(value) >= 10**18:
            return "a number of more than 18 digits"
    return cut(json.dumps(value, ensure_ascii=False), _LONGEST_SHOWN)


def _number(value: Any, where: str, key: str, least: float | None) -> float:
    # Booleans are numbers to Python, and nobody who writes true means 1 here.
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(value, where, key, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isfinite(number):
        _refuse(value, where, key, "a finite number")
    if least is not None and number < least:
        _refuse(value, where, key, f"a number of at least {least:g}")
    return number


def _refuse(value: Any, where: str, key: str, allowed: str) -> NoReturn:
    raise UsageError(f"{where}: {key} is {shown(value)}; give {allowed}")


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON; write null where there is no value")
