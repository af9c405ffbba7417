"""What stands in a folder that an agent may have left in any state.

Links are never followed, and nothing is opened that is not a plain file: not a pipe, a socket
or a device. What git cannot hold is left out, and named in a finding.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from assay._util.files import read_plain_file
from assay._util.text import cut
from assay.bench.sandboxes.base import REPOSITORY, TrialFinding
from assay.bench.tasks.objects import FILE, LINK, PROGRAM, Entry

__all__ = [
    "DEEPEST",
    "LARGEST_FILE",
    "LONGEST_PATH",
    "Scan",
    "as_findings",
    "entries",
    "is_too_long",
    "link_leaves",
    "path_text",
    "scan",
    "shown_path",
    "target_leaves",
    "walk",
]

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
