"""Subjects of a comparison: models or agents, with the outcomes of their trials.

Comparisons use only these values, whether they come from the database, a results file or a
handwritten file. Nothing here opens a file.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.crafter.rules import DEATH_CAUSES
from assay.judge.outcomes import Outcome, outcome_of
from assay.types import StopReason, TrialState

SUBJECT_METRICS = "subject_metrics"
"""Key in the facts of a subject for its values as a whole, by metric."""
_UNKNOWN_CAUSE = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """One trial of a subject, with its outcomes."""

    trial_id: str
    pair: str | None
    """Trials of two subjects with the same text are a pair; None if a trial has no partner."""
    task: str | None = None
    """Name of the task; for episodes `crafter/<difficulty>`, in files the instance."""
    seed: int | None = None
    replicate: int = 0
    state: TrialState = TrialState.RESULT
    values: Mapping[str, float] = field(default_factory=dict)
    """Values by metric; empty unless the trial completed."""
    ended: str | None = None
    """Reason for its end, such as `died: zombie`; None if unknown."""
    unlock_steps: tuple[int, ...] = ()
    """The steps at which it unlocked achievements, in order; empty if unknown."""


def endings(trials: Iterable[TrialOutcome]) -> dict[str, int]:
    """Count the reasons for which completed trials ended, the most frequent first."""
    known = Counter(trial.ended for trial in trials if trial.state is TrialState.RESULT)
    return {reason: count for reason, count in known.most_common() if reason is not None}


def death_cause(ended: str) -> str | None:
    """Return the cause of death, given the reason for the end of an episode.

    None if the player did not die; `unknown` if the cause is not recorded.
    """
    reason, _, cause = ended.partition(":")
    if reason.strip() != StopReason.DIED:
        return None
    return cause.strip() or _UNKNOWN_CAUSE


def ordered_causes(causes: Iterable[str]) -> list[str]:
    """Return each cause of death once, in the order used in all reports."""
    seen = set(causes)
    known = [cause for cause in DEATH_CAUSES if cause in seen]
    return [*known, *sorted(seen.difference(DEATH_CAUSES))]


class Earned(Mapping[str, float]):
    """The values of one trial: one row of a large table, where NaN means no value.

    Dictionaries would take several times the memory of the table.
    """

    __slots__ = ("places", "row_M")

    def __init__(self, places: Mapping[str, int], row_M: NDArray[np.float64]) -> None:
        self.places = places
        self.row_M = row_M

    def __getitem__(self, name: str) -> float:
        value = self.row_M.item(self.places[name])
        if value != value:
            raise KeyError(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value or the default; `Mapping.get` is slower, as it raises and catches."""
        place = self.places.get(name)
        if place is None:
            return default
        value = self.row_M.item(place)
        return default if value != value else value

    def __iter__(self) -> Iterator[str]:
        values = self.row_M.tolist()
        if not any(map(math.isnan, values)):
            return iter(self.places)
        return (name for name, place in self.places.items() if not math.isnan(values[place]))

    def __len__(self) -> int:
        return len(self.row_M) - int(np.isnan(self.row_M).sum())

    def __repr__(self) -> str:
        return repr(dict(self))


