"""An agent's working folder: creating it, capturing its changes, applying patches.

Git never runs on the agent's folder. assay reads its files and compares them in a git directory
that the agent cannot reach. So nothing in the folder, including its `.git`, can make git
execute a program or ignore a file.
"""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.bench.base import CodingTask, Patch
from assay.bench.tasks.source import check_out
from assay.bench.tasks.tree import (
    FILE,
    LINK,
    PROGRAM,
    Entry,
    compute_blob_hash,
    decode_path,
    find_path_problem,
    find_shadowing,
    format_path,
    link_points_outside,
    make_findings,
    read_entries,
    scan,
    target_points_outside,
    write_blob,
    write_commit,
    write_tree,
)
from assay.core.files import remove_folder
from assay.core.git import create_git_dir, find_error, run_own_git
from assay.core.wildcards import Wildcards
from assay.errors import OutputError, PatchRejected, UsageError

INSTRUCTIONS = "LM_INSTRUCTIONS.md"
"""File next to the repository with the instructions for the agent."""
_CACHE_FILES = Wildcards(
    f"**/{name}"
    for name in ("__pycache__", "*.pyc", ".pytest_cache", ".mypy_cache", ".ruff_cache")
)
"""Files that tools create as a side effect; not part of a solution."""
_MIN_PACKED_OBJECTS = 100
"""Number of objects above which copying one pack is faster."""
_IGNORE_SECONDS = 20
DIFF = (
    *("diff-tree", "-r", "-p", "--binary", "--full-index", "-M", "--no-ext-diff"),
    *("--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"),
)
"""Options for a diff with renames, modes and binary files, independent of git settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A copy of a task's repository for one agent, or for one grading."""

    folder: Path
    """The only folder that is created."""
    baseline: str
    """Commit that the repository starts from; identical on every machine."""
    disk: Path | None = None
    """The file system that `app` was moved to, if it was."""

    @property
    def app(self) -> Path:
        """Folder of the overlay files, with the repository in its subfolder `repo`."""
        return (self.disk or self.folder) / "app"

    @property
    def repo(self) -> Path:
        """The agent's repository: files and a separate `.git` with one commit."""
        return self.app / "repo"

    @property
    def git_dir(self) -> Path:
        """The git directory that the agent cannot access."""
        return self.folder / "git"

    def remove(self) -> None:
        """Delete the folder, even if the agent changed its permissions."""
        remove_folder(self.folder)


