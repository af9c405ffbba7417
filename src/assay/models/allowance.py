"""What a provider says about its limits in the headers of a reply.

OpenAI, Groq and others send `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`; Anthropic
sends `anthropic-ratelimit-requests-{limit,remaining,reset}`, with a date. What cannot be read
is as good as not said.
"""

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

__all__ = ["Allowance", "read_allowance"]

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NAMES = ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}", "x-ratelimit-{}")


class Allowance(NamedTuple):
    """How many more calls a provider takes."""

    remaining: int
    """Calls that may follow at once."""
    refill: float | None
    """Calls a second that come back; None if that cannot be told."""


def read_allowance(headers: Mapping[str, str], now: float | None = None) -> Allowance | None:
    """The allowance in the headers of a reply; None if they have none.

    Args:
        headers: With names in lower case, or of a mapping that ignores case.
        now: Seconds since 1970; the clock's if not given.
    """
    for name in _NAMES:
        remaining = _whole(headers.get(name.format("remaining")))
        if remaining is None:
            continue
        limit = _whole(headers.get(name.format("limit")))
        reset = _seconds(headers.get(name.format("reset")), now)
        refill = None
        # The reset is when everything is back, so the missing calls come back until then.
        if limit is not None and reset and limit > remaining:
            refill = (limit - remaining) / reset
        return Allowance(remaining, refill)
    return None


def _whole(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 12:
        return None
    return int(text)


def _seconds(text: str | None, now: float | None) -> float | None:
    if not text or len(text) > 40:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        number = float(text)
        # Some write the time of day instead, since 1970.
        return number if number < 1e8 else None
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        return datetime.fromisoformat(text).timestamp() - (time.time() if now is None else now)
    except (ValueError, OverflowError, OSError):
        return None
