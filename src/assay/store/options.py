"""Options that select sessions in a database."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option
from assay.errors import UsageError


def _read_seeds(given: str | Sequence[int]) -> tuple[int, ...]:
    """Parse seeds such as `42,43`, `42-61` or `42,50-59`."""
    if not isinstance(given, str):
        return tuple(given)
    seeds: list[int] = []
    for part in given.split(","):
        first, _, last = part.strip().partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise UsageError(
                f"--seeds {given!r} is not allowed; give whole numbers such as 42,43 or 42-61"
            )
        seeds += range(int(first), int(last or first) + 1)
    if not 0 < len(seeds) <= 1_000_000:
        raise UsageError(f"--seeds {given!r} selects {len(seeds):,} seeds; give 1 to 1,000,000")
    return tuple(seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilters:
    """Filters for sessions; None means no filter."""

    run: str | None = None
    """Only episodes in this run: an id, the start of an id, or 'latest'."""
    experiment: str | None = None
    """Only episodes in this experiment: an id, a name, or the start of either."""
    model: str | None = None
    """Only episodes with this model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldFilters(SessionFilters):
    """Filters for sessions, including their worlds."""

    difficulty: str | None = None
    """Only worlds with this difficulty. [choices: classic, easy, medium, hard]"""
    seeds: Annotated[
        tuple[int, ...] | None, Option(given=str | Sequence[int], read=_read_seeds)
    ] = None
    """Only worlds with these seeds, such as 42,43 or 42-61."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGroups(WorldFilters):
    """Filters for sessions, and how the sessions are grouped."""

    by: str = "model"
    """How episodes are grouped. [choices: model, experiment]"""
