"""Options of `assay run`, `bench run` and other commands, generated from settings.

They are generated on first access, so that `assay --help` does not have to do it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from assay.cli.output import OUTPUT

_MADE = (
    *("BenchOptions", "BenchResumeOptions", "ForkOptions", "LaunchOptions", "LoopOptions"),
    *("RunOptions", "TrainOptions"),
)
WHICH = Group("Which run", sort_key=7)
RunName = Annotated[str | None, Parameter(group=WHICH, show_default=False)]
"""Text option in the group of run options, such as a run id."""
RunFile = Annotated[Path | None, Parameter(group=WHICH, show_default=False)]
"""Configuration file of a run."""
RunFlag = Annotated[bool, Parameter(group=WHICH, negative="", show_default=False)]
"""Flag in the group of run options, such as `--dry-run`."""
MayDiffer = Annotated[list[str] | None, Parameter(group=WHICH, negative="", show_default=False)]
"""Repeatable option, such as `--model-map`."""
Verbosity = Annotated[
    int,
    Parameter(
        name=["--verbose", "-v"], count=True, negative="", group=OUTPUT, show_default=False
    ),
]
"""Number of times `--verbose` was given."""


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class Printed:
    """Amount of detail to print for a run."""

    detail: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Also print all tables with explanations."""
    verbose: Verbosity = 0
    """Print a line per episode; if given twice, a line per turn."""


_OF_FORKS = {
    **dict.fromkeys(
        (
            *("name", "concurrent_models", "max_concurrent_models", "max_concurrent_episodes"),
            *(
                "executor",
                "workers",
                "ray_address",
                "budget",
                "price",
                "max_connections",
                "call_patience",
            ),
            *("cache", "openai_base_url", "database", "service_url", "service_timeout"),
            *("metrics_from", "traces_dir", "save_traces", "save_detailed_results"),
        )
    ),
    "models": "",
    "temperature": "as it was",
    "max_tokens": "as it was",
}
"""Settings that a fork can change, with the default shown in the help if it differs from the
usual one."""

_OF_BENCHMARKS: dict[str, dict[str, str | None]] = {
    "BenchOptions": dict.fromkeys(
        (
            *("parallel", "data_dir", "database", "budget", "price", "openai_base_url"),
            *("judge", "call_patience", "executor", "workers", "ray_address"),
        )
    ),
    "BenchResumeOptions": {
        "data_dir": None,
        **dict.fromkeys(("parallel", "database", "budget"), "as it was"),
    },
}
"""Settings of a benchmark that have an option, with the default shown in the help."""

if TYPE_CHECKING:
    RunOptions = dict[str, Any]
    """Given options of `assay run`, by setting name."""
    ForkOptions = dict[str, Any]
    """Given options of `assay fork`, by setting name."""
    LoopOptions = dict[str, Any]
    """Given options of `assay loop`, by setting name."""
    TrainOptions = dict[str, Any]
    """Given options of `assay train`, by setting name."""
    LaunchOptions = dict[str, Any]
    """Given trainer options of `assay launch`, by setting name."""
    BenchOptions = dict[str, Any]
    """Given options of `assay bench run`, by setting name."""
    BenchResumeOptions = dict[str, Any]
    """Given options of a resumed benchmark, by setting name."""


def __getattr__(name: str) -> Any:
    if name not in _MADE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.cli.options import options_of

    made: Any
    if name == "LoopOptions":
        from assay.finetune.loop import LoopConfig

        made = options_of(LoopConfig)
    elif name == "TrainOptions":
        from assay.training.config import TrainingConfig

        made = options_of(TrainingConfig)
    elif name == "LaunchOptions":
        from assay.core.settings import list_settings
        from assay.training.config import TrainingConfig

        own = ("architecture", "curriculum", "environment", "seed")
        names = [name for name in list_settings(TrainingConfig) if name not in own]
        made = options_of(TrainingConfig, dict.fromkeys(names))
    elif name in _OF_BENCHMARKS:
        from assay.bench.config import BenchConfig

        made = options_of(BenchConfig, _OF_BENCHMARKS[name])
    else:
        from assay.episodes.config import RunConfig

        made = options_of(RunConfig, None if name == "RunOptions" else _OF_FORKS)
    globals()[name] = Annotated[made, Parameter(name="*", show_default=False)]
    return globals()[name]
