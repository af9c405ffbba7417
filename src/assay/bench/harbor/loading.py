"""Any task folder: one of assay's own layout, or one of Harbor's."""

from pathlib import Path

from assay.bench.seams import NOTHING_ALLOWED, Allowed, CodingTask
from assay.bench.tasks import load_task
from assay.errors import UsageError

from .task import CONFIG, is_harbor_task, load_harbor_task

__all__ = ["load_any_task"]

_META = "tb_meta.json"


def load_any_task(
    folder: Path, overrides: Path | None = None, allowed: Allowed = NOTHING_ALLOWED
) -> CodingTask:
    """Read a task, whichever layout its folder has.

    Args:
        folder: The task's.
        overrides: A file that changes the task.
        allowed: What the user lets it read outside of its folder.

    Raises:
        UsageError: A file is missing or wrong, or something cannot be honoured here.
    """
    if (folder / _META).is_file() or not is_harbor_task(folder):
        return load_task(folder, overrides, allowed=allowed)
    if overrides is not None:
        raise UsageError(
            f"{folder} has a {CONFIG} of Harbor, which has no overrides; take {overrides} away"
        )
    return load_harbor_task(folder, allowed)
