"""Options of a comparison."""

from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option
from assay.errors import UsageError

SUCCESS_ACHIEVEMENTS = 3
"""An episode with as many achievements is a success, unless another number is chosen."""


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
    """How subjects are compared."""

    success_achievements: float = SUCCESS_ACHIEVEMENTS
    """An episode with this many achievements is a success."""
    min_effect: float | None = None
    """The smallest difference in the first metric that matters to you."""
    level: Annotated[float | None, Option(without="0.95")] = None
    """The confidence level of the intervals."""
    seed: int = 0
    """The seed for resampling."""
    tasks: Annotated[str | None, Option(without="fixed below 10 tasks, else sample")] = None
    """With several tasks: is the verdict about these tasks (fixed), or about all tasks like
    them (sample)? [choices: fixed, sample]"""
    seeds: Annotated[
        tuple[int, int] | None, Option(given=str | tuple[int, int], read=_read_seeds)
    ] = None
    """Compare only the worlds with these seeds, such as 54-93."""
    allow_different: Annotated[tuple[str, ...], Option(repeated=True)] = ()
    """Give a verdict although this setting of the task differs. May be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """What Python alone can choose about a comparison."""

    method: str = "auto"
    """How intervals of differences are made: auto, t, studentised, bca or percentile."""
    correction: str = "holm"
    """How p values of several candidates are adjusted: holm or bh."""
    lower_is_better: tuple[str, ...] = ()
    """Metrics of which less is better, beside those that are known."""
