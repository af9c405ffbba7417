"""The options of `assay run`: every setting of a run, under the name it has there.

They are made when somebody asks for them, so that the help of the program need not.
"""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

__all__ = ["RunOptions"]

if TYPE_CHECKING:
    RunOptions = dict[str, Any]
    """What was given, by the names of settings."""


def __getattr__(name: str) -> Any:
    if name != "RunOptions":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.cli.setting_options import options_of
    from assay.rollouts.config import RunConfig

    made: Any = options_of(RunConfig)
    globals()[name] = Annotated[made, Parameter(name="*", show_default=False)]
    return globals()[name]
