"""Files of a folder that an agent may have left in any state, and git objects made from them.

Links are never followed, and only plain files are opened, no pipes, sockets or devices. Files
that git cannot store are left out and reported in a finding. Files of a patch that a test
runner reads automatically stay in it but are reported too: a change to `setup.cfg` may be
legitimate, but readers of the score should see it.

A path is text with `/` between its parts, relative and without `..`. Bytes that are not valid
UTF-8 are kept as Python's file functions keep them. Git objects (files, trees, and the single
commit that a task starts from) are written without git.
"""

import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assay.core.files import read_plain_file
from assay.core.text import cut
from assay.sandboxes.base import REPOSITORY, TrialFinding

FILE = "100644"
PROGRAM = "100755"
"""Mode of an executable file."""
LINK = "120000"
_FOLDER = "40000"
_AUTHOR = "assay <assay@localhost> 946684800 +0000"
"""Constant, so that the commit hash is identical on every machine."""


class Entry(NamedTuple):
    """A file in a git tree."""

    mode: str
    sha: str
    """Git hash of its content."""


def compute_blob_hash(content: bytes) -> str:
    """Return git's hash of a file content."""
    return hashlib.sha1(
        b"blob %d\0" % len(content) + content, usedforsecurity=False
    ).hexdigest()


def write_blob(git_dir: Path, content: bytes) -> str:
    """Store a file content; return its hash."""
    return _write_object(git_dir, b"blob", content)


def write_tree(git_dir: Path, entries: Mapping[str, Entry]) -> str:
    """Store the tree of all paths; return its hash."""
    root: dict[bytes, object] = {}
    for path, entry in entries.items():
        *folders, name = os.fsencode(path).split(b"/")
        folder = root
        for part in folders:
            inner = folder.setdefault(part, {})
            assert isinstance(inner, dict)
            folder = inner
        folder[name] = entry
    return _write_folder(git_dir, root)


def write_commit(git_dir: Path, tree: str) -> str:
    """Store a commit without parents as the head of the branch; return its hash."""
    text = f"tree {tree}\nauthor {_AUTHOR}\ncommitter {_AUTHOR}\n\nThe start of the task\n"
    commit = _write_object(git_dir, b"commit", text.encode())
    (git_dir / "refs" / "heads" / "main").write_text(f"{commit}\n", "utf-8")
    return commit


def _write_folder(git_dir: Path, folder: Mapping[bytes, object]) -> str:
    rows = []
    for name, inner in folder.items():
        if isinstance(inner, Entry):
            rows.append((name, name, inner.mode, inner.sha))
        elif isinstance(inner, dict):
            # Git sorts a folder as if its name ended in a slash.
            rows.append((name + b"/", name, _FOLDER, _write_folder(git_dir, inner)))
    content = b"".join(
        b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(sha))
        for _, name, mode, sha in sorted(rows)
    )
    return _write_object(git_dir, b"tree", content)


def _write_object(git_dir: Path, kind: bytes, content: bytes) -> str:
    encoded = b"%s %d\0%s" % (kind, len(content), content)
    sha = hashlib.sha1(encoded, usedforsecurity=False).hexdigest()
    path = git_dir / "objects" / sha[:2] / sha[2:]
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(encoded, 1))
    return sha


MAX_FILE_BYTES = 100 * 2**20
"""Size limit in bytes, also for sparse files; larger files are left out."""
_MAX_CHANGED_BYTES = 256 * 2**20
_MAX_CHANGED_FILES = 50_000
MAX_PATH_BYTES = 3_000
MAX_PATH_DEPTH = 200
_MAX_NAMED = 5
"""Maximum number of paths in a finding."""


class Scan(NamedTuple):
    """The paths below a folder."""

    files: Mapping[str, os.stat_result]
    """Plain files and links, sorted by path."""
    left_out: Mapping[str, tuple[str, ...]]
    """Paths that were left out, by the name of the finding."""


