"""What a sweep does and spends, settled before its first trial."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from assay.errors import UsageError
from assay.sweeps.space import SweepSpace

__all__ = ["DEFAULT_COMMAND", "Pruner", "Sampler", "SweepPlan"]

DEFAULT_COMMAND = (
    "assay train --seed {seed} --total-steps {total_steps} --folder {folder}"
    " --database {folder}.duckdb {options}"
)


class Sampler(StrEnum):
    """How values are chosen."""

    TPE = "tpe"
    """By what did well so far: tree-structured Parzen estimators."""
    RANDOM = "random"
    GRID = "grid"
    """Every combination, in order."""


class Pruner(StrEnum):
    """When a trial ends early."""

    MEDIAN = "median"
    """Below the median of earlier trials at the same step, after a quarter of the steps."""
    HALVING = "halving"
    """Not among the best quarter, at steps four times as far from each other each time."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """All that decides what a sweep finds."""

    space: SweepSpace
    sampler: Sampler = Sampler.TPE
    pruner: Pruner = Pruner.MEDIAN
    trials: int = 20
    total_steps: int = 100_000
    """Of each run."""
    metric: str = "overview/reward"
    minimize: bool = False
    seed: int = 1
    """Of the training of every trial, and of the search."""
    fresh_seeds: int = 5
    """Runs of what wins, each with a seed that the search never saw."""
    command: str = DEFAULT_COMMAND
    """What trains, unless a callable does; see `trainers`."""

    def __post_init__(self) -> None:
        bounds = {"trials": 2, "total_steps": 1, "seed": 0, "fresh_seeds": 2}
        for name, least in bounds.items():
            if getattr(self, name) < least:
                option = name.replace("_", "-")
                raise UsageError(
                    f"--{option} {getattr(self, name)} is too few; give {least} or more"
                )

    @property
    def planned_trials(self) -> int:
        """How many trials there are: a grid may have fewer combinations."""
        if self.sampler is Sampler.GRID:
            return min(self.trials, len(self.space.grid()))
        return self.trials

    @property
    def budget(self) -> int:
        """The most training steps of the search; pruning saves some."""
        return self.planned_trials * self.total_steps

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the winner's runs."""
        return tuple(range(self.seed + 1, self.seed + 1 + self.fresh_seeds))

    def content(self) -> dict[str, Any]:
        """What it means, as plain values."""
        return {**asdict(self), "space": self.space.content()}
