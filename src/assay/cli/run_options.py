"""Options of `assay run`, `bench run` and other commands, generated from settings.

They are generated on first access, so that `assay --help` does not have to do it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from assay.cli.output import OUTPUT

_GENERATED = (
    *("BenchOptions", "BenchResumeOptions", "ForkOptions", "LaunchOptions", "LoopOptions"),
    *("RunOptions", "TrainOptions"),
)
RUN_GROUP = Group("Which run", sort_key=7)
RunName = Annotated[str | None, Parameter(group=RUN_GROUP, show_default=False)]
"""Text option in the group of run options, such as a run id."""
RunFile = Annotated[Path | None, Parameter(group=RUN_GROUP, show_default=False)]
"""Configuration file of a run."""
RunFlag = Annotated[bool, Parameter(group=RUN_GROUP, negative="", show_default=False)]
"""Flag in the group of run options, such as `--dry-run`."""
RepeatableOption = Annotated[
    list[str] | None, Parameter(group=RUN_GROUP, negative="", show_default=False)
]
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
class DetailOptions:
    """Amount of detail to print for a run."""

    detail: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Also print all tables with explanations."""
    verbose: Verbosity = 0
    """Print a line per episode; if given twice, a line per turn."""


_FORK_SETTINGS = {
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
    "temperature": "unchanged",
    "max_tokens": "unchanged",
}
"""Settings that a fork can change, with the default shown in the help if it differs from the
usual one."""

_BENCH_SETTINGS: dict[str, dict[str, str | None]] = {
    "BenchOptions": dict.fromkeys(
        (
            *("parallel", "data_dir", "database", "budget", "price", "openai_base_url"),
            *("judge", "call_patience", "executor", "workers", "ray_address"),
        )
    ),
    "BenchResumeOptions": {
        "data_dir": None,
        **dict.fromkeys(("parallel", "database", "budget"), "unchanged"),
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
    if name not in _GENERATED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.cli.options import build_options

    options: Any
    if name == "LoopOptions":
        from assay.finetune.loop import LoopConfig

        options = build_options(LoopConfig)
    elif name == "TrainOptions":
        from assay.training.config import TrainingConfig

        options = build_options(TrainingConfig)
    elif name == "LaunchOptions":
        from assay.core.settings import list_settings
        from assay.training.config import TrainingConfig

        own = ("architecture", "curriculum", "environment", "seed")
        names = [name for name in list_settings(TrainingConfig) if name not in own]
        options = build_options(TrainingConfig, dict.fromkeys(names))
    elif name in _BENCH_SETTINGS:
        from assay.bench.config import BenchConfig

        options = build_options(BenchConfig, _BENCH_SETTINGS[name])
    else:
        from assay.episodes.config import RunConfig

        options = build_options(RunConfig, None if name == "RunOptions" else _FORK_SETTINGS)
    globals()[name] = Annotated[options, Parameter(name="*", show_default=False)]
    return globals()[name]
