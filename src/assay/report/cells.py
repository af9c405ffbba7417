"""Numbers as short text, and names made safe to show.

An interval is a value and what stands beside it; a number that is not known is a dash. No
text here is read as markup by those who print it.
"""

from typing import NamedTuple

from assay._util.text import printable
from assay.stats import Interval

__all__ = [
    "DASH",
    "Cell",
    "count",
    "dollars",
    "mean",
    "name",
    "only_ascii",
    "percent",
    "seconds",
    "total_dollars",
]

DASH = "-"
_UNKNOWN = "±?"
_LONGEST_NAME = 80


class Cell(NamedTuple):
    """A number, and what stands beside it: its interval, or its n."""

    value: str
    beside: str = ""


def count(number: int) -> Cell:
    """A whole number, with its thousands set apart."""
    return Cell(f"{number:,}")


def mean(interval: Interval | None, digits: int = 2, unit: str = "", scale: float = 1) -> Cell:
    """A mean and half the width of its interval, in the same unit."""
    if interval is None:
        return Cell(DASH)
    # Adding zero takes the sign from a zero.
    value = f"{round(interval.point * scale, digits) + 0.0:,.{digits}f}{unit}"
    return Cell(value, _half(interval, digits, scale))


def percent(interval: Interval | None, digits: int = 2) -> Cell:
    """A share in percent and half the width of its interval."""
    return mean(interval, digits, "%", 100)


def seconds(interval: Interval | None) -> Cell:
    """A mean time, with more digits where it is short."""
    digits = 1 if interval is None or interval.point >= 10 else 3 if interval.point < 1 else 2
    return mean(interval, digits, "s")


def dollars(interval: Interval | None) -> Cell:
    """A mean price and half the width of its interval."""
    if interval is None:
        return Cell(DASH)
    digits = _digits(interval.point)
    return Cell(f"${interval.point:,.{digits}f}", _half(interval, digits, 1))


def total_dollars(amount: float | None) -> Cell:
    """A sum of money."""
    return Cell(DASH) if amount is None else Cell(f"${amount:,.{_digits(amount)}f}")


def name(text: str) -> str:
    """A name from outside in one line: what a terminal might obey is made visible."""
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"


def only_ascii(text: str) -> str:
    """The text for a place that has no other letters."""
    plain = text.replace("±", "+-").replace("…", "...")
    return plain.encode("ascii", "backslashreplace").decode()


def _half(interval: Interval, digits: int, scale: float) -> str:
    return f"±{interval.half_width * scale:,.{digits}f}" if interval.known else _UNKNOWN


def _digits(amount: float) -> int:
    return 2 if amount >= 1 or amount == 0 else 4
