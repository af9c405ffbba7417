"""Options of a launch in addition to its settings: its name, and the launch it continues."""

from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkOptions:
    """What a benchmark is called and compared with."""

    base_run_name: Annotated[str | None, Option(without="icl_benchmark_<time>")] = None
    """What names of runs begin with: <base>.<architecture>.seed<seed>."""
    control: str | None = None
    """The base name of a benchmark to say in what this one differs."""
    since: Annotated[str | None, Option(without="that of the last benchmark")] = None
    """The commit since which changes of the trainer are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions:
    """Which launch is continued, if any."""

    resume: str | None = None
    """An unfinished launch, by the start of its name."""
    extend: str | None = None
    """A benchmark that gets more seeds, by its base name."""
    fresh: bool = False
    """Start anew, even if the same command left something unfinished."""
