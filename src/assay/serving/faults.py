"""Faults on request: what goes wrong with which call.

What happens to a call follows from the seed, from the bytes of the request and from how often
the same bytes were let in before. So it depends neither on time nor on the order in which
calls arrive, and a request that is tried again has another fate.
"""

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from assay.errors import UsageError

__all__ = ["Fate", "Faults", "ServedFault", "fate_of"]

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
