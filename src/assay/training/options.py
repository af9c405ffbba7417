"""Options of commands on training runs."""

from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What is stored of training runs in place of what their files say."""

    series: str | None = None
    """The series of the runs; overrides what the files say."""
    subject: str | None = None
    """What was trained, such as an architecture; overrides the files."""
    task: str | None = None
    """What it was trained on; overrides the files."""
    status: str | None = None
    """The status of the runs; overrides the files. [choices: finished, running, crashed]"""
    prefix: str = ""
    """Text put before the id of every run, for folders whose files have the same names."""
    overwrite: Annotated[bool, Option(option="--replace")] = False
    """Replace stored runs that have the same id and other content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOptions:
    """Which training runs are compared."""

    pairs: tuple[str, ...] = ()
    """Pairs of runs as JSON, such as {"control": "run1", "candidate": "run2", "seed": 7}, or a
    list of them."""
    control: Annotated[tuple[str, ...], Option(option="--control-run-ids")] = ()
    """The runs of the control."""
    candidate: Annotated[tuple[str, ...], Option(option="--candidate-run-ids")] = ()
    """The runs of the candidate."""
    control_series: Annotated[str | None, Option(option="--control")] = None
    """A series in the store: all its runs are the control."""
    candidate_series: Annotated[str | None, Option(option="--candidate")] = None
    """A series in the store: all its runs are the candidate."""
    pair_by_seed: bool = False
    """Compare runs of the same seed pair by pair."""
    metric: Annotated[str | None, Option(without="overview/reward")] = None
    """The metric whose curves are read."""
    allow_different: tuple[str, ...] = ()
    """Give a verdict although these settings of the task differ, such as curriculum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionOptions:
    """What a number of runs must be enough for."""

    power: float = 0.8
    """The chance of detecting a difference as large as the threshold."""
    alpha: float = 0.05
    """The chance of a false alarm."""
    correlation: float = 0.5
    """The assumed correlation of two arms trained with the same seeds; 'assay analysis'
    measures it."""
