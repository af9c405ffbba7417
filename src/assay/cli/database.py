"""The option `--database`, which every command that reads or writes a store has."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from assay._util.text import printable
from assay.cli.output import Show
from assay.traces.location import DATABASE_VARIABLE

if TYPE_CHECKING:
    from assay.errors import StoreBusy
    from assay.traces.store import Store

__all__ = ["Database", "open_store"]

Database: TypeAlias = Annotated[
    Path, Parameter(name="--database", env_var=DATABASE_VARIABLE, show_env_var=True)
]
"""The store a command works on."""


def open_store(path: Path, show: Show) -> "Store":
    """The store at `path`; whoever has to wait for it is told for whom."""
    from rich.console import Console

    from assay.traces.store import Store

    def waiting(busy: "StoreBusy") -> None:
        if not (show.quiet or show.json):
            line = printable(f"waiting: {busy}")
            Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)

    return Store(path, on_wait=waiting)
