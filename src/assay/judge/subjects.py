"""What is compared: subjects, each with the outcomes of its trials.

Comparisons see these values and nothing else, wherever they come from: the store, a results
file, or a file that somebody wrote by hand. Nothing here opens a file.
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
from assay.types import StopReason, TrialState

SUBJECT_METRICS = "subject_metrics"
"""The key in the facts of a subject for numbers that it earned as a whole, by metric."""
_UNKNOWN_CAUSE = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """One trial of a subject and what it earned."""

    trial_id: str
    pair: str | None
    """Trials of two subjects with the same text are a pair; None: it has no partner."""
    task: str | None = None
    """What was to be done; for episodes `crafter/<difficulty>`, in files the instance."""
    seed: int | None = None
    replicate: int = 0
    state: TrialState = TrialState.RESULT
    values: Mapping[str, float] = field(default_factory=dict)
    """Numbers by metric; empty unless it completed."""
    ended: str | None = None
    """What it ended by, such as `died: zombie`; None if that is not known."""
    unlock_steps: tuple[int, ...] = ()
    """The steps at which it unlocked achievements, in order; empty if that is not known."""


def endings(trials: Iterable[TrialOutcome]) -> dict[str, int]:
    """How often trials that completed ended by what, the most frequent first."""
    known = Counter(trial.ended for trial in trials if trial.state is TrialState.RESULT)
    return {reason: count for reason, count in known.most_common() if reason is not None}


def death_cause(ended: str) -> str | None:
    """What a player died of, given what the episode ended by.

    None: it did not die; `unknown`: nothing says what of.
    """
    reason, _, cause = ended.partition(":")
    if reason.strip() != StopReason.DIED:
        return None
    return cause.strip() or _UNKNOWN_CAUSE


def ordered_causes(causes: Iterable[str]) -> list[str]:
    """Each cause of death once, in the order in which all reports have them."""
    seen = set(causes)
    known = [cause for cause in DEATH_CAUSES if cause in seen]
    return [*known, *sorted(seen.difference(DEATH_CAUSES))]


class Earned(Mapping[str, float]):
    """The numbers of one trial: a row of a table of many, in which NaN stands for none.

    Dictionaries would take several times the memory of the table.
    """

    __slots__ = ("places", "row_M")

    def __init__(self, places: Mapping[str, int], row_M: NDArray[np.float64]) -> None:
        """Say in which column each metric is, and which row of the table it is."""
        self.places = places
        self.row_M = row_M

    def __getitem__(self, name: str) -> float:
        value = self.row_M.item(self.places[name])
        if value != value:
            raise KeyError(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """As of any mapping; what `Mapping` has for this raises and catches."""
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
    """Trials, and what they have in common as columns, each made once: there may be many."""

    @classmethod
    def of(cls, trials: Sequence[TrialOutcome]) -> "Trials":
        """Trials as they are, if they have columns already."""
        return trials if isinstance(trials, Trials) else cls(trials)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of all."""
        return frozenset([trial.trial_id for trial in self])

    @cached_property
    def tasks(self) -> list[str | None]:
        """The task of each."""
        return [trial.task for trial in self]

    @cached_property
    def states(self) -> Counter[TrialState]:
        """How many ended in each way."""
        return Counter([trial.state for trial in self])

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics they have a finite value of, in the order they first come."""
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
        """The metric of each, shape (T,); NaN of one without a result or a value."""
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
        """What the world of each is known by; None: nobody else can have played it.

        In a single task that is the seed, because a file may not say what the task was. Among
        several it is the task and the seed; a trial that has no seed, nor a partner by its
        place, is a replicate of the task's only world.
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
        """The table whose rows they all have; None where there is none."""
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
    """One look at a candidate beside the baseline while its run went on."""

    experiment_id: str
    """The candidate."""
    baseline_id: str
    metric: str
    look: int
    """Counted from 1."""
    pairs: int
    estimate: float
    """Mean of candidate minus baseline; NaN if there was no pair."""
    low: float
    """Of the interval that holds at every look; NaN where it could not say yet."""
    high: float
    decision: str | None
    """None: it went on."""
    design: Mapping[str, Any]
    """How the pairs were looked at; `assay.stats.sequential.SequentialDesign.of` reads it."""
    looked_at: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Somebody who took trials: an experiment of the store, or an entry of a file."""

    id: str
    """The id of the experiment, or the name; no other subject of a comparison has it."""
    name: str
    """Readable and unique; untrusted text."""
    model: str | None = None
    """What it is called in its run: a model, or the label of an arm."""
    agent: str | None = None
    """The agent of the user's own that plays, if one does."""
    asks: str | None = None
    """The model that is asked, if it has another name than the arm."""
    series: str | None = None
    version: str | None = None
    run_id: str | None = None
    created_at: datetime | None = None
    commit: str | None = None
    project: str | None = None
    """The commit of the user's own repository, with `+` if it had other changes."""
    note: str | None = None
    baseline: bool = False
    """Played only to compare with."""
    source: str = "store"
    """The store, or the file it was read from."""
    database: str | None = None
    """The file of its store, where that is not the one that commands use by themselves."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else its file says of it, or the configuration it was played with."""
    remarks: Mapping[str, str | int | float] = field(default_factory=dict)
    """The keys of an experiments file that are its author's own; untrusted text."""
    lower_is_better: frozenset[str] = frozenset()
    """Metrics of somebody's own of which less is better."""
    trials: tuple[TrialOutcome, ...] = ()
    """They become `Trials`."""
    looks: tuple[Look, ...] = ()
    """Where its run went on until it was decided."""

    def __post_init__(self) -> None:
        """Give the trials their columns."""
        object.__setattr__(self, "trials", Trials.of(self.trials))

    @property
    def asked_model(self) -> str | None:
        """The model that is asked; None if none is, or if that is not known."""
        return self.asks or (self.model if self.agent is None else None)
