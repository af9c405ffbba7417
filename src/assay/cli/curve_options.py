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
    "no_bootstrap",
    "no_output",
    "no_power",
    "no_summary",
    "no_ttest",
]

_SUMMARY = Group("What is taken of a curve", sort_key=3)
_BOOTSTRAP = Group("Intervals", sort_key=4)
_TESTS = Group("Tests and planning", sort_key=5)
_FILES = Group("Files", sort_key=6)


def _named(name: str, **more: Any) -> Parameter:
    """The name as it is written, underscores included."""
    return Parameter(name=name, show_default=False, **more)


@dataclass(frozen=True, kw_only=True)
class SummaryOptions:
    """How a curve becomes a number."""

    type: Annotated[
        Literal["auc", "last_n", "final", "slope", "time_to_threshold"] | None, _named("type")
    ] = None
    """The area below the curve unless given."""
    percent: Annotated[float | None, _named("percent")] = None
    """The share of a curve's steps that counts; 0.25 for the area, else all."""
    percent_window: Annotated[Literal["last", "first"] | None, _named("percent_window")] = None
    """From which end that share is taken; last unless given."""
    step_min: Annotated[float | None, _named("step_min")] = None
    """The first step that counts, instead of a share."""
    step_max: Annotated[float | None, _named("step_max")] = None
    """The last step that counts, instead of a share."""
    normalize_steps: Annotated[bool | None, _named("normalize_steps")] = None
    """Divide the area by its length, which gives a mean; on unless turned off."""
    n: Annotated[Whole | None, _named("n")] = None
    """How many points last_n averages; 5 unless given."""
    threshold: Annotated[float | None, _named("threshold")] = None
    """The value that time_to_threshold waits for."""
    falling: Annotated[bool | None, _named("falling", negative="")] = None
    """The threshold is reached from above, as a loss does."""

    def given(self) -> dict[str, Any]:
        """What was given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class BootstrapOptions:
    """How intervals are made."""

    n_resamples: Annotated[Whole | None, _named("n_resamples")] = None
    """Resamples of a bootstrap or a permutation test; 10000 unless given."""
    alpha: Annotated[float | None, _named("alpha")] = None
    """One minus the level; 0.05 unless given."""
    side: Annotated[Literal["two-sided", "greater", "less"] | None, _named("side")] = None
    """Both sides unless given."""
    method: Annotated[
        Literal["auto", "t", "studentised", "bca", "percentile"] | None, _named("method")
    ] = None
    """auto unless given, which is Student's t whatever the data look like."""
    seed: Annotated[Whole | None, _named("seed")] = None
    """Of the generator; 0 unless given. The same seed gives the same numbers."""


@dataclass(frozen=True, kw_only=True)
class TTestOptions:
    """Whether to report t tests."""

    enabled: Annotated[bool | None, _named("enabled", negative="")] = None
    """Report Student's or Welch's t test beside the exact one."""


@dataclass(frozen=True, kw_only=True)
class PowerOptions:
    """Whether to plan for more runs."""

    enabled: Annotated[bool | None, _named("enabled", negative="")] = None
    """Report how many runs are needed, and what these can find."""
    target_effect_size: Annotated[float | None, _named("target_effect_size")] = None
    """The difference worth finding, in the unit of the summary; 0.2 unless given."""
    power: Annotated[float | None, _named("power")] = None
    """The chance to find it; 0.8 unless given."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What is written where."""

    print_table: Annotated[bool, Parameter(name="print_table")] = True
    """Print the tables."""
    csv_path: Annotated[Path | None, _named("csv_path")] = None
    """A CSV file with every number and what made it."""
    dir: Annotated[Path | None, _named("dir")] = None
    """A folder for figures, analysis.csv and analysis.json."""
    report: Annotated[Path | None, _named("report")] = None
    """The whole report as .html with figures, .md, .json or .csv."""


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

no_summary = SummaryOptions()
no_bootstrap = BootstrapOptions()
no_ttest = TTestOptions()
no_power = PowerOptions()
no_output = OutputOptions()
