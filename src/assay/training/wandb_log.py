"""A run in Weights & Biases, beside its own files: the same metrics at the same steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .config import TrainingConfig
from .training import TrainingProgress

__all__ = ["logged_to_wandb"]


@contextmanager
def logged_to_wandb(
    config: TrainingConfig, folder: Path
) -> Iterator[Callable[[TrainingProgress], None]]:
    """Gives the function to tell of progress; a run of the folder's name is opened with it."""
    if config.wandb == "off":
        yield lambda progress: None
        return
    import wandb

    opened: list[Any] = []

    def log(progress: TrainingProgress) -> None:
        # Not before: the folder is the run's own once something was logged in it.
        if not opened:
            opened.append(
                wandb.init(
                    project="assay",
                    id=folder.name,
                    name=folder.name,
                    dir=str(folder),
                    mode=config.wandb,
                    config={**config.resolved().stored(), **config.capacity._asdict()},
                    resume="allow",
                )
            )
        opened[0].log(dict(progress.metrics), step=progress.step)

    try:
        yield log
    finally:
        for run in opened:
            run.finish()
