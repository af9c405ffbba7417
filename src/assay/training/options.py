"""Options of commands on training runs."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

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


def _named(option: str, default: str = "") -> Any:
    return Option(option=option, without=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalOptions:
    """How intervals are made; None means what the plan says."""

    n_resamples: Annotated[int | None, _named("--bootstrap.n_resamples", "10000")] = None
    """The number of resamples of a bootstrap or a permutation test."""
    alpha: Annotated[float | None, _named("--bootstrap.alpha", "0.05")] = None
    """One minus the confidence level."""
    side: Annotated[
        Literal["two-sided", "greater", "less"] | None, _named("--bootstrap.side", "two-sided")
    ] = None
    """Whether tests and intervals have two sides or one."""
    method: Annotated[
        Literal["auto", "t", "studentised", "bca", "percentile"] | None,
        _named("--bootstrap.method", "auto"),
    ] = None
    """The kind of interval; auto is Student's t, whatever the data look like."""
    seed: Annotated[int | None, _named("--bootstrap.seed", "0")] = None
    """The seed for resampling; the same seed gives the same numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraTestOptions:
    """What else is reported; None means what the plan says."""

    ttest: Annotated[bool | None, _named("--ttest.enabled")] = None
    """Also report Student's or Welch's t test."""
    power: Annotated[bool | None, _named("--power.enabled")] = None
    """Also report how many runs are needed, and what these can detect."""
    target_effect_size: Annotated[float | None, _named("--power.target_effect_size", "0.2")] = (
        None
    )
    """The difference worth detecting, in the unit of the summary."""
    target_power: Annotated[float | None, _named("--power.power", "0.8")] = None
    """The chance of detecting it."""
