"""Numbers as short text, with the unit of their metric.

An unknown number is a dash. The number of decimals depends on the magnitude; a difference and
its bounds have the same number. Rounding never overstates: a value that rounds to zero keeps
its sign, a proportion is shown as 0 or 100 % only if it is exact, and bounds of proportions
are rounded outwards.
"""

import math

from assay.judge.outcomes import Outcome, Unit, outcome_of
from assay.report.document import Cell
from assay.stats.intervals import Interval

DASH = "-"
"""Text for an unknown number."""
_MAX_DECIMALS = 6


def format_count(number: int) -> Cell:
    """Format an integer with thousands separators."""
    return Cell(f"{number:,}")


def format_value(metric: str | Outcome, number: float | None, like: float | None = None) -> str:
    """Format a value of a metric; it has as many digits as `like`."""
    return _format_with_unit(metric, number, like, "")


def format_difference(
    metric: str | Outcome, number: float | None, like: float | None = None
) -> str:
    """Format a difference of a metric, with its sign."""
    return _format_with_unit(metric, number, like, "+")


def format_bounds(metric: str | Outcome, interval: Interval) -> str:
    """Format the bounds of a difference; `unknown` if the data give none."""
    if not interval.known:
        return "unknown"
    like = rounding_reference(interval)
    ends = (format_difference(metric, end, like) for end in (interval.low, interval.high))
    return " to ".join(ends)


def mean_cell(
    metric: str | Outcome, interval: Interval | None, *, signed: bool = False
) -> Cell:
    """Format an estimate and its bounds for a table."""
    if interval is None:
        return Cell(DASH)
    format_end = format_difference if signed else format_value
    like = rounding_reference(interval)
    detail = "[?]"
    if interval.known:
        ends = (format_end(metric, end, like) for end in (interval.low, interval.high))
        detail = f"[{', '.join(ends)}]"
    return Cell(format_end(metric, interval.point, like), detail)


def share_cell(interval: Interval) -> Cell:
    """Format a proportion and its bounds in percent for a table."""
    point = f"{share_text(interval.point)}%"
    if not interval.known:
        return Cell(point)
    low, high = math.floor(100 * interval.low + 1e-9), math.ceil(100 * interval.high - 1e-9)
    return Cell(point, f"[{low}, {high}]")


def share_text(share: float) -> str:
    """Format a proportion in percent, without the sign; 0 and 100 only if exact."""
    if 0.995 <= share < 1:
        return "> 99"
    return "< 1" if 0 < share <= 0.005 else f"{100 * share:.0f}"


def format_signed_percent(share: float, digits: int) -> str:
    """Format a fraction in percent with its sign, which a rounded zero keeps."""
    return _format_rounded(100 * share, digits, "+")


def format_number(number: float | None, like: float | None = None, sign: str = "") -> str:
    """Format a number without a unit."""
    if number is None or math.isnan(number):
        return DASH
    if math.isinf(number):
        return "infinite" if number > 0 else "-infinite"
    digits = _count_decimals(number if like is None else like)
    return _format_rounded(number, digits, sign)


def _format_rounded(number: float, digits: int, sign: str) -> str:
    """Format a number with this many digits; a rounded zero keeps its sign."""
    text = f"{number if number else 0.0:{sign},.{digits}f}"
    if digits == _MAX_DECIMALS and number and not float(text.replace(",", "")):
        return f"{number:{sign}.2g}"
    return text


def p_text(p_value: float) -> str:
    """Format a p value as in `p = 0.021`."""
    if math.isnan(p_value):
        return "p unknown"
    if p_value < 0.0001:
        return "p < 0.0001"
    if p_value >= 0.995:
        return "p = 1"
    shown = f"{p_value:.2g}"
    # Avoid rounding across the usual significance levels.
    return f"p = {p_value:.3g}" if shown in ("0.05", "0.01", "0.1") else f"p = {shown}"


def format_p_value(p_value: float) -> str:
    """Format a p value alone, for a column."""
    return p_text(p_value).removeprefix("p ").removeprefix("= ")


def format_relative_change(share: float) -> str:
    """Format a fraction in percent, with its sign."""
    return f"{_format_rounded(100 * share, 0 if abs(share) >= 0.1 else 1, '+')} %"


def level_text(level: float) -> str:
    """Format a level as in `95 %`."""
    return f"{100 * level:.6g} %"


def format_dollars(amount: float) -> str:
    """Format an amount in dollars."""
    return f"${amount:,.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.2g}"


def format_hours(time: float) -> str:
    """Format a time in hours with a suitable unit."""
    if time * 3600 < 100:
        return f"{time * 3600:.2g} s"
    if time < 1.5:
        return f"{time * 60:.0f} min"
    return f"{time:,.1f} h" if time < 10 else f"{time:,.0f} h"


def axis_label(metric: str) -> str:
    """Return the name of a metric with its unit, for an axis."""
    return outcome_of(metric).label or metric


def _format_with_unit(
    metric: str | Outcome, number: float | None, like: float | None, sign: str
) -> str:
    if number is None or not math.isfinite(number):
        return format_number(number)
    unit = (outcome_of(metric) if isinstance(metric, str) else metric).unit
    if unit is Unit.PERCENT:
        return f"{_format_rounded(100 * number, 1, sign)}%"
    text = format_number(number, like, sign)
    if unit is Unit.DOLLARS:
        size = text.lstrip("+-")
        return f"{text.removesuffix(size)}${size}"
    return f"{text} s" if unit is Unit.SECONDS else text


def rounding_reference(interval: Interval) -> float:
    """Return the size that decides the digits of an interval: half its width, or its point."""
    half = interval.half_width if interval.known else 0.0
    return half if math.isfinite(half) and half else interval.point


def _count_decimals(number: float) -> int:
    size = abs(number)
    if size == 0 or size >= 1:
        return 0 if size >= 1000 else 1 if size >= 10 else 2
    return min(_MAX_DECIMALS, 1 - math.floor(math.log10(size)))
