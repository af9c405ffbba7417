"""Training runs and their curves, in the same form from a database and from a file.

A curve has finite values and increasing steps; points that were dropped are counted. Nothing
here opens a file or loads DuckDB.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.text import unknown_name
from assay.errors import UsageError


class TrainingStatus(StrEnum):
    """Status of a training run."""

    FINISHED = "finished"
    """It ended as planned."""
    RUNNING = "running"
    """It has not ended, so its curves are incomplete."""
    CRASHED = "crashed"
    """It ended early: failed, killed or lost."""

    @classmethod
    def named(cls, word: str) -> "TrainingStatus":
        """Return the status for a word used by assay or another experiment tracker."""
        status = _WORDS.get(word.strip().lower())
        if status is None:
            raise UsageError(unknown_name("status", word, _WORDS))
        return status


_WORDS = {
    "finished": TrainingStatus.FINISHED,
    "completed": TrainingStatus.FINISHED,
    "success": TrainingStatus.FINISHED,
    "running": TrainingStatus.RUNNING,
    "scheduled": TrainingStatus.RUNNING,
    "crashed": TrainingStatus.CRASHED,
    "failed": TrainingStatus.CRASHED,
    "killed": TrainingStatus.CRASHED,
    "preempted": TrainingStatus.CRASHED,
}


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Values of one metric of one run, by step."""

    steps_P: NDArray[np.int64]
    """Steps, increasing; P points."""
    values_P: NDArray[np.float64]
    """Finite value at each step."""
    dropped: int = 0
    """Points dropped because they were NaN or infinite."""
    repeated: int = 0
    """Points dropped because a later one has the same step."""

    def __len__(self) -> int:
        return len(self.steps_P)

    def same_points(self, other: "Curve") -> bool:
        """Return whether both have the same values at the same steps."""
        return np.array_equal(self.steps_P, other.steps_P) and np.array_equal(
            self.values_P, other.values_P
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingRun:
    """One training run with one seed, and its curves."""

    id: str
    """Unique in a database; untrusted text."""
    series: str | None = None
    subject: str | None = None
    task: str | None = None
    seed: int | None = None
    """None if unknown."""
    status: TrainingStatus = TrainingStatus.FINISHED
    configuration: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions and commit, if known."""
    created_at: datetime | None = None
    """Start, or import, in UTC."""
    finished_at: datetime | None = None
    source: str = "assay"
    """assay, or the file it was read from."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """Curves by metric."""
    notes: tuple[str, ...] = ()
    """Remarks of its reader, such as a truncated file; not stored."""

    @property
    def commit(self) -> str | None:
        """Commit of the training code, if the provenance has it."""
        found = self.provenance.get("commit")
        return None if found is None else str(found)

    def same_content(self, other: "TrainingRun") -> bool:
        """Return whether both have the same content, ignoring times and source."""
        return not self.differences(other)

    def differences(self, other: "TrainingRun") -> list[str]:
        """Return the facts and metrics that differ, ignoring metrics without points."""
        found = [n for n in _CONTENT if getattr(self, n) != getattr(other, n)]
        mine, theirs = (
            {metric: curve for metric, curve in run.curves.items() if len(curve)}
            for run in (self, other)
        )
        for metric in dict.fromkeys((*mine, *theirs)):
            left, right = mine.get(metric), theirs.get(metric)
            if left is None or right is None or not left.same_points(right):
                found.append(f"points of {metric}")
        return found


_CONTENT = ("id", "series", "subject", "task", "seed", "status", "configuration", "provenance")


def make_curve(steps: Sequence[int], values: Sequence[float]) -> Curve:
    """Build a curve from points in any order.

    Values that are NaN or infinite are dropped and counted. Of several points with the same
    step, as after a resume from a checkpoint, the last is used; the others are counted too.
    """
    steps_P = np.asarray(steps, np.int64)
    values_P = np.asarray(values, np.float64)
    finite_P = np.isfinite(values_P)
    steps_P, values_P = steps_P[finite_P], values_P[finite_P]
    order_P = np.argsort(steps_P, kind="stable")
    steps_P, values_P = steps_P[order_P], values_P[order_P]
    last_P = np.append(np.diff(steps_P) > 0, True)[: len(steps_P)]
    return Curve(
        steps_P[last_P],
        values_P[last_P],
        dropped=int((~finite_P).sum()),
        repeated=int((~last_P).sum()),
    )
