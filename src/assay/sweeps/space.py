"""What a sweep may choose, as a TOML file says it.

    [fixed]
    architecture = "trxl"

    [space]
    learning_rate = {low = 1e-5, high = 1e-2, log = true}
    epochs = {low = 1, high = 4}
    width = [64, 128, 256]

Whole bounds give whole numbers. A list is chosen from.
"""

import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from assay._util.names import unknown_name
from assay._util.text import printable, shown
from assay.errors import UsageError

__all__ = ["Choices", "Range", "SweepSpace", "read_space"]

_FORM = "{low = 1e-5, high = 1e-2, log = true}, or a list of values"


class Range(NamedTuple):
    """A number between two bounds, both included."""

    low: float
    high: float
    log: bool = False
    """Whether all orders of magnitude are as likely."""

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Choices(NamedTuple):
    """One of several values."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SweepSpace:
    """Options of a trainer: those of every run, and those that are searched."""

    fixed: Mapping[str, Any]
    space: Mapping[str, Range | Choices]

    def first(self) -> dict[str, Any]:
        """The first value, or the lower bound, of each option."""
        return {
            name: domain.values[0] if isinstance(domain, Choices) else domain.low
            for name, domain in self.space.items()
        }

    def grid(self) -> list[dict[str, Any]]:
        """Every combination.

        Raises:
            UsageError: There is no end to them.
        """
        names, columns = list(self.space), []
        for name, domain in self.space.items():
            if isinstance(domain, Choices):
                columns.append(domain.values)
            elif domain.whole:
                columns.append(tuple(range(int(domain.low), int(domain.high) + 1)))
            else:
                raise UsageError(
                    f"space.{name} is a range, and a grid takes single values; give a list, "
                    "such as [0.001, 0.01], or --sampler tpe"
                )
        return [dict(zip(names, row, strict=True)) for row in itertools.product(*columns)]

    def content(self) -> dict[str, Any]:
        """What it means, as plain values."""
        space = {
            name: list(domain.values) if isinstance(domain, Choices) else domain._asdict()
            for name, domain in self.space.items()
        }
        return {"fixed": dict(self.fixed), "space": space}


def read_space(path: Path) -> SweepSpace:
    """The space in a file.

    Raises:
        UsageError: The file cannot be read, or is no space.
    """
    name = repr(printable(str(path)))
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{name} is no TOML: {error}") from error
    try:
        return _space(found)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


def _space(found: Mapping[str, Any]) -> SweepSpace:
    for table in found:
        if table not in ("fixed", "space"):
            raise UsageError(unknown_name("table", table, ("fixed", "space")))
        if not isinstance(found[table], dict):
            raise UsageError(f"{table} is a table; write [{table}] above its options")
    space = {name: _domain(name, value) for name, value in found.get("space", {}).items()}
    if not space:
        raise UsageError(f"[space] names no option; give each {_FORM}")
    fixed = found.get("fixed", {})
    for name, value in fixed.items():
        if name in space:
            raise UsageError(f"{name} is in [fixed] and in [space]; leave one out")
        _check_value(f"fixed.{name}", value)
    return SweepSpace(fixed, space)


def _domain(name: str, value: Any) -> Range | Choices:
    if isinstance(value, list) and value:
        for one in value:
            _check_value(f"space.{name}", one)
        return Choices(tuple(value))
    if not isinstance(value, dict) or not {"low", "high"} <= value.keys() <= {*Range._fields}:
        raise UsageError(f"space.{name} is {shown(value)}; give {_FORM}")
    bounds = Range(**value)
    numbers = [one for one in bounds[:2] if type(one) in (int, float) and math.isfinite(one)]
    if len(numbers) < 2 or not bounds.low < bounds.high or type(bounds.log) is not bool:
        raise UsageError(f"space.{name} is {shown(value)}; low is a number below high")
    if bounds.log and bounds.low <= 0:
        raise UsageError(f"space.{name}: low {bounds.low} has no logarithm; give one above 0")
    return bounds


def _check_value(where: str, value: Any) -> None:
    if not isinstance(value, str | int | float | bool):
        raise UsageError(f"{where} is {shown(value)}; give numbers, texts, true or false")
