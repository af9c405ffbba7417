"""A bar for work that counts, on standard error, where somebody watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from assay.cli.output import Show

__all__ = ["counting"]


@contextmanager
def counting(show: Show, what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many are done while the block runs; gives the function to tell it."""
    from rich.console import Console

    console = Console(stderr=True)
    if show.quiet or show.json or not console.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
