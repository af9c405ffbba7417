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
from typing import Any

from assay.bench.base import Allowed
from assay.bench.options import NewTaskOptions
from assay.bench.tasks.loading import (
    BUNDLE,
    EVALUATION,
    META,
    REFERENCE,
    load_task,
    read_optional_file,
)
from assay.bench.tasks.source import FILES, START, check_out, remove_password
from assay.bench.tasks.tree import (
    decode_path,
    find_path_problem,
    read_entries,
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
    if subdir is not None and (problem := find_path_problem(subdir, in_repository=True)):
        raise UsageError(f"subdir: {subdir!r} is not allowed: {problem}")
    copy = find_working_copy(repository)
    with open_foreign_repository(repository) as git_dir:
        source = _Repository(repository, git_dir, subdir)
        first, last = source.resolve_commit(start, "start"), source.resolve_commit(end, "end")
        changes = source.list_changes(first, last)
        if not changes:
            where = f" in {subdir!r}" if subdir else ""
            raise UsageError(
                f"nothing changed{where} between {start!r} and {end!r}; choose other commits"
            )
        hidden = [path for path, deleted in changes.items() if _is_test(path) and not deleted]
        tests = [path for path in hidden if _is_script(path)]
        criteria = dict(rubrics or {}) or _make_criteria(tests)
        if not criteria:
            raise UsageError(
                f"no test file changed between {start!r} and {end!r}, so solutions cannot be "
                "scored; give rubrics, each with an id and a criterion"
            )
        message = source.read_messages(first, last)
        title = options.title or source.read_subject(last)
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%d_%H%M%S")
        folder = find_free_path(into / f"{_make_slug(title)}_{stamp}")
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
                    {"path": path, "rubric_id": _choose_rubric(path, criteria)}
                    for path in tests
                ],
            },
        }
        info = {
            "remote_urls": source.remotes,
            "branch": source.branch,
            "start_commit": first,
            "end_commit": last,
            "touched_files": [decode_path(path) for path in changes],
        }
        files = {f"{EVALUATION}/{path}": source.read_file(last, path) for path in hidden}
        files[INSTRUCTIONS] = f"{text.rstrip()}\n".encode()
        files[REFERENCE] = source.make_patch(first, last, hidden)
        files["repo_info.json"] = _encode_json(info)
        files["notes.md"] = _format_notes(title, message, changes, hidden).encode()
    for path, content in files.items():
        atomic_write(folder / path, content)
    # Last, because this file makes the folder a task.
    atomic_write(folder / META, _encode_json(meta))
    load_task(folder, repository=False)
    return folder


class _Repository:
    """Read access to a git repository, or to one of its folders."""

    def __init__(self, path: Path, git_dir: Path, subdir: str | None) -> None:
        self._git_dir = git_dir
        self._path = path
        self._relative = () if subdir is None else (f"--relative={subdir}",)
        self._start = "" if subdir is None else f"{subdir}/"

    def resolve_commit(self, name: str, key: str) -> str:
        """Return the full hash of a commit."""
        options = ("rev-parse", "--verify", "--quiet", "--end-of-options")
        end = run_own_git(self._git_dir, *options, f"{name}^{{commit}}")
        if end.code != 0:
            raise UsageError(
                f"{key}: no commit {name!r} in {str(self._path)!r}; 'git log' lists them"
            )
        return end.output.decode().split()[-1]

    def list_changes(self, first: str, last: str) -> dict[str, bool]:
        """Return the changed paths, and whether each is deleted; a rename has two paths."""
        options = ("diff-tree", "-r", "-z", "--no-renames", "--name-status")
        fields = self._run_git(*options, *self._relative, first, last).split(b"\0")[:-1]
        changes = {
            os.fsdecode(path): status == b"D"
            for status, path in zip(fields[::2], fields[1::2], strict=True)
        }
        for path in changes:
            # A tree may contain names such as '..', and these files are written below.
            if problem := find_path_problem(path, in_repository=True):
                raise UsageError(f"commit {last!r} has {decode_path(path)!r}: {problem}")
        return changes

    def make_patch(self, first: str, last: str, excluded: Sequence[str]) -> bytes:
        """Return the diff, without some paths."""
        patterns = [f":(exclude,literal,top){self._start}{path}" for path in excluded]
        return self._run_git(*DIFF, *self._relative, first, last, "--", ":(top)", *patterns)

    def read_file(self, commit: str, path: str) -> bytes:
        """Return the content of a file in a commit."""
        return self._run_git("cat-file", "blob", f"{commit}:{self._start}{path}")

    def read_subject(self, commit: str) -> str:
        """Return the first line of a commit message."""
        text = self._run_git("log", "-1", "--format=%s", commit).decode("utf-8", "replace")
        return " ".join(text.split())[:200] or commit[:12]

    def read_messages(self, first: str, last: str) -> str:
        """Return the messages of all commits after the first, the oldest first."""
        order = ("log", "--reverse", "--format=%B", f"{first}..{last}")
        return self._run_git(*order).decode("utf-8", "replace").strip()

    @property
    def branch(self) -> str | None:
        """Current branch, or None."""
        end = run_own_git(self._git_dir, "symbolic-ref", "--quiet", "--short", "HEAD")
        return end.output.decode("utf-8", "replace").strip() or None

    @property
    def remotes(self) -> list[str]:
        """URLs of its remotes, without passwords."""
        return [remove_password(url) for url in read_remote_addresses(self._path)]

    def _run_git(self, *arguments: str) -> bytes:
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


