"""What is wrong with the files of a task, as far as it shows without running anything."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from assay.bench.seams import CodingTask
from assay.bench.tasks.loading import load_task
from assay.bench.tasks.paths import Wildcards
from assay.bench.tasks.source import check_out, listing
from assay.bench.tasks.tree import scan
from assay.errors import UsageError

__all__ = ["overrides_problems"]


def overrides_problems(folder: Path, overrides: Path) -> tuple[str, ...]:
    """What is wrong with an `overrides.json`: keys, values, and paths that match nothing.

    Raises:
        UsageError: The task itself cannot be loaded.
        ServiceError: Its repository is far away, and could not be fetched.
    """
    load_task(folder, repository=False)
    try:
        task = load_task(folder, overrides)
    except UsageError as error:
        return (str(error),)
    idle = Wildcards(task.remove_repo_paths).idle(_paths(task))
    return tuple(
        f"{overrides}: remove_repo_paths: {pattern!r} matches nothing in the repository"
        for pattern in idle
    )


def _paths(task: CodingTask) -> Iterable[str]:
    known = listing(task.repo, task.folder)
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="assay-check-") as scratch:
        root = Path(scratch) / "repo"
        check_out(task.repo, task.folder, root)
        return scan(root).files
