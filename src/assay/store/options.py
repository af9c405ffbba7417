"""Options that choose sessions of a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option
from assay.errors import UsageError


def _read_seeds(given: str | Sequence[int]) -> tuple[int, ...]:
    """Seeds from `42,43` or `42-61`, or both."""
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
    if not seeds or len(seeds) > 1_000_000:
        raise UsageError(f"--seeds {given!r} names no seeds, or too many")
    return tuple(seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilters:
    """Which sessions are meant; None asks for nothing."""

    run: str | None = None
    """Only episodes of this run: its id, the start of it, or 'latest'."""
    experiment: str | None = None
    """Only episodes of this experiment: its id, its name, or the start of one."""
    model: str | None = None
    """Only episodes that this model played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldFilters(SessionFilters):
    """Which sessions are meant, by their worlds, too."""

    difficulty: str | None = None
    """Only worlds of this difficulty. [choices: classic, easy, medium, hard]"""
    seeds: Annotated[
        tuple[int, ...] | None, Option(given=str | Sequence[int], read=_read_seeds)
    ] = None
    """Only worlds with these seeds, such as 42,43 or 42-61."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGroups(WorldFilters):
    """Which sessions are meant, and which of them are counted together."""

    by: str = "model"
    """Whose episodes belong together. [choices: model, experiment]"""
