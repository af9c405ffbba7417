"""The options of `assay run` and `assay fork`: settings of a run, under the names they have.

They are made when somebody asks for them, so that the help of the program need not.
"""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

__all__ = ["ForkOptions", "RunOptions"]

_OF_FORKS = frozenset(
    {
        *("models", "name", "concurrent_models", "max_concurrent_models", "temperature"),
        *("max_concurrent_episodes", "executor", "workers", "max_tokens", "budget", "price"),
        *("max_connections", "call_patience", "cache", "openai_base_url", "database"),
        *("service_url", "service_timeout", "metrics_from", "traces_dir", "save_traces"),
        "save_detailed_results",
    }
)
"""Settings that a fork may have otherwise than the episodes it goes on from."""

if TYPE_CHECKING:
    RunOptions = dict[str, Any]
    """What was given, by the names of settings."""
    ForkOptions = dict[str, Any]
    """The same, for a fork."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.cli.setting_options import options_of
    from assay.rollouts.config import RunConfig

    made: Any = options_of(RunConfig, None if name == "RunOptions" else _OF_FORKS)
    globals()[name] = Annotated[made, Parameter(name="*", show_default=False)]
    return globals()[name]
