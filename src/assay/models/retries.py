"""When a call is tried again, and how long it waits before that."""

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import isfinite

from assay._util.backoff import backoff

__all__ = ["CallRetries", "retry_after"]

_LONGEST_WISH = 600.0
"""Seconds. A provider that wants more is waited for in parts."""
_SECONDS = re.compile(r"\s*\d+(\.\d+)?\s*\Z")


@dataclass(frozen=True, kw_only=True)
class CallRetries:
    """How patient a call is.

    Patience is used up by the waits between attempts, and by attempts that ran into the
    timeout; time in the queue for a turn costs none. What a provider asks for by Retry-After
    counts as an ordinary wait, so that a long one is not mistaken for a long failure.
    """

    patience: float = 120.0
    """Seconds."""
    first_wait: float = 0.5
    """Seconds; it doubles with each attempt, and a random part of it is waited."""
    longest_wait: float = 10.0

    def wait(self, attempt: int, jitter: random.Random) -> float:
        """Seconds to wait after an attempt, counted from 0."""
        most = backoff(attempt, self.first_wait, self.longest_wait)
        return most * jitter.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """How many seconds a provider asks to wait; None if it does not say.

    Reads `retry-after-ms`, and `retry-after` in seconds or as an HTTP date.

    Args:
        headers: With names in lower case, or of a mapping that ignores case.
        now: Seconds since 1970; the clock's if not given.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, _LONGEST_WISH)
    text = headers.get("retry-after")
    if text is None:
        return None
    seconds = _number(text)
    if seconds is None:
        seconds = _until(text, time.time() if now is None else now)
    return None if seconds is None else min(max(seconds, 0.0), _LONGEST_WISH)


def _number(text: str | None) -> float | None:
    if text is None or not _SECONDS.match(text):
        return None
    number = float(text)
    return number if isfinite(number) else _LONGEST_WISH


def _until(text: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, OSError):
        return None
