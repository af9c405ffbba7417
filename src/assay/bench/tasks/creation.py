"""Creation of tasks from two commits of a git repository, and preparation for offline use.

Tests that changed between the commits become hidden tests, in `evaluation/`; the reference
patch has all other changes. The repository itself is only read. Preparing a task stores its
repository in the task folder, so that it runs without a network.
"""

import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from assay.bench.base import Allowed
from assay.bench.options import NewTaskOptions
from assay.bench.tasks.loading import BUNDLE, EVALUATION, META, REFERENCE, load_task, plain_file
from assay.bench.tasks.source import FILES, START, check_out, without_password
from assay.bench.tasks.tree import (
    entries,
    path_problem,
    path_text,
    scan,
    write_blob,
    write_commit,
    write_tree,
)
from assay.bench.tasks.workspace import DIFF, INSTRUCTIONS, apply_patch, make_workspace
from assay.core.files import atomic_write, find_free_path
from assay.core.git import (
    create_git_dir,
    find_error,
    find_working_copy,
    open_foreign_repository,
    read_remote_addresses,
    run_own_git,
)
from assay.core.options import takes_options
from assay.errors import OutputError, PatchRejected, UsageError

_TEST_FOLDERS = {"test", "tests"}


class _Change(NamedTuple):
    """A file that differs between the commits."""

    path: str
    deleted: bool


@takes_options
def new_task(
    repository: Path,
    start: str,
    end: str,
    into: Path,
    *,
    options: NewTaskOptions,
    rubrics: Mapping[str, str] | None = None,
    tags: Sequence[str] = (),
    now: datetime | None = None,
) -> Path:
    """Create the folder of a new task below `into`, and return it.

    Args:
        repository: A local git repository.
        start: The commit that the agent starts from.
        end: The commit that has the solution and its tests.
        into: Parent of the new folder, which is named after the title and the time.
        options: Content of the task.
        rubrics: Criteria by id; one for each test file if None. A test counts for the rubric
            whose id its path contains, or else for the first one.
        tags: Labels for selecting tasks.
        now: Time of creation.

    Raises:
        UsageError: The repository or a commit is missing, nothing changed between the commits,
            or nothing would score a solution.
    """
    subdir = options.subdir
    if subdir is not None and (problem := path_problem(subdir, in_repository=True)):
        raise UsageError(f"subdir: {subdir!r} is not allowed: {problem}")
    copy = find_working_copy(repository)
    with open_foreign_repository(repository) as git_dir:
        source = _Repository(repository, git_dir, subdir)
        first, last = source.commit(start, "start"), source.commit(end, "end")
        changes = source.changes(first, last)
        if not changes:
            where = f" in {subdir!r}" if subdir else ""
            raise UsageError(
                f"nothing changed{where} between {start!r} and {end!r}; name others"
            )
        hidden = [
            change.path for change in changes if _is_test(change.path) and not change.deleted
        ]
        tests = [path for path in hidden if _is_script(path)]
        criteria = dict(rubrics or {}) or _criteria(tests)
        if not criteria:
            raise UsageError(
                f"no test file changed between {start!r} and {end!r}, so nothing would score a "
                "solution; give rubrics, each with an id and what it asks for"
            )
        message = source.message(first, last)
        title = options.title or source.subject(last)
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%d_%H%M%S")
        folder = find_free_path(into / f"{_slug(title)}_{stamp}")
        text = options.instructions
        if text is None:
            text = f"# {title}\n\n{message}"
        meta = {
            "task_id": folder.name,
            "metadata": {"title": title, "tags": list(tags)},
            "repo": {
                "git_url": str(repository.resolve() if copy is None else copy.root),
                "branch": source.branch,
                "start_commit_sha": first,
                "end_commit_sha": last,
                "subdir": subdir,
                "sparse_checkout": [],
            },
            "lm": {"instructions": text},
            "evaluation": {
                "rubrics": [
                    {"id": name, "criterion": criterion, "weight": 1.0}
                    for name, criterion in criteria.items()
                ],
                "test_scripts": [
                    {"path": path, "rubric_id": _rubric_of(path, criteria)} for path in tests
                ],
            },
        }
        info = {
            "remote_urls": source.remotes,
            "branch": source.branch,
            "start_commit": first,
            "end_commit": last,
            "touched_files": [path_text(change.path) for change in changes],
        }
        files = {f"{EVALUATION}/{path}": source.content(last, path) for path in hidden}
        files[INSTRUCTIONS] = f"{text.rstrip()}\n".encode()
        files[REFERENCE] = source.patch(first, last, hidden)
        files["repo_info.json"] = _json(info)
        files["notes.md"] = _notes(title, message, changes, hidden).encode()
    for path, content in files.items():
        atomic_write(folder / path, content)
    # Last, because this file makes the folder a task.
    atomic_write(folder / META, _json(meta))
    load_task(folder, repository=False)
    return folder


