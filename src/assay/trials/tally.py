"""How many trials of a group ended in which way."""

from dataclasses import dataclass

from .verdict import GroupStop

__all__ = ["GroupCounts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """The trials of one group, counted.

    planned = skipped + started + not_started + unneeded, and
    started = results + failures + infrastructure + interrupted once the run is over.
    """

    planned: int
    skipped: int = 0
    """Done before this run."""
    started: int = 0
    not_started: int = 0
    """Because the run or the group was stopped."""
    unneeded: int = 0
    """Never admitted: what they would have told was known without them."""
    results: int = 0
    failures: int = 0
    infrastructure: int = 0
    """After all attempts."""
    interrupted: int = 0
    """Left without an end, to be resumed."""
    retries: int = 0
    """Times that a trial was sent to wait for another attempt."""
    stop: GroupStop | None = None
    """Why the group was stopped, if one of its trials found that it had to be."""
