"""Options of commands for training runs."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from assay.core.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Values of imported training runs that replace those in the files."""

    series: str | None = None
    """Series of the runs; overrides the files."""
    subject: str | None = None
    """Name of what was trained, such as an architecture; overrides the files."""
    task: str | None = None
    """Task of the training; overrides the files."""
    status: str | None = None
    """Status of the runs; overrides the files. [choices: finished, running, crashed]"""
    prefix: str = ""
    """Prefix for every run id, for folders whose files have the same names."""
    overwrite: Annotated[bool, Option(option="--replace")] = False
    """Replace stored runs that have the same id but different content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOptions:
    """Training runs to compare."""

    pairs: tuple[str, ...] = ()
    """Pairs of runs as JSON, such as {"control": "run1", "candidate": "run2", "seed": 7}, or a
    list of them."""
    control: Annotated[tuple[str, ...], Option(option="--control-run-ids")] = ()
    """Runs of the control."""
    candidate: Annotated[tuple[str, ...], Option(option="--candidate-run-ids")] = ()
    """Runs of the candidate."""
    control_series: Annotated[str | None, Option(option="--control")] = None
    """Series in the database whose runs are the control."""
    candidate_series: Annotated[str | None, Option(option="--candidate")] = None
    """Series in the database whose runs are the candidate."""
    pair_by_seed: bool = False
    """Compare runs with the same seed pair by pair."""
    metric: Annotated[str | None, Option(without="overview/reward")] = None
    """Metric whose curves are read."""
    allow_different: tuple[str, ...] = ()
    """Give a verdict even if these settings of the task differ, such as curriculum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionOptions:
    """Power and error rates for planning the number of runs."""

    power: float = 0.8
    """Probability of detecting a difference as large as the threshold."""
    alpha: float = 0.05
    """False-positive rate."""
    correlation: float = 0.5
    """Assumed correlation of two arms trained with the same seeds; 'assay analysis' estimates
    it."""


def _name_option(option: str, default: str = "") -> Any:
    return Option(option=option, without=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalOptions:
    """Options for intervals; None means the value of the plan."""

    n_resamples: Annotated[int | None, _name_option("--bootstrap.n_resamples", "10000")] = None
    """Number of resamples for a bootstrap or a permutation test."""
    alpha: Annotated[float | None, _name_option("--bootstrap.alpha", "0.05")] = None
    """One minus the confidence level."""
    side: Annotated[
        Literal["two-sided", "greater", "less"] | None,
        _name_option("--bootstrap.side", "two-sided"),
    ] = None
    """Whether tests and intervals are two-sided or one-sided."""
    method: Annotated[
        Literal["auto", "t", "studentised", "bca", "percentile"] | None,
        _name_option("--bootstrap.method", "auto"),
    ] = None
    """Interval method; auto is always Student's t."""
    seed: Annotated[int | None, _name_option("--bootstrap.seed", "0")] = None
    """Seed for resampling; the same seed gives the same numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraTestOptions:
    """Additional tests to report; None means the value of the plan."""

    ttest: Annotated[bool | None, _name_option("--ttest.enabled")] = None
    """Also report Student's or Welch's t-test."""
    power: Annotated[bool | None, _name_option("--power.enabled")] = None
    """Also report the number of runs needed, and the effect that these runs can detect."""
    target_effect_size: Annotated[
        float | None, _name_option("--power.target_effect_size", "0.2")
    ] = None
    """Difference worth detecting, in the unit of the summary."""
    target_power: Annotated[float | None, _name_option("--power.power", "0.8")] = None
    """Probability of detecting it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkOptions:
    """Name of a benchmark, and what it is compared with."""

    base_run_name: Annotated[str | None, Option(without="icl_benchmark_<time>")] = None
    """Start of the run names: <base>.<architecture>.seed<seed>."""
    control: str | None = None
    """Base name of a benchmark; print how this one differs from it."""
    since: Annotated[str | None, Option(without="the commit of the last benchmark")] = None
    """Commit since which changes to the trainer are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions:
    """Launch to resume or extend, if any."""

    resume: str | None = None
    """Resume an unfinished launch, given by the start of its name."""
    extend: str | None = None
    """Add seeds to a benchmark, given by its base name."""
    fresh: bool = False
    """Start a new launch, even if the same command left an unfinished one."""
