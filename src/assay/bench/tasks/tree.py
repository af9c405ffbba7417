"""What stands in a folder that an agent may have left in any state.

Links are never followed, and nothing is opened that is not a plain file: not a pipe, a socket
or a device. What git cannot hold is left out, and named in a finding.

Paths inside a task: relative and without `..`.

A path is text with `/` between its parts. Bytes of a name that are no UTF-8 are kept as
Python's file functions keep them.

Files in a patch that a test runner reads without being told to.

They may be honest, as may a `setup.cfg` that gets a new dependency; whoever reads a score
should know of them all the same.

Git objects, made without git: files, trees, and the one commit that a task starts from.
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
"""A file that may be run."""
LINK = "120000"
_FOLDER = "40000"
_WHO = "assay <assay@localhost> 946684800 +0000"
"""The same on every machine at any time, so that the commit is."""


class Entry(NamedTuple):
    """What stands at a path."""

    mode: str
    sha: str
    """The name of its content as git has it."""


def blob_hash(content: bytes) -> str:
    """The name that git gives a content."""
    return hashlib.sha1(
        b"blob %d\0" % len(content) + content, usedforsecurity=False
    ).hexdigest()


def write_blob(git_dir: Path, content: bytes) -> str:
    """Keep a content, and return its name."""
    return _write(git_dir, b"blob", content)


def write_tree(git_dir: Path, entries: Mapping[str, Entry]) -> str:
    """Keep the tree of all paths, and return its name."""
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
    """Keep a commit without a parent as the head of the branch, and return its name."""
    text = f"tree {tree}\nauthor {_WHO}\ncommitter {_WHO}\n\nThe start of the task\n"
    commit = _write(git_dir, b"commit", text.encode())
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
    return _write(git_dir, b"tree", content)


def _write(git_dir: Path, kind: bytes, content: bytes) -> str:
    whole = b"%s %d\0%s" % (kind, len(content), content)
    sha = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    path = git_dir / "objects" / sha[:2] / sha[2:]
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(whole, 1))
    return sha


LARGEST_FILE = 100 * 2**20
"""Bytes; a larger one is left out, be it sparse or not."""
_LARGEST_SUM = 256 * 2**20
_MOST_FILES = 50_000
LONGEST_PATH = 3_000
DEEPEST = 200
_NAMED = 5
"""How many paths a finding gives."""


class Scan(NamedTuple):
    """The paths below a folder."""

    files: Mapping[str, os.stat_result]
    """Plain files and links, in the order of their names."""
    left_out: Mapping[str, tuple[str, ...]]
    """By the name of a finding, the paths that are not among them."""


def scan(root: Path) -> Scan:
    """Look at all that is below a folder, but in no `.git`."""
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
        elif stat.S_ISREG(status.st_mode) and status.st_size > LARGEST_FILE:
            left_out.setdefault("large_file", []).append(path)
        elif stat.S_ISLNK(status.st_mode) and name.lower() == ".gitmodules":
            # Git refuses such a link, because it would read its settings through it.
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
    """Yield all paths below a folder, each with what it is; None where that cannot be read.

    Links are not followed, and no folder is entered whose path is too long, so that neither the
    paths nor the depth have another bound than `is_too_long` gives them.

    Args:
        root: The folder.
        without: The name, in any case, of folders that are not entered.
    """
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            names = _names(root / folder)
        except OSError:
            yield folder.rstrip("/") or ".", None
            continue
        for name in names:
            path = f"{folder}{name}"
            try:
                status = (root / path).lstat()
            except OSError:  # it is gone, or beyond what the system takes as a path
                yield path, None
                continue
            yield path, status
            if (
                stat.S_ISDIR(status.st_mode)
                and not is_too_long(path)
                and (not without or name.lower() != without)
            ):
                folders.append(f"{path}/")


def entries(
    root: Path,
    files: Mapping[str, os.stat_result],
    store: Callable[[bytes], str],
    known: Mapping[str, Entry] | None = None,
) -> tuple[dict[str, Entry], dict[str, tuple[str, ...]]]:
    """What the files are; `store` keeps a content and names it.

    Returns:
        The entries, and by the name of a finding the paths that are left out: what cannot be
        read, and what is too much beside `known`, of which a file then counts as unchanged.
    """
    found: dict[str, Entry] = {}
    left_out: dict[str, list[str]] = {}
    size = new = 0
    start = known or {}
    # What was there first, then small files: a heap of junk does not crowd out a solution.
    order = sorted(files, key=lambda path: (path not in start, files[path].st_size, path))
    for path in order:
        status = files[path]
        if size > _LARGEST_SUM or new >= _MOST_FILES:
            left_out.setdefault("patch_too_large", []).append(path)
            if path in start:
                found[path] = start[path]
            continue
        try:
            content = _content(root / path, status)
        except OSError:
            left_out.setdefault("unreadable_file", []).append(path)
            continue
        entry = Entry(_mode(status), store(content))
        found[path] = entry
        if known is not None and known.get(path) != entry:
            size += len(content)
            new += 1
    missing = {name: tuple(sorted(paths)) for name, paths in left_out.items()}
    return dict(sorted(found.items())), missing


def is_too_long(path: str) -> bool:
    """Whether a path has more bytes or folders than one may have."""
    return len(os.fsencode(path)) > LONGEST_PATH or path.count("/") >= DEEPEST


def target_leaves(path: str, target: str) -> bool:
    """Whether a link at a path, as it is written, may point out of its repository."""
    if target.startswith("/"):
        path, target = "", os.path.relpath(target, REPOSITORY)
    names = [part for part in target.split("/") if part not in ("", ".")]
    up = next((at for at, part in enumerate(names) if part != ".."), len(names))
    # What is above a name is not known if the name is a link itself.
    return up > path.count("/") or ".." in names[up:]


def link_leaves(root: Path, path: str) -> bool:
    """Whether a link points to something that is not in its repository."""
    target = os.readlink(root / path)
    if target_leaves(path, target):
        return True
    if target.startswith("/"):
        return False
    try:
        real = os.path.realpath(root / path, strict=False)
    except OSError:  # a name that is too long for any file
        return False
    inside = os.path.realpath(root)
    return real != inside and not real.startswith(f"{inside}/")


def as_findings(left_out: Mapping[str, tuple[str, ...]]) -> Iterator[TrialFinding]:
    """A finding for each reason, with some of the paths."""
    for name, paths in left_out.items():
        named = ", ".join(shown_path(path) for path in paths[:_NAMED])
        more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
        yield TrialFinding(name, f"{named}{more}")


def path_text(path: str) -> str:
    """A path as text that can be stored, whatever bytes are in it."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def shown_path(path: str) -> str:
    """A path in one line that can be shown."""
    return cut(path_text(path), 200)


