"""Options of a comparison."""

from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option
from assay.errors import UsageError

SUCCESS_ACHIEVEMENTS = 3
"""Default minimum number of achievements of a successful episode."""


def _read_seeds(seeds: str | tuple[int, int]) -> tuple[int, int]:
    if not isinstance(seeds, str):
        return seeds
    first, _, last = seeds.partition("-")
    last = last or first
    if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
        raise UsageError(
            f"--seeds {seeds!r} is not allowed; give first and last, such as 54-93"
        )
    return int(first), int(last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Options for comparing subjects."""

    success_achievements: float = SUCCESS_ACHIEVEMENTS
    """Minimum number of achievements of a successful episode."""
    min_effect: float | None = None
    """Smallest difference in the primary metric that matters."""
    level: Annotated[float | None, Option(without="0.95")] = None
    """Confidence level of the intervals."""
    seed: int = 0
    """Seed for resampling."""
    tasks: Annotated[str | None, Option(without="fixed below 10 tasks, else sample")] = None
    """With several tasks, whether the verdict is about these tasks (fixed) or about all similar
    tasks (sample). [choices: fixed, sample]"""
    seeds: Annotated[
        tuple[int, int] | None, Option(given=str | tuple[int, int], read=_read_seeds)
    ] = None
    """Compare only worlds with these seeds, such as 54-93."""
    allow_different: Annotated[tuple[str, ...], Option(repeated=True)] = ()
    """Give a verdict even if this setting of the task differs. May be repeated."""
    lower_is_better: Annotated[tuple[str, ...], Option(repeated=True)] = ()
    """User-defined metric where lower values are better. May be repeated."""
    higher_is_better: Annotated[tuple[str, ...], Option(repeated=True)] = ()
    """User-defined metric where higher values are better. May be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """Options of a comparison that are available only in Python."""

    method: str = "auto"
    """Method for intervals of differences: auto, t, studentised, bca or percentile."""
    correction: str = "holm"
    """Correction of p-values for several candidates: holm or bh."""
