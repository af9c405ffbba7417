"""A run in Weights & Biases, beside its own files: the same metrics at the same steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .config import TrainingConfig
from .folder import TrainingFolder
from .training import TrainingProgress

__all__ = ["logged_to_wandb"]


@contextmanager
def logged_to_wandb(
    config: TrainingConfig, folder: Path
) -> Iterator[Callable[[TrainingProgress], None]]:
    """Open a run of the folder's name; gives the function to tell it of progress."""
    if config.wandb == "off":
        yield lambda progress: None
        return
    import wandb

    run = wandb.init(
        project="assay",
        id=folder.name,
        name=folder.name,
        dir=str(folder),
        mode=config.wandb,
        config=TrainingFolder(folder).told() if folder.exists() else config.stored(),
        resume="allow",
    )
    try:
        yield lambda progress: run.log(dict(progress.metrics), step=progress.step)
    finally:
        run.finish()