def make_workspace(task: CodingTask, folder: Path, *, cache: Path | None = None) -> Workspace:
    """Create the workspace of a task in a new folder.

    Args:
        task: The loaded task.
        folder: Must not exist, or be empty.
        cache: Folder that keeps repositories by task checksum, for reuse.

    Raises:
        UsageError: The repository is missing, or the folder is not empty.
        ServiceError: A remote repository could not be fetched.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{str(folder)!r} already exists; give the workspace a new folder")
    folder = folder.absolute()  # git runs in other folders
    app = folder / "app"
    app.mkdir(parents=True)
    if cache is not None and task.checksum:
        start = _get_cached_start(task, cache)
        shutil.copytree(start, folder, symlinks=True, dirs_exist_ok=True)
        (folder / "repo").rename(app / "repo")
    else:
        _build_start(task, folder)
        (folder / "repo").rename(app / "repo")
    baseline = (folder / "git" / "refs" / "heads" / "main").read_text("utf-8").strip()
    _make_agent_git(folder / "git", app / "repo" / ".git")
    texts = {**task.overlay_files, INSTRUCTIONS: task.instructions.encode()}
    _write_overlay(app, texts, "overlay_files")
    return Workspace(folder=folder, baseline=baseline)


def capture(workspace: Workspace) -> Patch:
    """Return the changes since the start, for any state of the agent's folder.

    New files that match the repository's `.gitignore`, and caches of Python and its tools, are
    not included.
    """
    root, git_dir = workspace.repo, workspace.git_dir
    start = _read_commit_entries(git_dir, workspace.baseline)
    scanned = scan(root)
    new = [path for path in scanned.files if path not in start and not _CACHE_FILES.match(path)]
    ignored = _find_ignored(root, git_dir, scanned.files, new)
    files = {
        path: status
        for path, status in scanned.files.items()
        if path in start or (not _CACHE_FILES.match(path) and path not in ignored)
    }
    entries, skipped = read_entries(root, files, _make_blob_writer(git_dir, start), start)
    left_out = {**scanned.left_out, **skipped}
    outside = tuple(
        path
        for path, entry in entries.items()
        if entry.mode == LINK and start.get(path) != entry and link_points_outside(root, path)
    )
    if outside:
        left_out["symlink_outside"] = outside
        entries = {path: entry for path, entry in entries.items() if path not in outside}
    diff, changed_paths = _diff_trees(git_dir, workspace.baseline, write_tree(git_dir, entries))
    findings = (*make_findings(left_out), *find_shadowing(root, changed_paths))
    return Patch(diff=diff, files=tuple(map(decode_path, changed_paths)), findings=findings)


def apply_patch(workspace: Workspace, diff: bytes) -> None:
    """Apply a patch to the repository, completely or not at all.

    Raises:
        PatchRejected: It does not apply, or its paths leave the repository.
    """
    if not diff.strip():
        return
    root, git_dir = workspace.repo, workspace.git_dir
    start = _read_commit_entries(git_dir, workspace.baseline)
    before, _ = read_entries(root, scan(root).files, _make_blob_writer(git_dir, start))
    with tempfile.TemporaryDirectory(prefix="assay-apply-") as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        _run_git(git_dir, "read-tree", write_tree(git_dir, before), variables=index)
        applied = run_own_git(
            git_dir, "apply", "--cached", "--whitespace=nowarn", stdin=diff, variables=index
        )
        if applied.code != 0:
            raise PatchRejected(f"the patch does not apply: {find_error(applied.errors)}")
        listing = _run_git(git_dir, "ls-files", "-s", "-z", variables=index)
        after = {path: Entry(mode, sha) for path, mode, sha in _parse_rows(listing, 1)}
    changed = {path: entry for path, entry in after.items() if before.get(path) != entry}
    contents = _read_blobs(git_dir, [entry.sha for entry in changed.values()])
    for path, entry in changed.items():
        _check_change(path, entry, contents.get(entry.sha, b""))
    for path in sorted(before.keys() - after.keys(), reverse=True):
        _delete_file(root, path)
    for path, entry in changed.items():
        try:
            _write_file(root, path, contents[entry.sha], entry.mode)
        except OSError as error:
            raise PatchRejected(
                f"the patch cannot write {format_path(path)!r}: {error.strerror}"
            ) from error


def _get_cached_start(task: CodingTask, cache: Path) -> Path:
    """Return the cached folder with `repo` and `git` of a task; create it if it is missing."""
    cached = cache / task.checksum
    if cached.is_dir():
        return cached
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{task.checksum[:12]}.", dir=cache))
    draft.chmod(0o755)
    try:
        _build_start(task, draft)
        draft.rename(cached)
    except OSError:
        if not cached.is_dir():  # otherwise another process created it first
            raise
    finally:
        remove_folder(draft)
    return cached


def _build_start(task: CodingTask, folder: Path) -> None:
    """Create `repo`, the files that a task starts from, and `git`, their single commit."""
    root, git_dir = folder / "repo", folder / "git"
    check_out(task.repo, task.folder, root)
    removed = Wildcards(task.remove_repo_paths)
    for path in [path for path in scan(root).files if removed.match(path)]:
        _delete_file(root, path)
    _write_overlay(root, task.overlay_repo_files, "overlay_repo_files")
    create_git_dir(git_dir, bare=True)
    scanned = scan(root)
    entries, skipped = read_entries(root, scanned.files, lambda text: write_blob(git_dir, text))
    for finding in make_findings({**scanned.left_out, **skipped}):
        raise UsageError(f"the repository has a {finding.name}: {finding.detail}; remove it")
    write_commit(git_dir, write_tree(git_dir, entries))
    _run_git(git_dir, "read-tree", "main")
    if len(entries) > _MIN_PACKED_OBJECTS:
        _run_git(git_dir, "repack", "-a", "-d", "-q", "--window=0")


def _write_overlay(root: Path, files: Mapping[str, bytes], key: str) -> None:
    for path, content in files.items():
        try:
            _write_file(root, path, content)
        except (NotADirectoryError, IsADirectoryError) as error:
            raise UsageError(f"{key}: cannot write {path!r}: {error.strerror}") from error


def _make_agent_git(trusted: Path, into: Path) -> None:
    create_git_dir(into, bare=False)
    for name in ("objects", "refs", "index"):
        source = trusted / name
        if source.is_dir():
            shutil.copytree(source, into / name, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, into / name)


def _write_file(root: Path, path: str, content: bytes, mode: str = "") -> None:
    """Write a file or a link below a folder, without following links."""
    target = root / path
    for parent in [*target.parents][: path.count("/")]:
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            name = str(parent.relative_to(root))
            raise NotADirectoryError(errno.ENOTDIR, f"{name!r} is a link or a file", path)
    target.parent.mkdir(parents=True, exist_ok=True)
    old_mode = target.lstat().st_mode if target.exists() or target.is_symlink() else 0o644
    if stat.S_ISDIR(old_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
    target.unlink(missing_ok=True)
    if mode == LINK:
        target.symlink_to(os.fsdecode(content))
        return
    target.write_bytes(content)
    is_executable = mode == PROGRAM if mode else old_mode & 0o100
    target.chmod(0o755 if is_executable else 0o644)


def _delete_file(root: Path, path: str) -> None:
    """Delete a file or link, and the folders that this leaves empty."""
    (root / path).unlink()
    for parent in [*(root / path).parents][: path.count("/")]:
        if any(parent.iterdir()):
            return
        parent.rmdir()


def _diff_trees(git_dir: Path, start: str, end: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the binary diff of two trees, and the paths in it."""
    rows = _run_git(git_dir, "diff-tree", "-r", "--name-status", "-z", "-M", start, end)
    fields = [field for field in rows.split(b"\0") if field]
    paths, index = [], 0
    while index < len(fields):
        # A rename has the old and the new path.
        count = 2 if fields[index][:1] == b"R" else 1
        paths += [os.fsdecode(path) for path in fields[index + 1 : index + 1 + count]]
        index += 1 + count
    diff = _run_git(git_dir, *DIFF, start, end) if paths else b""
    return diff, tuple(dict.fromkeys(paths))


