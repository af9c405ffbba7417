"""What a server was asked, and what came of it.

Of requests only hashes are kept, and of those a bounded number.
"""

import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from assay.types import Usage

__all__ = ["REMEMBERED", "Outcome", "Stats"]

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
