"""Cells and fields of files, as numbers, words and objects."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay._util.text import shown
from assay.errors import UsageError

__all__ = [
    "mapping_of",
    "number_of",
    "some_names",
    "text_of",
    "whole_number",
]

_LARGEST = {"step": 2**53, "seed": 2**63 - 1}
"""Steps are computed with, as floats; seeds are names."""


def number_of(value: Any) -> float | None:
    """A cell as a number; None for words."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return _float(value)
    if not isinstance(value, str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def whole_number(what: str, value: Any, where: str = "") -> int:
    """A step or a seed: a whole number, however it is written."""
    number = None
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,19}", value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif (real := number_of(value)) is not None and math.isfinite(real) and real == round(real):
        number = int(real)
    largest = _LARGEST[what]
    if number is None or abs(number) > largest:
        at = f"{where}: " if where else ""
        raise UsageError(
            f"{at}{what} {shown(value, 60)} is no whole number of at most {largest:,}; "
            "write it in digits alone"
        )
    return number


def mapping_of(what: str, value: Any) -> Mapping[str, Any]:
    """An object, also where a table holds it as JSON text; other text stands by itself."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return {what: value}
    if value is None or isinstance(value, Mapping):
        return {} if value is None else _known_numbers(value)
    raise UsageError(f"{what} is an object, not {type(value).__name__}")


def _known_numbers(value: Any) -> Any:
    """JSON without NaN and infinity, which have no place in it, as text."""
    if isinstance(value, Mapping):
        return {str(name): _known_numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_known_numbers(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def text_of(what: str, value: Any) -> str | None:
    """A value as text; None where there is none."""
    if isinstance(value, Mapping | list):
        raise UsageError(f"{what} {shown(value, 60)} is no text; give a name in quotes")
    return None if value is None or value == "" else str(value)


def some_names(names: Sequence[str]) -> str:
    """Names for a message, the first dozen of them."""
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (", …" if len(names) > 12 else "")