def _names(folder: Path) -> list[str]:
    if not os.access(folder, os.R_OK | os.X_OK):
        folder.chmod(0o700)
    return os.listdir(folder)


def _content(path: Path, status: os.stat_result) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(path))
    try:
        return read_plain_file(path)
    except PermissionError:
        path.chmod(stat.S_IMODE(status.st_mode) | 0o600)
        return read_plain_file(path)


def _mode(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return LINK
    return PROGRAM if status.st_mode & 0o100 else FILE


def path_problem(path: str, *, in_repository: bool = False) -> str | None:
    """What is wrong with a path that must stay inside its folder; None if nothing is."""
    parts = path.split("/")
    if not path or "\0" in path:
        return "a path has at least one character, and no NUL"
    if path.startswith("/") or re.match(r"[A-Za-z]:[\\/]", path):
        return "a path is relative to its folder, not absolute"
    if ".." in parts:
        return "a path stays in its folder, without '..'"
    if str(PurePosixPath(path)) != path:
        return "a path is written plainly, such as 'src/app.py'"
    if in_repository and is_git_path(path):
        return "a path does not lead into '.git'"
    return None


def is_git_path(path: str) -> bool:
    """Whether a path is, or lies in, something that git takes for its own folder."""
    return any(part.lower() == ".git" for part in path.split("/"))


_MODULES = {
    *("_pytest", "conftest", "pluggy", "pytest", "sitecustomize", "unittest", "usercustomize"),
}
_SETTINGS = {".pytest.ini", ".pytest.toml", "pytest.ini", "pytest.toml", "setup.cfg", "tox.ini"}
_CODE = (".py", ".pyc", ".so")
_TABLE = b"[tool.pytest"


def shadowing_findings(root: Path, paths: Iterable[str]) -> Iterator[TrialFinding]:
    """A finding for each path that changes how tests run, or what runs them."""
    for path in paths:
        *folders, name = path.split("/")
        stem = name.partition(".")[0]
        if (
            name in _SETTINGS
            or name.endswith(".pth")
            or (stem in _MODULES and name.endswith(_CODE))
            or not _MODULES.isdisjoint(folders)
            or (name == "pyproject.toml" and _configures_pytest(root / path))
        ):
            yield TrialFinding("test_runner_shadowed", shown_path(path))


def _configures_pytest(path: Path) -> bool:
    try:
        return _TABLE in read_plain_file(path)
    except OSError:
        return False