def scan(root: Path) -> Scan:
    """List everything below a folder, except what is in `.git`."""
    files: dict[str, os.stat_result] = {}
    left_out: dict[str, list[str]] = {}
    if root.is_symlink() or not root.is_dir():
        return Scan({}, {"repository_removed": (".",)})
    for path, status in walk(root, without=".git"):
        folder, _, name = path.rpartition("/")
        if name.lower() == ".git":
            if folder:
                left_out.setdefault("nested_repository", []).append(folder)
        elif is_too_long(path):
            left_out.setdefault("path_too_long", []).append(path)
        elif status is None:
            left_out.setdefault("unreadable_file", []).append(path)
        elif stat.S_ISREG(status.st_mode) and status.st_size > MAX_FILE_BYTES:
            left_out.setdefault("large_file", []).append(path)
        elif stat.S_ISLNK(status.st_mode) and name.lower() == ".gitmodules":
            # Git rejects such a link, because it would read its settings through it.
            left_out.setdefault("special_file", []).append(path)
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            files[path] = status
        elif not stat.S_ISDIR(status.st_mode):
            left_out.setdefault("special_file", []).append(path)
    return Scan(
        dict(sorted(files.items())),
        {name: tuple(sorted(paths)) for name, paths in left_out.items()},
    )


def walk(root: Path, without: str = "") -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield all paths below a folder with their status; None if it cannot be read.

    Links are not followed, and folders whose paths are too long are not entered, so that
    `is_too_long` bounds the paths and the depth.

    Args:
        root: The folder.
        without: Name of folders that are not entered, in any letter case.
    """
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            names = _list_folder(root / folder)
        except OSError:
            yield folder.rstrip("/") or ".", None
            continue
        for name in names:
            path = f"{folder}{name}"
            try:
                status = (root / path).lstat()
            except OSError:  # it is gone, or its path is too long for the system
                yield path, None
                continue
            yield path, status
            if (
                stat.S_ISDIR(status.st_mode)
                and not is_too_long(path)
                and (not without or name.lower() != without)
            ):
                folders.append(f"{path}/")


def read_entries(
    root: Path,
    files: Mapping[str, os.stat_result],
    store: Callable[[bytes], str],
    baseline: Mapping[str, Entry] | None = None,
) -> tuple[dict[str, Entry], dict[str, tuple[str, ...]]]:
    """Read files as git entries; `store` stores a content and returns its hash.

    Returns:
        The entries, and the paths that are left out, by the name of the finding: unreadable
        files, and those beyond the limits on changes to `baseline`. A file of it that is
        beyond the limits counts as unchanged.
    """
    entries: dict[str, Entry] = {}
    left_out: dict[str, list[str]] = {}
    changed_bytes = changed_files = 0
    start = baseline or {}
    # Original files first, then small ones, so that junk files do not displace a solution.
    ordered = sorted(files, key=lambda path: (path not in start, files[path].st_size, path))
    for path in ordered:
        status = files[path]
        if changed_bytes > _MAX_CHANGED_BYTES or changed_files >= _MAX_CHANGED_FILES:
            left_out.setdefault("patch_too_large", []).append(path)
            if path in start:
                entries[path] = start[path]
            continue
        try:
            content = _read_content(root / path, status)
        except OSError:
            left_out.setdefault("unreadable_file", []).append(path)
            continue
        entry = Entry(_get_mode(status), store(content))
        entries[path] = entry
        if baseline is not None and baseline.get(path) != entry:
            changed_bytes += len(content)
            changed_files += 1
    skipped = {name: tuple(sorted(paths)) for name, paths in left_out.items()}
    return dict(sorted(entries.items())), skipped


def is_too_long(path: str) -> bool:
    """Return whether a path exceeds the limits on bytes and folders."""
    return len(os.fsencode(path)) > MAX_PATH_BYTES or path.count("/") >= MAX_PATH_DEPTH


def target_points_outside(path: str, target: str) -> bool:
    """Return whether a link with this target, resolved as text, may leave its repository."""
    if target.startswith("/"):
        path, target = "", os.path.relpath(target, REPOSITORY)
    names = [part for part in target.split("/") if part not in ("", ".")]
    depth = next((index for index, part in enumerate(names) if part != ".."), len(names))
    # `..` after a name is unpredictable, because the name may be a link.
    return depth > path.count("/") or ".." in names[depth:]


def link_points_outside(root: Path, path: str) -> bool:
    """Return whether a link points outside its repository."""
    target = os.readlink(root / path)
    if target_points_outside(path, target):
        return True
    if target.startswith("/"):
        return False
    try:
        real = os.path.realpath(root / path, strict=False)
    except OSError:  # the name is too long for a file
        return False
    inside = os.path.realpath(root)
    return real != inside and not real.startswith(f"{inside}/")


def make_findings(left_out: Mapping[str, tuple[str, ...]]) -> Iterator[TrialFinding]:
    """Yield a finding for each reason, with some of the paths."""
    for name, paths in left_out.items():
        listed = ", ".join(format_path(path) for path in paths[:_MAX_NAMED])
        more = f" and {len(paths) - _MAX_NAMED:,} more" if len(paths) > _MAX_NAMED else ""
        yield TrialFinding(name, f"{listed}{more}")


def decode_path(path: str) -> str:
    """Convert a path to text that can be stored, even if its bytes are not valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def format_path(path: str) -> str:
    """Convert a path to one printable line."""
    return cut(decode_path(path), 200)


