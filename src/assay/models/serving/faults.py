"""Faults and limits on request, and counts of what a server was asked.

What happens to a call follows from the seed, from the bytes of the request and from how often
the same bytes were let in before. So it depends neither on time nor on the order in which
calls arrive, and a request that is tried again has another fate. A call above a limit is told
when to come again, truthfully. Of requests only hashes are kept, and a bounded number.
"""

import math
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, fields
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from assay.errors import UsageError
from assay.types import Usage

_MAX_SECONDS: Final = 3600.0


class ServedFault(StrEnum):
    """How a call goes wrong."""

    ERROR = "error"
    """It is answered 500, 502 or 503."""
    BUSY = "busy"
    """It is answered 429, whatever the limits say."""
    CUT = "cut"
    """The connection is lost, before the answer or in the middle of it."""
    MALFORMED = "malformed"
    """It is answered 200, and what comes is no completion."""
    LATE = "late"
    """The answer is right, and comes late."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How often what goes wrong; by default nothing does."""

    latency: float = 0.0
    """Seconds every answer takes."""
    jitter: float = 0.0
    """An answer takes up to so many seconds more."""
    error_rate: float = 0.0
    busy_rate: float = 0.0
    cut_rate: float = 0.0
    malformed_rate: float = 0.0
    late_rate: float = 0.0
    late_seconds: float = 30.0
    """How much more a late answer takes."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("latency", "jitter", "late_seconds"):
            if not 0 <= getattr(self, name) <= _MAX_SECONDS:
                raise UsageError(
                    f"{name} {getattr(self, name)!r} is not allowed; "
                    f"give seconds from 0 to {_MAX_SECONDS:g}"
                )
        for name, rate in self._rates().items():
            if not 0 <= rate <= 1:
                raise UsageError(f"{name} {rate!r} is not allowed; give a share from 0 to 1")
        total = math.fsum(self._rates().values())
        if total > 1 + 1e-9:
            raise UsageError(
                f"the rates of faults add up to {total:g}; a call has at most one fault, "
                "so let them add up to at most 1"
            )

    def _rates(self) -> dict[str, float]:
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name.endswith("_rate")
        }

    @property
    def shares(self) -> tuple[tuple[ServedFault, float], ...]:
        """The rate of each fault."""
        return tuple((fault, float(getattr(self, f"{fault}_rate"))) for fault in ServedFault)


class Fate(NamedTuple):
    """What happens to a call."""

    seconds: float
    """How long its answer takes."""
    fault: ServedFault | None = None
    draw: int = 0
    """A random number, for which of its kinds a fault has."""


def fate_of(faults: Faults, request: bytes, attempt: int) -> Fate:
    """What happens to the `attempt`-th call, counted from 0, whose body has this hash."""
    stream = blake2b(
        b"%d %d " % (faults.seed, attempt) + request, digest_size=24, person=b"assay.faults"
    ).digest()
    which, more = (int.from_bytes(stream[i : i + 8], "big") / 2**64 for i in (0, 8))
    seconds = faults.latency + faults.jitter * more
    fault = _fault(faults, which)
    if fault is ServedFault.LATE:
        seconds += faults.late_seconds
    return Fate(seconds, fault, int.from_bytes(stream[16:], "big"))


def _fault(faults: Faults, which: float) -> ServedFault | None:
    for fault, rate in faults.shares:
        which -= rate
        if which < 0:
            return fault
    return None


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


REMEMBERED: Final = 500_000
"""Of so many different requests it is known how often they came; the oldest go first."""


class Outcome(StrEnum):
    """How a call ended."""

    ANSWERED = "answered"
    """A right answer, in time."""
    LATE = "late"
    """A right answer that was late on purpose."""
    REFUSED = "refused"
    """The client is to blame: a bad body or an unknown model."""
    RATE_LIMITED = "rate_limited"
    """More calls a minute than allowed."""
    TOO_MANY = "too_many"
    """More calls at once than allowed."""
    BUSY = "busy"
    """Answered 429 on purpose."""
    ERROR = "error"
    """Answered 5xx on purpose."""
    CUT = "cut"
    """The connection was lost on purpose."""
    MALFORMED = "malformed"
    """Answered with nonsense on purpose."""
    ENDING = "ending"
    """The server was about to end."""
    BUG = "bug"
    """The model raised."""


_RIGHT: Final = (Outcome.ANSWERED, Outcome.LATE)


@dataclass(slots=True)
class _Seen:
    admitted: int = 0
    answered: int = 0


class Stats:
    """Counts since the start, or since they were last reset."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Count from nothing; what happened to requests before is forgotten too."""
        self._since = time.monotonic()
        self._cpu = time.process_time()
        self._outcomes: Counter[Outcome] = Counter()
        self._models: Counter[str] = Counter()
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._usage = Usage()
        self._repeats = self._answered_again = self._bytes = 0
        self.max_in_flight = self.in_flight

    def admit(self, model: str, request: bytes, size: int) -> int:
        """Count a call that is let in; returns how often its request was let in before."""
        self._models[model] += 1
        self._bytes += size
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        seen = self._seen.get(request)
        if seen is None:
            seen = self._seen[request] = _Seen()
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        else:
            self._repeats += 1
        seen.admitted += 1
        return seen.admitted - 1

    def end(self, request: bytes, outcome: Outcome, usage: Usage) -> None:
        """Count how a call ended that was let in."""
        self.in_flight -= 1
        self._outcomes[outcome] += 1
        if outcome not in _RIGHT:
            return
        self._usage += usage
        seen = self._seen.get(request)
        if seen is not None:
            self._answered_again += seen.answered > 0
            seen.answered += 1

    def turn_away(self, outcome: Outcome) -> None:
        """Count a call that was not let in."""
        self._outcomes[outcome] += 1

    def told(self) -> dict[str, Any]:
        """All counts, for a program to read."""
        outcomes = dict(self._outcomes)
        return {
            "calls": sum(outcomes.values()) + self.in_flight,
            "outcomes": {str(name): outcomes.get(name, 0) for name in Outcome},
            "models": dict(self._models),
            "unique": len(self._seen),
            "repeats": self._repeats,
            "answered_again": self._answered_again,
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "prompt_tokens": self._usage.prompt,
            "completion_tokens": self._usage.completion,
            "cached_tokens": self._usage.cached,
            "reasoning_tokens": self._usage.reasoning,
            "request_bytes": self._bytes,
            "seconds": time.monotonic() - self._since,
            "cpu_seconds": time.process_time() - self._cpu,
        }