class _Repository:
    """Read access to a git repository, or to one of its folders."""

    def __init__(self, path: Path, git_dir: Path, subdir: str | None) -> None:
        self._git_dir = git_dir
        self._path = path
        self._relative = () if subdir is None else (f"--relative={subdir}",)
        self._start = "" if subdir is None else f"{subdir}/"

    def commit(self, name: str, key: str) -> str:
        """Return the full hash of a commit."""
        options = ("rev-parse", "--verify", "--quiet", "--end-of-options")
        end = run_own_git(self._git_dir, *options, f"{name}^{{commit}}")
        if end.code != 0:
            raise UsageError(
                f"{key}: no commit {name!r} in {str(self._path)!r}; 'git log' lists them"
            )
        return end.output.decode().split()[-1]

    def changes(self, first: str, last: str) -> list[_Change]:
        """Return the changed files; a rename is a deletion and a new file."""
        options = ("diff-tree", "-r", "-z", "--no-renames", "--name-status")
        fields = self._asked(*options, *self._relative, first, last).split(b"\0")[:-1]
        changes = [
            _Change(os.fsdecode(path), status == b"D")
            for status, path in zip(fields[::2], fields[1::2], strict=True)
        ]
        for change in changes:
            # A tree may contain names such as '..', and these files are written below.
            if problem := path_problem(change.path, in_repository=True):
                raise UsageError(f"commit {last!r} has {path_text(change.path)!r}: {problem}")
        return changes

    def patch(self, first: str, last: str, without: Sequence[str]) -> bytes:
        """Return the diff, without some paths."""
        out = [f":(exclude,literal,top){self._start}{path}" for path in without]
        return self._asked(*DIFF, *self._relative, first, last, "--", ":(top)", *out)

    def content(self, commit: str, path: str) -> bytes:
        """Return the content of a file in a commit."""
        return self._asked("cat-file", "blob", f"{commit}:{self._start}{path}")

    def subject(self, commit: str) -> str:
        """Return the first line of a commit message."""
        text = self._asked("log", "-1", "--format=%s", commit).decode("utf-8", "replace")
        return " ".join(text.split())[:200] or commit[:12]

    def message(self, first: str, last: str) -> str:
        """Return the messages of all commits after the first, the oldest first."""
        order = ("log", "--reverse", "--format=%B", f"{first}..{last}")
        return self._asked(*order).decode("utf-8", "replace").strip()

    @property
    def branch(self) -> str | None:
        """Current branch, or None."""
        end = run_own_git(self._git_dir, "symbolic-ref", "--quiet", "--short", "HEAD")
        return end.output.decode("utf-8", "replace").strip() or None

    @property
    def remotes(self) -> list[str]:
        """URLs of its remotes, without passwords."""
        return [without_password(url) for url in read_remote_addresses(self._path)]

    def _asked(self, *arguments: str) -> bytes:
        end = run_own_git(self._git_dir, *arguments)
        if end.code != 0:
            raise UsageError(
                f"git {arguments[0]} in {str(self._path)!r}: {find_error(end.errors)}"
            )
        return end.output


