"""Fault injection, limits and statistics of the model server.

The fault of a call is computed from the seed, the bytes of the request and the number of times
the same bytes were admitted before. It depends neither on time nor on the order of calls, and a
retried request gets a new draw.

`Gate` limits calls per minute and open calls; a rejected call gets a correct Retry-After.
`Stats` counts requests and outcomes; it keeps only hashes of requests, up to a fixed number.
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
    """Kinds of injected faults."""

    ERROR = "error"
    """Status 500, 502 or 503."""
    BUSY = "busy"
    """Status 429, independent of the limits."""
    CUT = "cut"
    """The connection is dropped before or during the response."""
    MALFORMED = "malformed"
    """Status 200 with a body that is not a completion."""
    LATE = "late"
    """A correct response that is late."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Rates of injected faults and delays; all are 0 by default."""

    latency: float = 0.0
    """Seconds every response takes."""
    jitter: float = 0.0
    """Maximum of the additional random seconds of a response."""
    error_rate: float = 0.0
    busy_rate: float = 0.0
    cut_rate: float = 0.0
    malformed_rate: float = 0.0
    late_rate: float = 0.0
    late_seconds: float = 30.0
    """Additional seconds of a late response."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("latency", "jitter", "late_seconds"):
            if not 0 <= getattr(self, name) <= _MAX_SECONDS:
                raise UsageError(
                    f"invalid {name} {getattr(self, name)!r}; "
                    f"give seconds from 0 to {_MAX_SECONDS:g}"
                )
        for name, rate in self._get_rates().items():
            if not 0 <= rate <= 1:
                raise UsageError(f"invalid {name} {rate!r}; give a share from 0 to 1")
        total = math.fsum(self._get_rates().values())
        if total > 1 + 1e-9:
            raise UsageError(
                f"the fault rates add up to {total:g}, but must not exceed 1, because a call "
                "has at most one fault"
            )

    def _get_rates(self) -> dict[str, float]:
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name.endswith("_rate")
        }

    @property
    def shares(self) -> tuple[tuple[ServedFault, float], ...]:
        """Rate of each fault."""
        return tuple((fault, float(getattr(self, f"{fault}_rate"))) for fault in ServedFault)


class Fate(NamedTuple):
    """Delay and fault of a call."""

    seconds: float
    """Time its response takes."""
    fault: ServedFault | None = None
    draw: int = 0
    """Random number that selects the variant of a fault."""


def compute_fate(faults: Faults, request: bytes, attempt: int) -> Fate:
    """Compute the fate of the `attempt`-th call, from 0, with this hash of its body."""
    stream = blake2b(
        b"%d %d " % (faults.seed, attempt) + request, digest_size=24, person=b"assay.faults"
    ).digest()
    which, more = (int.from_bytes(stream[i : i + 8], "big") / 2**64 for i in (0, 8))
    seconds = faults.latency + faults.jitter * more
    fault = _choose_fault(faults, which)
    if fault is ServedFault.LATE:
        seconds += faults.late_seconds
    return Fate(seconds, fault, int.from_bytes(stream[16:], "big"))


def _choose_fault(faults: Faults, which: float) -> ServedFault | None:
    for fault, rate in faults.shares:
        which -= rate
        if which < 0:
            return fault
    return None


_MAX: Final = 10_000_000
_TOLERANCE: Final = 1e-9
"""Tolerance in seconds for inexact sums of times."""


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """Limits of a server; None for no limit."""

    per_minute: int | None = None
    """Calls per minute, as a token bucket of size `burst` that refills steadily."""
    burst: int | None = None
    """Calls that may arrive together after a pause; None: those of one second, at least one."""
    at_once: int | None = None
    """Calls that may be open; further ones are rejected, not queued."""

    def __post_init__(self) -> None:
        for name in ("per_minute", "burst", "at_once"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _MAX:
                raise UsageError(f"invalid {name} {value!r}; give 1 to {_MAX}, or none")
        if self.burst is not None and self.per_minute is None:
            raise UsageError("burst needs a rate limit; give the calls per minute too")

    @property
    def bucket(self) -> int:
        """Number of calls that may arrive together."""
        return self.burst or max(1, (self.per_minute or 0) // 60)


class Rejection(NamedTuple):
    """Reason why a call was rejected."""

    code: str
    message: str
    seconds: float
    """Time after which the call would be admitted, if no other came first."""


class Gate:
    """Admission of calls. Times are seconds of a monotonic clock."""

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self._spacing = 60.0 / limits.per_minute if limits.per_minute else 0.0
        self._slack = self._spacing * (limits.bucket - 1)
        self._next = -math.inf
        """Time at which the bucket is full again."""
        self._due: dict[int, float] = {}
        self._tickets = 0

    @property
    def open(self) -> int:
        """Number of open calls."""
        return len(self._due)

    def refusal(self, now: float) -> Rejection | None:
        """Return why a call cannot be admitted; None if it can."""
        limits = self._limits
        if limits.at_once is not None and len(self._due) >= limits.at_once:
            return Rejection(
                "concurrency_limit_exceeded",
                f"{limits.at_once} calls are open, which is the limit",
                max(0.0, min(self._due.values()) - now),
            )
        early = self._next - self._slack - now
        if self._spacing and early > _TOLERANCE:
            return Rejection(
                "rate_limit_exceeded",
                f"the limit is {limits.per_minute} calls per minute",
                early,
            )
        return None

    def enter(self, now: float) -> int:
        """Admit a call that `refusal` allows, and return its ticket."""
        self._next = max(self._next, now) + self._spacing
        self._tickets += 1
        self._due[self._tickets] = now
        return self._tickets

    def expect(self, ticket: int, due: float) -> None:
        """Set the time at which a call will end."""
        self._due[ticket] = due

    def leave(self, ticket: int) -> None:
        """Record the end of a call."""
        del self._due[ticket]

    def rate_headers(self, now: float) -> dict[str, str]:
        """Return the rate limit headers of a response."""
        if not self._spacing:
            return {}
        used = max(0.0, self._next - now)
        left = int(max(0.0, self._slack + self._spacing - used) / self._spacing + 1e-9)
        return {
            # Limit of the bucket, not of the minute, like the other two headers.
            "x-ratelimit-limit-requests": str(round(self._slack / self._spacing) + 1),
            "x-ratelimit-remaining-requests": str(left),
            "x-ratelimit-reset-requests": f"{math.ceil(used * 1000)}ms",
        }


REMEMBERED: Final = 500_000
"""Number of different requests whose repetitions are counted; the oldest are dropped."""


class CallOutcome(StrEnum):
    """Outcome of a call."""

    ANSWERED = "answered"
    """A correct response in time."""
    LATE = "late"
    """A correct response with an injected delay."""
    REFUSED = "refused"
    """A client error: an invalid body or an unknown model."""
    RATE_LIMITED = "rate_limited"
    """The limit of calls per minute was exceeded."""
    TOO_MANY = "too_many"
    """The limit of open calls was exceeded."""
    BUSY = "busy"
    """An injected 429."""
    ERROR = "error"
    """An injected 5xx."""
    CUT = "cut"
    """An injected loss of the connection."""
    MALFORMED = "malformed"
    """An injected malformed body."""
    ENDING = "ending"
    """The server was shutting down."""
    BUG = "bug"
    """The model raised an exception."""


_SUCCESSES: Final = (CallOutcome.ANSWERED, CallOutcome.LATE)


@dataclass(slots=True)
class _Seen:
    admitted: int = 0
    answered: int = 0


class Stats:
    """Counts since the start or the last reset."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Reset all counts, including those of repeated requests."""
        self._since = time.monotonic()
        self._cpu = time.process_time()
        self._outcomes: Counter[CallOutcome] = Counter()
        self._models: Counter[str] = Counter()
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._usage = Usage()
        self._repeats = self._answered_again = self._bytes = 0
        self.max_in_flight = self.in_flight

    def admit(self, model: str, request: bytes, size: int) -> int:
        """Count an admitted call; return how often its request was admitted before."""
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

    def end(self, request: bytes, outcome: CallOutcome, usage: Usage) -> None:
        """Count the outcome of an admitted call."""
        self.in_flight -= 1
        self._outcomes[outcome] += 1
        if outcome not in _SUCCESSES:
            return
        self._usage += usage
        seen = self._seen.get(request)
        if seen is not None:
            self._answered_again += seen.answered > 0
            seen.answered += 1

    def turn_away(self, outcome: CallOutcome) -> None:
        """Count a rejected call."""
        self._outcomes[outcome] += 1

    def counts(self) -> dict[str, Any]:
        """Return all counts, in the form of /stats."""
        outcomes = dict(self._outcomes)
        return {
            "calls": sum(outcomes.values()) + self.in_flight,
            "outcomes": {str(name): outcomes.get(name, 0) for name in CallOutcome},
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
