"""Options of a launch in addition to its settings: its name, and the launch it continues."""

from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkOptions:
    """Name of a benchmark, and what it is compared with."""

    base_run_name: Annotated[str | None, Option(without="icl_benchmark_<time>")] = None
    """Start of the run names: <base>.<architecture>.seed<seed>."""
    control: str | None = None
    """Base name of a benchmark; print how this one differs from it."""
    since: Annotated[str | None, Option(without="that of the last benchmark")] = None
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