def _make_criteria(tests: Sequence[str]) -> dict[str, str]:
    """Return a rubric for each test file, named after the file, or its path if names repeat."""
    names = [PurePosixPath(path).stem for path in tests]
    return {
        name if names.count(name) == 1 else path: f"The tests of {path} pass"
        for name, path in zip(names, tests, strict=True)
    }


def _choose_rubric(path: str, criteria: Mapping[str, str]) -> str:
    exact = [name for name in criteria if name in (path, PurePosixPath(path).stem)]
    near = [name for name in criteria if name in path]
    return [*exact, *near, *criteria][0]


def _make_slug(title: str) -> str:
    words = re.sub(r"[^\w\s-]", "", title.lower(), flags=re.ASCII)
    return re.sub(r"[\s_-]+", "-", words).strip("-")[:50].strip("-") or "task"


def _format_notes(
    title: str, message: str, changes: Mapping[str, bool], hidden: Sequence[str]
) -> str:
    lines = [f"# {title}", "", message, "", "## Changed files", ""]
    lines += [
        f"- `{decode_path(path)}`{' (deleted)' if deleted else ''}"
        for path, deleted in changes.items()
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
            *(f"- `{decode_path(path)}`" for path in hidden),
        ]
    return "\n".join(lines) + "\n"


def _encode_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


_COPIED_FILES = (META, INSTRUCTIONS, REFERENCE, "repo_info.json", "notes.md", "overrides.json")
_COPIED_FOLDERS = ("overlay_files", "overlay_repo_files", EVALUATION)
_STAMP_PATTERN = re.compile(r"_\d{8}_\d{6}(-\d+)?$")


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
            f"{str(created / META)!r} has no evaluation.rubrics, so solutions cannot be "
            "scored; add at least one"
        )
    target = into / (name or _make_folder_name(task.task_id))
    into.mkdir(parents=True, exist_ok=True)
    # Absolute, because git runs in other folders.
    with tempfile.TemporaryDirectory(prefix=".preparing-", dir=into.resolve()) as scratch:
        draft = Path(scratch) / "task"
        draft.mkdir()
        for copied in _COPIED_FILES:
            if (content := read_optional_file(created, copied)) is not None:
                (draft / copied).write_bytes(content)
        for copied in _COPIED_FOLDERS:
            if (created / copied).is_dir():
                shutil.copytree(created / copied, draft / copied, symlinks=True)
        full_repo = replace(task.repo, subdir=None, sparse_checkout=())
        if task.repo.git_url is None:
            check_out(full_repo, task.folder, draft / FILES)
        else:
            root = Path(scratch) / "repo"
            check_out(full_repo, task.folder, root)
            _write_bundle(root, Path(scratch) / "git", draft / BUNDLE)
        prepared = load_task(draft)
        workspace = make_workspace(prepared, Path(scratch) / "workspace")
        try:
            apply_patch(workspace, prepared.reference_patch or b"")
        except PatchRejected as error:
            raise UsageError(
                f"{str(created / REFERENCE)!r} does not apply to the repository: {error}"
            ) from error
        for existing in sorted(into.glob(f"{glob.escape(target.name)}*")):
            if _is_prepared(existing, prepared.checksum):
                return existing
        folder = find_free_path(target)
        draft.rename(folder)
    return folder


def _make_folder_name(task_id: str) -> str:
    plain = re.sub(r"[^\w.-]+", "-", _STAMP_PATTERN.sub("", task_id)).strip(".-")
    return plain or "task"


def _is_prepared(folder: Path, checksum: str) -> bool:
    try:
        return load_task(folder).checksum == checksum
    except UsageError:
        return False


def _write_bundle(root: Path, git_dir: Path, path: Path) -> None:
    """Store files as a bundle of one commit, without the history of their repository."""
    create_git_dir(git_dir, bare=True)
    entries, _ = read_entries(root, scan(root).files, lambda text: write_blob(git_dir, text))
    commit = write_commit(git_dir, write_tree(git_dir, entries))
    (git_dir / "refs" / "heads" / START).write_text(f"{commit}\n", "utf-8")
    end = run_own_git(git_dir, "bundle", "create", "--quiet", str(path.resolve()), START)
    if end.code != 0:
        raise OutputError(f"cannot write {str(path)!r}: {find_error(end.errors)}")
