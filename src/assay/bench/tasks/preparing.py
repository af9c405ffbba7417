"""A task made ready to run without a network: its repository is stored with it."""

import glob
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from assay._util.files import free_path
from assay._util.git import first_line, new_git_dir, own_git
from assay.bench.seams import Allowed
from assay.bench.tasks.loading import (
    BUNDLE,
    EVALUATION,
    META,
    REFERENCE,
    load_task,
    plain_file,
)
from assay.bench.tasks.objects import write_blob, write_commit, write_tree
from assay.bench.tasks.source import FILES, START, check_out
from assay.bench.tasks.tree import entries, scan
from assay.bench.tasks.workspace import INSTRUCTIONS, apply_patch, make_workspace
from assay.errors import OutputError, PatchRejected, UsageError

__all__ = ["prepare_task"]

_KEPT = (META, INSTRUCTIONS, REFERENCE, "repo_info.json", "notes.md", "overrides.json")
_KEPT_FOLDERS = ("overlay_files", "overlay_repo_files", EVALUATION)
_STAMP = re.compile(r"_\d{8}_\d{6}(-\d+)?$")


def prepare_task(
    created: Path, into: Path, *, name: str | None = None, allow_repos: Sequence[str] = ()
) -> Path:
    """Write a task that is ready to run below `into`, and return its folder.

    The folder is named by the task's id without its time, or by `name`. If another task has
    that name, a number is added; the same task, prepared before, is returned as it is.

    Args:
        created: The folder of a task, as `new_task` writes it.
        into: Gets the folder.
        name: What that is called.
        allow_repos: Paths of repositories outside of the task that it may read.

    Raises:
        UsageError: The task is wrong, or its reference patch does not fit its repository.
        ServiceError: Its repository is far away, and could not be fetched.
    """
    task = load_task(created, allowed=Allowed(repos=tuple(allow_repos)))
    if not task.rubrics:
        raise UsageError(
            f"{str(created / META)!r} has no evaluation.rubrics, so that nothing would score a "
            "solution; add at least one"
        )
    wanted = into / (name or _folder_name(task.task_id))
    into.mkdir(parents=True, exist_ok=True)
    # Absolute, because git is run in the folder that it works on.
    with tempfile.TemporaryDirectory(prefix=".preparing-", dir=into.resolve()) as scratch:
        draft = Path(scratch) / "task"
        draft.mkdir()
        for kept in _KEPT:
            if (content := plain_file(created, kept)) is not None:
                (draft / kept).write_bytes(content)
        for kept in _KEPT_FOLDERS:
            if (created / kept).is_dir():
                shutil.copytree(created / kept, draft / kept, symlinks=True)
        whole = replace(task.repo, subdir=None, sparse_checkout=())
        if task.repo.git_url is None:
            check_out(whole, task.folder, draft / FILES)
        else:
            root = Path(scratch) / "repo"
            check_out(whole, task.folder, root)
            _bundle(root, Path(scratch) / "git", draft / BUNDLE)
        prepared = load_task(draft)
        workspace = make_workspace(prepared, Path(scratch) / "workspace")
        try:
            apply_patch(workspace, prepared.reference_patch or b"")
        except PatchRejected as error:
            raise UsageError(
                f"{str(created / REFERENCE)!r} does not fit the repository: {error}"
            ) from error
        for known in sorted(into.glob(f"{glob.escape(wanted.name)}*")):
            if _is_prepared(known, prepared.checksum):
                return known
        folder = free_path(wanted)
        draft.rename(folder)
    return folder


def _folder_name(task_id: str) -> str:
    plain = re.sub(r"[^\w.-]+", "-", _STAMP.sub("", task_id)).strip(".-")
    return plain or "task"


def _is_prepared(folder: Path, checksum: str) -> bool:
    try:
        return load_task(folder).checksum == checksum
    except UsageError:
        return False


def _bundle(root: Path, git_dir: Path, path: Path) -> None:
    """Store files as a bundle of one commit, without the history of where they came from."""
    new_git_dir(git_dir, bare=True)
    found, _ = entries(root, scan(root).files, lambda text: write_blob(git_dir, text))
    commit = write_commit(git_dir, write_tree(git_dir, found))
    (git_dir / "refs" / "heads" / START).write_text(f"{commit}\n", "utf-8")
    end = own_git(git_dir, "bundle", "create", "--quiet", str(path.resolve()), START)
    if end.code != 0:
        raise OutputError(f"cannot write {str(path)!r}: {first_line(end.errors)}")