def _find_ignored(
    root: Path, git_dir: Path, files: Mapping[str, os.stat_result], paths: list[str]
) -> frozenset[str]:
    """Return the paths that match the `.gitignore` files of a folder."""
    rules = [
        path
        for path, status in files.items()
        if path.rpartition("/")[2] == ".gitignore" and stat.S_ISREG(status.st_mode)
    ]
    if not rules or not paths:
        return frozenset()
    with tempfile.TemporaryDirectory(prefix="assay-ignore-") as scratch:
        # Git sees only a copy of these files, and nothing else of the agent's.
        files_read, _ = read_entries(root, {path: files[path] for path in rules}, lambda _: "")
        for path in files_read:
            _write_file(Path(scratch), path, (root / path).read_bytes())
        end = run_own_git(
            git_dir,
            *("-c", "core.bare=false", "check-ignore", "-z", "--stdin", "--no-index"),
            stdin=b"".join(os.fsencode(path) + b"\0" for path in paths),
            variables={"GIT_WORK_TREE": scratch},
            seconds=_IGNORE_SECONDS,
        )
    # If git fails on the rules, or no path matches, nothing is left out.
    return frozenset(os.fsdecode(path) for path in end.output.split(b"\0")[:-1])


def _check_change(path: str, entry: Entry, content: bytes) -> None:
    name = format_path(path)
    if problem := find_path_problem(path, in_repository=True):
        raise PatchRejected(f"the patch changes {name!r}: {problem}")
    if entry.mode not in (FILE, PROGRAM, LINK):
        raise PatchRejected(f"the patch makes {name!r} a submodule, which is not supported")
    if entry.mode == LINK:
        target = os.fsdecode(content)
        if target_points_outside(path, target):
            raise PatchRejected(
                f"the patch links {name!r} to {target!r}, outside the repository"
            )


def _make_blob_writer(git_dir: Path, start: Mapping[str, Entry]) -> Callable[[bytes], str]:
    """Return a function that stores contents unless the start has them, and returns hashes."""
    existing = {entry.sha for entry in start.values()}

    def write_new(content: bytes) -> str:
        sha = compute_blob_hash(content)
        return sha if sha in existing else write_blob(git_dir, content)

    return write_new


def _read_commit_entries(git_dir: Path, commit: str) -> dict[str, Entry]:
    return {
        path: Entry(mode, sha)
        for path, mode, sha in _parse_rows(_run_git(git_dir, "ls-tree", "-r", "-z", commit), 2)
    }


def _parse_rows(output: bytes, sha_at: int) -> list[tuple[str, str, str]]:
    rows = []
    for row in output.split(b"\0")[:-1]:
        fields, _, path = row.partition(b"\t")
        words = fields.decode().split()
        rows.append((os.fsdecode(path), words[0], words[sha_at]))
    return rows


def _read_blobs(git_dir: Path, shas: list[str]) -> dict[str, bytes]:
    """Return the contents by hash, without hashes that are not found."""
    names = "".join(f"{sha}\n" for sha in shas).encode()
    output = run_own_git(git_dir, "cat-file", "--batch", stdin=names).output
    contents, offset = {}, 0
    for sha in shas:
        header, _, _ = output[offset:].partition(b"\n")
        offset += len(header) + 1
        if header.endswith(b" missing"):
            continue
        size = int(header.split()[2])
        contents[sha] = output[offset : offset + size]
        offset += size + 1
    return contents


def _run_git(
    git_dir: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> bytes:
    end = run_own_git(git_dir, *arguments, variables=variables)
    if end.code != 0:
        raise OutputError(
            f"git {arguments[0]} in {str(git_dir)!r}: {find_error(end.errors)}; check "
            "the free disk space, then try again"
        )
    return end.output
