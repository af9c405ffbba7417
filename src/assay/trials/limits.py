"""How many trials may be open at once, and how often and when one is tried again."""

import math
from dataclasses import dataclass

from assay._util.backoff import backoff
from assay._util.canonical import derived_id
from assay.errors import UsageError

__all__ = ["Limits", "Retries"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much goes on at once."""

    max_open: int = 1000
    """Trials open at once, over all groups; the groups that are open share them evenly."""
    max_groups: int = 1
    """Groups open at once; 1 is one after the other."""

    def __post_init__(self) -> None:
        _at_least("max_open", self.max_open, 1)
        _at_least("max_groups", self.max_groups, 1)


@dataclass(frozen=True, slots=True)
class Retries:
    """How a trial is tried again after an infrastructure error; other ends are final.

    The wait doubles from attempt to attempt. A random part of up to half of it is left out,
    so that trials that failed together do not come back together; it follows from the seed,
    the trial and the attempt alone.
    """

    attempts: int = 5
    """In all, the first one included; 1 is no retry."""
    first_wait: float = 1.0
    """Seconds before the second attempt."""
    longest_wait: float = 60.0
    """Seconds that no wait exceeds."""
    seed: int = 0

    def __post_init__(self) -> None:
        _at_least("attempts", self.attempts, 1)
        _at_least("first_wait", self.first_wait, 0)
        _at_least("longest_wait", self.longest_wait, self.first_wait)

    def wait(self, trial_id: str, attempt: int) -> float:
        """Seconds between this attempt of a trial and the next one."""
        share = int(derived_id(self.seed, trial_id, attempt), 16) / 16**20
        return backoff(attempt - 1, self.first_wait, self.longest_wait) * (1 - share / 2)


def _at_least(name: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        raise UsageError(f"{name} is {value!r}; it must be a number of at least {least:g}")