def _list_folder(folder: Path) -> list[str]:
    if not os.access(folder, os.R_OK | os.X_OK):
        folder.chmod(0o700)
    return os.listdir(folder)


def _read_content(path: Path, status: os.stat_result) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(path))
    try:
        return read_plain_file(path)
    except PermissionError:
        path.chmod(stat.S_IMODE(status.st_mode) | 0o600)
        return read_plain_file(path)


def _get_mode(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return LINK
    return PROGRAM if status.st_mode & 0o100 else FILE


def find_path_problem(path: str, *, in_repository: bool = False) -> str | None:
    """Return why a path may not be used inside its folder; None if it may."""
    parts = path.split("/")
    if not path or "\0" in path:
        return "a path must not be empty or contain NUL"
    if path.startswith("/") or re.match(r"[A-Za-z]:[\\/]", path):
        return "a path must be relative to its folder, not absolute"
    if ".." in parts:
        return "a path must stay in its folder, without '..'"
    if str(PurePosixPath(path)) != path:
        return "a path must be in its simplest form, such as 'src/app.py'"
    if in_repository and is_git_path(path):
        return "a path must not be in '.git'"
    return None


def is_git_path(path: str) -> bool:
    """Return whether a path is a `.git` folder or inside one, in any letter case."""
    return any(part.lower() == ".git" for part in path.split("/"))


_RUNNER_MODULES = {
    *("_pytest", "conftest", "pluggy", "pytest", "sitecustomize", "unittest", "usercustomize"),
}
_CONFIGS = {".pytest.ini", ".pytest.toml", "pytest.ini", "pytest.toml", "setup.cfg", "tox.ini"}
_MODULE_SUFFIXES = (".py", ".pyc", ".so")
_PYTEST_TABLE = b"[tool.pytest"


def find_shadowing(root: Path, paths: Iterable[str]) -> Iterator[TrialFinding]:
    """Yield a finding for each path that affects how tests run, or replaces the test runner."""
    for path in paths:
        *folders, name = path.split("/")
        stem = name.partition(".")[0]
        if (
            name in _CONFIGS
            or name.endswith(".pth")
            or (stem in _RUNNER_MODULES and name.endswith(_MODULE_SUFFIXES))
            or not _RUNNER_MODULES.isdisjoint(folders)
            or (name == "pyproject.toml" and _configures_pytest(root / path))
        ):
            yield TrialFinding("test_runner_shadowed", format_path(path))


def _configures_pytest(path: Path) -> bool:
    try:
        return _PYTEST_TABLE in read_plain_file(path)
    except OSError:
        return False
