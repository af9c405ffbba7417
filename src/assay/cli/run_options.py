"""The options of `assay run`, `bench run` and other commands: settings, by their names.

They are made when somebody asks for them, so that the help of the program need not.
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
"""The id of a run."""
RunFile = Annotated[Path | None, Parameter(group=WHICH, show_default=False)]
"""A file that configures it."""
RunFlag = Annotated[bool, Parameter(group=WHICH, negative="", show_default=False)]
"""Whether to start anew, or nothing at all."""
MayDiffer = Annotated[list[str] | None, Parameter(group=WHICH, negative="", show_default=False)]
"""What a resumed run may have otherwise, and other words that may be repeated."""
Verbosity = Annotated[
    int,
    Parameter(
        name=["--verbose", "-v"], count=True, negative="", group=OUTPUT, show_default=False
    ),
]
"""How many lines are printed while it plays."""


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class Printed:
    """How much is printed of a run."""

    detail: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Also print all tables, and how to read them."""
    verbose: Verbosity = 0
    """Print a line per episode; given twice, a line per turn."""


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
"""Settings that a fork may have otherwise than the episodes it goes on from, and what their
help says for a default, where that is not the usual one."""

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
"""Settings of a benchmark that have an option, and what their help says for a default."""

if TYPE_CHECKING:
    RunOptions = dict[str, Any]
    """What was given, by the names of settings."""
    ForkOptions = dict[str, Any]
    """The same, for a fork."""
    LoopOptions = dict[str, Any]
    """The same, for a loop."""
    TrainOptions = dict[str, Any]
    """The same, for training."""
    LaunchOptions = dict[str, Any]
    """The same, for the training of many seeds."""
    BenchOptions = dict[str, Any]
    """The same, for a benchmark."""
    BenchResumeOptions = dict[str, Any]
    """The same, for a benchmark that is resumed."""


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
        from assay.core.settings import settings_of
        from assay.training.config import TrainingConfig

        own = ("architecture", "curriculum", "environment", "seed")
        names = [name for name in settings_of(TrainingConfig) if name not in own]
        made = options_of(TrainingConfig, dict.fromkeys(names))
    elif name in _OF_BENCHMARKS:
        from assay.bench.config import BenchConfig

        made = options_of(BenchConfig, _OF_BENCHMARKS[name])
    else:
        from assay.episodes.config import RunConfig

        made = options_of(RunConfig, None if name == "RunOptions" else _OF_FORKS)
    globals()[name] = Annotated[made, Parameter(name="*", show_default=False)]
    return globals()[name]
