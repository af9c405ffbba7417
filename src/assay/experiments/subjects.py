"""What is compared: subjects, each with the outcomes of its trials.

Comparisons see these values and nothing else, wherever they come from: the store, a results
file, or a file that somebody wrote by hand. Nothing here opens a file.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from assay.types import TrialState

__all__ = ["SUBJECT_METRICS", "Look", "Subject", "TrialOutcome", "endings"]

SUBJECT_METRICS = "subject_metrics"
"""The key in the facts of a subject for numbers that it earned as a whole, by metric."""


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
    """How the pairs were looked at; `assay.stats.sequential.Design.of` reads it."""
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
    looks: tuple[Look, ...] = ()
    """Where its run went on until it was decided."""

    @property
    def asked_model(self) -> str | None:
        """The model that is asked; None if none is, or if that is not known."""
        return self.asks or (self.model if self.agent is None else None)