class Trials(tuple[TrialOutcome, ...]):
    """Trials with cached columns of their common properties, because there may be very many."""

    @classmethod
    def of(cls, trials: Sequence[TrialOutcome]) -> "Trials":
        """Return the trials unchanged if they have columns already."""
        return trials if isinstance(trials, Trials) else cls(trials)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of all trials."""
        return frozenset([trial.trial_id for trial in self])

    @cached_property
    def tasks(self) -> list[str | None]:
        """The task of each trial."""
        return [trial.task for trial in self]

    @cached_property
    def states(self) -> Counter[TrialState]:
        """Number of trials by final state."""
        return Counter([trial.state for trial in self])

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics that have a finite value, in order of first occurrence."""
        table = self._table
        if table is not None:
            places, table_T_M = table
            has_T_M = np.isfinite(table_T_M) & self._completed_T[:, None]
            first_M = has_T_M.argmax(axis=0).tolist()
            names = [name for name, place in places.items() if has_T_M[:, place].any()]
            return sorted(names, key=lambda name: first_M[places[name]])
        found: dict[str, None] = {}
        for trial in self:
            if trial.state is TrialState.RESULT:
                for name in trial.values:
                    if name not in found and math.isfinite(trial.values[name]):
                        found[name] = None
        return list(found)

    def column(self, metric: str) -> NDArray[np.float64]:
        """Return the metric of each trial, shape (T,); NaN without a result or a value."""
        column_T = self._columns.get(metric)
        if column_T is None:
            column_T = self._columns[metric] = self._column(metric)
            column_T.flags.writeable = False
        return column_T

    def _column(self, metric: str) -> NDArray[np.float64]:
        table = self._table
        if table is None:
            values = [trial.values.get(metric, math.nan) for trial in self]
            column_T = np.array(values, np.float64)
        elif metric in table[0]:
            column_T = table[1][:, table[0][metric]].copy()
        else:
            column_T = np.full(len(self), np.nan)
        column_T[~self._completed_T | ~np.isfinite(column_T)] = np.nan
        return column_T

    def worlds(self, *, several: bool) -> list[str | None]:
        """Return the key of each trial's world; None if no other trial can share it.

        With a single task the key is the seed, because a file may not name its task. With
        several tasks it is the task and the seed. A trial that has neither a seed nor a pair is
        a replicate of the task's only world.
        """
        if several not in self._worlds:
            self._worlds[several] = [_world(trial, several) for trial in self]
        return self._worlds[several]

    @cached_property
    def _columns(self) -> dict[str, NDArray[np.float64]]:
        return {}

    @cached_property
    def _worlds(self) -> dict[bool, list[str | None]]:
        return {}

    @cached_property
    def _completed_T(self) -> NDArray[np.bool_]:
        return np.array([trial.state is TrialState.RESULT for trial in self], bool)

    @cached_property
    def _table(self) -> tuple[Mapping[str, int], NDArray[np.float64]] | None:
        """The table whose rows the trials are; None if they have no common table."""
        rows = [trial.values for trial in self]
        first = rows[0] if rows else None
        if not isinstance(first, Earned):
            return None
        of_table = [
            row.row_M for row in rows if isinstance(row, Earned) and row.places is first.places
        ]
        return (first.places, np.array(of_table)) if len(of_table) == len(rows) else None


def _world(trial: TrialOutcome, several: bool) -> str | None:
    if not several:
        return trial.pair if trial.seed is None else str(trial.seed)
    if trial.task is None or (trial.seed is None and trial.pair is not None):
        return trial.pair
    return f"{trial.task} {trial.seed or 0}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """An interim analysis of a candidate and the baseline during their run."""

    experiment_id: str
    """The id of the candidate."""
    baseline_id: str
    metric: str
    look: int
    """Counted from 1."""
    pairs: int
    estimate: float
    """Mean of candidate minus baseline; NaN without pairs."""
    low: float
    """Lower bound of the interval that is valid at every look; NaN if not yet available."""
    high: float
    decision: str | None
    """None if the run continued."""
    design: Mapping[str, Any]
    """The sequential design, as read by `assay.stats.sequential.SequentialDesign.of`."""
    looked_at: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An entry with its trials: an experiment in the database, or an entry of a file."""

    id: str
    """The id of the experiment, or the name; unique in a comparison."""
    name: str
    """Readable and unique; untrusted text."""
    model: str | None = None
    """Its name in its run: a model, or the label of an arm."""
    agent: str | None = None
    """The user-defined agent, if any."""
    asks: str | None = None
    """The model that is called, if it has another name than the arm."""
    series: str | None = None
    version: str | None = None
    run_id: str | None = None
    created_at: datetime | None = None
    commit: str | None = None
    project: str | None = None
    """The commit of the user's repository, with `+` if it had uncommitted changes."""
    note: str | None = None
    baseline: bool = False
    """Whether it is a reference entry, played only for comparison."""
    source: str = "store"
    """`store`, or the file it was read from."""
    database: str | None = None
    """The database file, if it is not the default one."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of its file, or the configuration it was played with."""
    remarks: Mapping[str, str | int | float] = field(default_factory=dict)
    """Author-defined keys of an experiments file; untrusted text."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Declared direction, range and unit of user-defined metrics, by name."""
    trials: tuple[TrialOutcome, ...] = ()
    """Converted to `Trials`."""
    looks: tuple[Look, ...] = ()
    """The interim analyses, if its run used `--until-decided`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", Trials.of(self.trials))

    def outcome(self, metric: str) -> Outcome:
        """Return the properties of a metric."""
        return outcome_of(metric, self.outcomes)

    @property
    def asked_model(self) -> str | None:
        """The model that is called; None if there is none, or if it is unknown."""
        return self.asks or (self.model if self.agent is None else None)