def _is_test(path: str) -> bool:
    """Return whether a file is a test, or is in a folder of tests."""
    return _is_script(path) or not _TEST_FOLDERS.isdisjoint(path.split("/")[:-1])


def _is_script(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def _criteria(tests: Sequence[str]) -> dict[str, str]:
    """Return a rubric for each test file, named after the file, or its path if names repeat."""
    names = [PurePosixPath(path).stem for path in tests]
    return {
        name if names.count(name) == 1 else path: f"The tests of {path} pass"
        for name, path in zip(names, tests, strict=True)
    }


def _rubric_of(path: str, criteria: Mapping[str, str]) -> str:
    exact = [name for name in criteria if name in (path, PurePosixPath(path).stem)]
    near = [name for name in criteria if name in path]
    return [*exact, *near, *criteria][0]


def _slug(title: str) -> str:
    words = re.sub(r"[^\w\s-]", "", title.lower(), flags=re.ASCII)
    return re.sub(r"[\s_-]+", "-", words).strip("-")[:50].strip("-") or "task"


def _notes(title: str, message: str, changes: Sequence[_Change], hidden: Sequence[str]) -> str:
    lines = [f"# {title}", "", message, "", "## Changed files", ""]
    lines += [
        f"- `{path_text(change.path)}`{' (deleted)' if change.deleted else ''}"
        for change in changes
    ]
    if hidden:
        lines += [
            "",
            "## Hidden from the agent",
            "",
            f"These files are in `{EVALUATION}/` as the end commit has them. Their changes are "
            f"not in `{REFERENCE}`, and the agent has them as the start commit has them, if at "
            "all.",
            "",
            *(f"- `{path_text(path)}`" for path in hidden),
        ]
    return "\n".join(lines) + "\n"


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


_KEPT = (META, INSTRUCTIONS, REFERENCE, "repo_info.json", "notes.md", "overrides.json")
_KEPT_FOLDERS = ("overlay_files", "overlay_repo_files", EVALUATION)
_STAMP = re.compile(r"_\d{8}_\d{6}(-\d+)?$")


def prepare_task(
    created: Path, into: Path, *, name: str | None = None, allow_repos: Sequence[str] = ()
) -> Path:
    """Write a task that is ready to run below `into`, and return its folder.

    The folder is named after the task's id without its time, or by `name`. If another task has
    that name, a number is added; if the task was already prepared, its folder is returned.

    Args:
        created: The folder of a task, as `new_task` writes it.
        into: Parent of the new folder.
        name: Name of the new folder.
        allow_repos: Paths of repositories outside the task that it may read.

    Raises:
        UsageError: The task is invalid, or its reference patch does not apply.
        ServiceError: Its remote repository could not be fetched.
    """
    task = load_task(created, allowed=Allowed(repos=tuple(allow_repos)))
    if not task.rubrics:
        raise UsageError(
            f"{str(created / META)!r} has no evaluation.rubrics, so that nothing would score a "
            "solution; add at least one"
        )
    wanted = into / (name or _folder_name(task.task_id))
    into.mkdir(parents=True, exist_ok=True)
    # Absolute, because git runs in other folders.
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
        folder = find_free_path(wanted)
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
    """Store files as a bundle of one commit, without the history of their repository."""
    create_git_dir(git_dir, bare=True)
    found, _ = entries(root, scan(root).files, lambda text: write_blob(git_dir, text))
    commit = write_commit(git_dir, write_tree(git_dir, found))
    (git_dir / "refs" / "heads" / START).write_text(f"{commit}\n", "utf-8")
    end = run_own_git(git_dir, "bundle", "create", "--quiet", str(path.resolve()), START)
    if end.code != 0:
        raise OutputError(f"cannot write {str(path)!r}: {find_error(end.errors)}")
