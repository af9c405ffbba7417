"""Training runs and their curves, as values.

A curve is finite at every step it has, its steps grow, and what was taken out on the way is
counted. Where a run came from, a store or a file, makes no difference to who reads it. Nothing
here opens a file, or loads DuckDB.
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
    """How a training run stands."""

    FINISHED = "finished"
    """It came to the end it was meant to have."""
    RUNNING = "running"
    """It has not ended: its curves are not whole."""
    CRASHED = "crashed"
    """It ended before its time: failed, killed or lost."""

    @classmethod
    def named(cls, word: str) -> "TrainingStatus":
        """The status that a word of ours or of another tracker means."""
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
    """The values of one metric of one run, by step."""

    steps_P: NDArray[np.int64]
    """Steps, growing; P points."""
    values_P: NDArray[np.float64]
    """The finite value at each step."""
    dropped: int = 0
    """Points left out because they were NaN or infinite."""
    repeated: int = 0
    """Points left out because a later one has the same step."""

    def __len__(self) -> int:
        return len(self.steps_P)

    def same_points(self, other: "Curve") -> bool:
        """Whether both have the same values at the same steps."""
        return np.array_equal(self.steps_P, other.steps_P) and np.array_equal(
            self.values_P, other.values_P
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingRun:
    """One training run: a subject with a seed, and its curves."""

    id: str
    """No other run of a store has it; untrusted text."""
    series: str | None = None
    subject: str | None = None
    task: str | None = None
    seed: int | None = None
    """None if it is not known."""
    status: TrainingStatus = TrainingStatus.FINISHED
    configuration: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions and commit, as far as they are known."""
    created_at: datetime | None = None
    """When it began, or was imported, in UTC."""
    finished_at: datetime | None = None
    source: str = "assay"
    """assay, or the file it was read from."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """By metric."""
    notes: tuple[str, ...] = ()
    """What its reader has to tell, such as a file that breaks off; a store does not keep it."""

    @property
    def commit(self) -> str | None:
        """The commit of the code that was trained with, if its provenance says so."""
        found = self.provenance.get("commit")
        return None if found is None else str(found)

    def same_content(self, other: "TrainingRun") -> bool:
        """Whether both tell the same; when and where they were read from does not count."""
        return not self.differences(other)

    def differences(self, other: "TrainingRun") -> list[str]:
        """The facts and metrics in which both differ; a metric without points is none."""
        found = [n for n in _CONTENT if getattr(self, n) != getattr(other, n)]
        mine, theirs = (
            {metric: curve for metric, curve in run.curves.items() if len(curve)}
            for run in (self, other)
        )
        for metric in dict.fromkeys((*mine, *theirs)):
            one, two = mine.get(metric), theirs.get(metric)
            if one is None or two is None or not one.same_points(two):
                found.append(f"points of {metric}")
        return found


_CONTENT = ("id", "series", "subject", "task", "seed", "status", "configuration", "provenance")


def make_curve(steps: Sequence[int], values: Sequence[float]) -> Curve:
    """A curve from points in any order.

    Values that are NaN or infinite are left out and counted. Of several points with the same
    step the last counts, as after a resume from a checkpoint; the others are counted too.
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
