"""Options of the commands on training runs, with dots and underscores in their names.

None means that an option was not given, so that a plan or a default can fill it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Group, Parameter

from assay.cli.numbers import Whole

__all__ = [
    "Bootstrap",
    "BootstrapOptions",
    "Output",
    "OutputOptions",
    "Power",
    "PowerOptions",
    "Summarise",
    "SummaryOptions",
    "TTest",
    "TTestOptions",
    "Wandb",
    "no_bootstrap",
    "no_output",
    "no_power",
    "no_summary",
    "no_ttest",
]

_SUMMARY = Group("How a curve is summarised", sort_key=3)
_BOOTSTRAP = Group("Intervals", sort_key=4)
_TESTS = Group("Tests and planning", sort_key=5)
_FILES = Group("Files", sort_key=6)


def _named(name: str, default: str | bool = False, **more: Any) -> Parameter:
    """The name as it is written, underscores included, and the default as help shows it."""
    return Parameter(name=name, show_default=default, **more)


@dataclass(frozen=True, kw_only=True)
class SummaryOptions:
    """How a curve becomes a number."""

    type: Annotated[
        Literal["auc", "last_n", "final", "slope", "time_to_threshold"] | None,
        _named("type", "auc"),
    ] = None
    """The summary: auc is the area under the curve, last_n the mean of the last points."""
    percent: Annotated[float | None, _named("percent", "0.25 for auc, else 1")] = None
    """The share of a curve's steps that counts."""
    percent_window: Annotated[
        Literal["last", "first"] | None, _named("percent_window", "last")
    ] = None
    """The end of the curve that share is taken from."""
    step_min: Annotated[float | None, _named("step_min")] = None
    """The first step that counts; replaces the share."""
    step_max: Annotated[float | None, _named("step_max")] = None
    """The last step that counts; replaces the share."""
    normalize_steps: Annotated[bool | None, _named("normalize_steps", "on")] = None
    """Divide the area by the number of steps, which gives a mean value."""
    n: Annotated[Whole | None, _named("n", "5")] = None
    """The number of points that last_n averages."""
    threshold: Annotated[float | None, _named("threshold")] = None
    """The value that time_to_threshold waits for; it needs one."""
    falling: Annotated[bool | None, _named("falling", negative="")] = None
    """The threshold is reached from above, as with a loss."""

    def given(self) -> dict[str, Any]:
        """What was given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class BootstrapOptions:
    """How intervals are made."""

    n_resamples: Annotated[Whole | None, _named("n_resamples", "10000")] = None
    """The number of resamples of a bootstrap or a permutation test."""
    alpha: Annotated[float | None, _named("alpha", "0.05")] = None
    """One minus the confidence level."""
    side: Annotated[
        Literal["two-sided", "greater", "less"] | None, _named("side", "two-sided")
    ] = None
    """Whether tests and intervals have two sides or one."""
    method: Annotated[
        Literal["auto", "t", "studentised", "bca", "percentile"] | None,
        _named("method", "auto"),
    ] = None
    """The kind of interval; auto is Student's t, whatever the data look like."""
    seed: Annotated[Whole | None, _named("seed", "0")] = None
    """The seed for resampling; the same seed gives the same numbers."""


@dataclass(frozen=True, kw_only=True)
class TTestOptions:
    """Whether to report t tests."""

    enabled: Annotated[bool | None, _named("enabled", negative="")] = None
    """Also report Student's or Welch's t test."""


@dataclass(frozen=True, kw_only=True)
class PowerOptions:
    """Whether to plan for more runs."""

    enabled: Annotated[bool | None, _named("enabled", negative="")] = None
    """Also report how many runs are needed, and what these can detect."""
    target_effect_size: Annotated[float | None, _named("target_effect_size", "0.2")] = None
    """The difference worth detecting, in the unit of the summary."""
    power: Annotated[float | None, _named("power", "0.8")] = None
    """The chance of detecting it."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What is written where."""

    print_table: Annotated[bool, Parameter(name="print_table")] = True
    """Print the tables."""
    csv_path: Annotated[Path | None, _named("csv_path")] = None
    """Write a CSV file with every number and what made it."""
    dir: Annotated[Path | None, _named("dir")] = None
    """Write figures, analysis.csv and analysis.json into this folder."""
    report: Annotated[Path | None, _named("report")] = None
    """Write the report to this file: .html (with figures), .md, .json or .csv."""


Summarise: TypeAlias = Annotated[SummaryOptions, Parameter(group=_SUMMARY)]
"""`--summary.*`."""
Bootstrap: TypeAlias = Annotated[BootstrapOptions, Parameter(group=_BOOTSTRAP)]
"""`--bootstrap.*`."""
TTest: TypeAlias = Annotated[TTestOptions, Parameter(group=_TESTS)]
"""`--ttest.*`."""
Power: TypeAlias = Annotated[PowerOptions, Parameter(group=_TESTS)]
"""`--power.*`."""
Output: TypeAlias = Annotated[OutputOptions, Parameter(group=_FILES)]
"""`--output.*`."""

Wandb: TypeAlias = Annotated[str | None, Parameter(show_default=False)]
"""`--wandb ENTITY/PROJECT`."""

no_summary = SummaryOptions()
no_bootstrap = BootstrapOptions()
no_ttest = TTestOptions()
no_power = PowerOptions()
no_output = OutputOptions()
