"""What is wrong with the files of a task, as far as it shows without running anything."""

import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from assay._util.files import read_plain_file
from assay._util.wildcards import Wildcards
from assay.bench.seams import NOTHING_ALLOWED, Allowed, CodingTask
from assay.bench.tasks.loading import load_task
from assay.bench.tasks.source import check_out, look_up
from assay.bench.tasks.tree import path_text, scan
from assay.bench.tasks.workspace import Workspace
from assay.errors import UsageError

__all__ = ["exposed_files", "overrides_problems"]


def overrides_problems(
    folder: Path, overrides: Path, allowed: Allowed = NOTHING_ALLOWED
) -> tuple[str, ...]:
    """What is wrong with an `overrides.json`: keys, values, and paths that match nothing.

    Raises:
        UsageError: The task itself cannot be loaded.
        ServiceError: Its repository is far away, and could not be fetched.
    """
    load_task(folder, repository=False)
    try:
        task = load_task(folder, overrides, allowed=allowed)
    except UsageError as error:
        return (str(error),)
    idle = Wildcards(task.remove_repo_paths).idle(_paths(task))
    return tuple(
        f"{overrides}: remove_repo_paths: {pattern!r} matches nothing in the repository"
        for pattern in idle
    )


def exposed_files(task: CodingTask, workspace: Workspace) -> tuple[str, ...]:
    """The files that an agent would see though they are hidden: tests, solution, metrics.

    A file counts as the same if it has the same content, wherever it is; empty ones do not.
    """
    hidden = {script.content.encode() for script in task.test_scripts}
    hidden |= {*task.evaluation_files.values(), task.reference_patch or b""}
    if task.metrics_script is not None:
        hidden.add(task.metrics_script.content.encode())
    hidden = {content for content in hidden if content.strip()}
    return tuple(
        path_text(path)
        for path, status in scan(workspace.app).files.items()
        if stat.S_ISREG(status.st_mode) and read_plain_file(workspace.app / path) in hidden
    )


def _paths(task: CodingTask) -> Iterable[str]:
    known = look_up(task.repo, task.folder).files
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="assay-check-") as scratch:
        root = Path(scratch) / "repo"
        check_out(task.repo, task.folder, root)
        return scan(root).files
