"""Numbers as short text, with the unit of their metric.

A number that is not known is a dash. Digits follow from size, so that a difference and its
bounds show as many. Rounding claims nothing: what rounds to zero keeps its sign, a share that
is not all or nothing is never shown as such, and bounds of shares are rounded outwards.
"""

import math

from assay.judge.outcomes import Unit, outcome_of
from assay.report.document import Cell
from assay.stats.intervals import Interval

DASH = "-"
"""What is not known."""
_MOST_DIGITS = 6


def count(number: int) -> Cell:
    """A whole number, with its thousands set apart."""
    return Cell(f"{number:,}")


def value(metric: str, number: float | None, like: float | None = None) -> str:
    """A value of a metric; `like` is a number whose digits it takes."""
    return _shown(metric, number, like, "")


def change(metric: str, number: float | None, like: float | None = None) -> str:
    """A difference of a metric, with its sign."""
    return _shown(metric, number, like, "+")


def bounds(metric: str, interval: Interval) -> str:
    """The bounds of a difference in words; `unknown` where the data gave none."""
    if not interval.known:
        return "unknown"
    like = digits_like(interval)
    return f"{change(metric, interval.low, like)} to {change(metric, interval.high, like)}"


def mean_cell(metric: str, interval: Interval | None, *, signed: bool = False) -> Cell:
    """An estimate and its bounds, for a table."""
    if interval is None:
        return Cell(DASH)
    shown = change if signed else value
    like = digits_like(interval)
    beside = "[?]"
    if interval.known:
        ends = (shown(metric, end, like) for end in (interval.low, interval.high))
        beside = f"[{', '.join(ends)}]"
    return Cell(shown(metric, interval.point, like), beside)


def share_cell(interval: Interval) -> Cell:
    """A share and its bounds in percent, for a table."""
    point = f"{share_text(interval.point)}%"
    if not interval.known:
        return Cell(point)
    low, high = math.floor(100 * interval.low + 1e-9), math.ceil(100 * interval.high - 1e-9)
    return Cell(point, f"[{low}, {high}]")


def share_text(share: float) -> str:
    """A share in percent without the sign of it; 100 and 0 only where it is all or nothing."""
    if 0.995 <= share < 1:
        return "> 99"
    return "< 1" if 0 < share <= 0.005 else f"{100 * share:.0f}"


def signed_percent(share: float, digits: int) -> str:
    """A share in percent with its sign, which a zero keeps if it was rounded."""
    return _rounded(100 * share, digits, "+")


def plain(number: float | None, like: float | None = None, sign: str = "") -> str:
    """A number without a unit."""
    if number is None or math.isnan(number):
        return DASH
    if math.isinf(number):
        return "infinite" if number > 0 else "-infinite"
    digits = _digits(number if like is None else like)
    return _rounded(number, digits, sign)


def _rounded(number: float, digits: int, sign: str) -> str:
    """A number of so many digits; a zero has the sign of what was rounded to it."""
    text = f"{number if number else 0.0:{sign},.{digits}f}"
    if digits == _MOST_DIGITS and number and not float(text.replace(",", "")):
        return f"{number:{sign}.2g}"
    return text


def p_text(p_value: float) -> str:
    """A p value as in `p = 0.021`."""
    if math.isnan(p_value):
        return "p unknown"
    if p_value < 0.0001:
        return "p < 0.0001"
    if p_value >= 0.995:
        return "p = 1"
    shown = f"{p_value:.2g}"
    # Not to be read as the other side of the usual levels.
    return f"p = {p_value:.3g}" if shown in ("0.05", "0.01", "0.1") else f"p = {shown}"


def p_number(p_value: float) -> str:
    """A p value alone, as for a column of them."""
    return p_text(p_value).removeprefix("p ").removeprefix("= ")


def percent(share: float) -> str:
    """A share in percent, with its sign."""
    return f"{_rounded(100 * share, 0 if abs(share) >= 0.1 else 1, '+')} %"


def level_text(level: float) -> str:
    """A level as in `95 %`."""
    return f"{100 * level:.6g} %"


def dollars(amount: float) -> str:
    """A sum of money."""
    return f"${amount:,.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.2g}"


def hours(time: float) -> str:
    """A time in the unit that suits it."""
    if time * 3600 < 100:
        return f"{time * 3600:.2g} s"
    if time < 1.5:
        return f"{time * 60:.0f} min"
    return f"{time:,.1f} h" if time < 10 else f"{time:,.0f} h"


def unit_name(metric: str) -> str:
    """Return the name of a metric with its unit, as for an axis."""
    return outcome_of(metric).label or metric


def _shown(metric: str, number: float | None, like: float | None, sign: str) -> str:
    if number is None or not math.isfinite(number):
        return plain(number)
    unit = outcome_of(metric).unit
    if unit is Unit.PERCENT:
        return f"{_rounded(100 * number, 1, sign)}%"
    text = plain(number, like, sign)
    if unit is Unit.DOLLARS:
        size = text.lstrip("+-")
        return f"{text.removesuffix(size)}${size}"
    return f"{text} s" if unit is Unit.SECONDS else text


def digits_like(interval: Interval) -> float:
    """The size that decides the digits of an interval: half its width, or its point."""
    half = interval.half_width if interval.known else 0.0
    return half if math.isfinite(half) and half else interval.point


def _digits(number: float) -> int:
    size = abs(number)
    if size == 0 or size >= 1:
        return 0 if size >= 1000 else 1 if size >= 10 else 2
    return min(_MOST_DIGITS, 1 - math.floor(math.log10(size)))
