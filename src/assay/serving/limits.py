"""How much is let in: calls per minute, and calls at once.

What is too much is told when to come again, truthfully.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from assay.errors import UsageError

__all__ = ["Gate", "ServingLimits", "TooMuch"]

_MAX: Final = 10_000_000
_GRAIN: Final = 1e-9
"""Sums of times are not exact; nobody is turned away for less than this."""


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """How much a server takes; None is as much as comes."""

    per_minute: int | None = None
    """Calls a minute, evenly spread: as a bucket that holds `burst` and refills steadily."""
    burst: int | None = None
    """Calls that may come at once after a pause; None is a second's worth, at least one."""
    at_once: int | None = None
    """Calls that may be open; one more is refused, not queued."""

    def __post_init__(self) -> None:
        for name in ("per_minute", "burst", "at_once"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _MAX:
                raise UsageError(f"{name} {value!r} is not allowed; give 1 to {_MAX}, or none")
        if self.burst is not None and self.per_minute is None:
            raise UsageError("a burst is a part of a rate limit; give the calls a minute too")

    @property
    def bucket(self) -> int:
        """The calls that may come at once."""
        return self.burst or max(1, (self.per_minute or 0) // 60)


class TooMuch(NamedTuple):
    """Why a call was not let in."""

    code: str
    message: str
    seconds: float
    """After this time a call would be let in, if no other came before it."""


class Gate:
    """Lets calls in and out again. Times are seconds of one clock that does not go back."""

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self._spacing = 60.0 / limits.per_minute if limits.per_minute else 0.0
        self._slack = self._spacing * (limits.bucket - 1)
        self._next = -math.inf
        """When the bucket would be full again but for one."""
        self._due: dict[int, float] = {}
        self._tickets = 0

    @property
    def open(self) -> int:
        """How many are in."""
        return len(self._due)

    def refusal(self, now: float) -> TooMuch | None:
        """Why one more call cannot come in; None if it can."""
        limits = self._limits
        if limits.at_once is not None and len(self._due) >= limits.at_once:
            return TooMuch(
                "concurrency_limit_exceeded",
                f"{limits.at_once} calls are open, and no more are allowed at once",
                max(0.0, min(self._due.values()) - now),
            )
        early = self._next - self._slack - now
        if self._spacing and early > _GRAIN:
            return TooMuch(
                "rate_limit_exceeded",
                f"the limit is {limits.per_minute} calls a minute",
                early,
            )
        return None

    def enter(self, now: float) -> int:
        """Let a call in that is not refused; returns its ticket."""
        self._next = max(self._next, now) + self._spacing
        self._tickets += 1
        self._due[self._tickets] = now
        return self._tickets

    def expect(self, ticket: int, due: float) -> None:
        """Say when a call will be over."""
        self._due[ticket] = due

    def leave(self, ticket: int) -> None:
        """Let a call out."""
        del self._due[ticket]

    def rate_headers(self, now: float) -> dict[str, str]:
        """What the protocol tells of the limit in every answer."""
        if not self._spacing:
            return {}
        used = max(0.0, self._next - now)
        left = int(max(0.0, self._slack + self._spacing - used) / self._spacing + 1e-9)
        return {
            # Of the bucket, not of the minute: reset and remaining are about the same.
            "x-ratelimit-limit-requests": str(round(self._slack / self._spacing) + 1),
            "x-ratelimit-remaining-requests": str(left),
            "x-ratelimit-reset-requests": f"{math.ceil(used * 1000)}ms",
        }
